"""Forwards messages from one incoming link to the receivers of an address, by its distribution.

Every function takes (link, address, delivery, size). The message is complete, the link is advanced, and the message is
in the engine's message buffer. Hot path: see docs/journeys.md before adding anything.

Sources: docs/spec/routing.md §7, §8.
"""

from collections.abc import Callable

from router.core.addresses import LiveAddress
from router.core.budget import Charge
from router.core.copies import Copies, DecidedCopy
from router.core.fallback import fall_back
from router.core.in_links import InLink, take_in_process
from router.core.links import Origin, Queued
from router.core.out_links import OutLink
from router.core.outcomes import ACCEPTED, MODIFIED, RELEASED, effective
from router.core.selection import AnonymousInLink, least_loaded, next_in_turn
from router.core.weights import LARGE_BYTES
from router.values import Handle


def forward_balanced(link: InLink, address: LiveAddress, delivery: Handle, size: int) -> None:
    """Forwards to the receiver with the fewest queued or unsettled deliveries. Idle receivers take turns."""
    if link.inspect is not None and (size := link.inspect(delivery, size)) < 0:
        return
    out_links = address.out_links
    if not out_links:
        deliver_in_process(link, address, delivery, size)
        return
    out = out_links[0] if len(out_links) == 1 else least_loaded(address)
    link.delivery_count += 1
    if link.is_settled(delivery):
        _give_settled(link, out, delivery, size)
    elif out.room > 0 and out.compose is None and not out.sends_settled:
        out.room -= 1
        out.delivery_count += 1
        out.load += 1
        work = link.work
        outgoing = out.send(size)
        out.unsettled[outgoing] = (link, delivery, work.now_s)
        if size > LARGE_BYTES:
            out.weigh(outgoing, size)
        work.touched.add(out.engine)
    else:
        _give(link, link, out, delivery, size)


def forward_closest(link: InLink, address: LiveAddress, delivery: Handle, size: int) -> None:
    """Forwards to in-process consumers first, then to local receivers in turn, whatever their load or credit."""
    if link.inspect is not None and (size := link.inspect(delivery, size)) < 0:
        return
    if address.subscribers or not address.out_links:
        deliver_in_process(link, address, delivery, size)
        return
    out = next_in_turn(address)
    link.delivery_count += 1
    if link.is_settled(delivery):
        _give_settled(link, out, delivery, size)
    else:
        _give(link, link, out, delivery, size)


def forward_multicast(link: InLink, address: LiveAddress, delivery: Handle, size: int) -> None:
    """Sends one copy to every receiver. The sender gets one merged outcome (routing §7.3)."""
    if link.inspect is not None and (size := link.inspect(delivery, size)) < 0:
        return
    spread(link, address, list(address.out_links), delivery, size)


def spread(link: InLink, address: LiveAddress, out_links: list[OutLink], delivery: Handle, size: int) -> None:
    """Sends a copy on each of these links, and to every in-process consumer.

    If there is neither, uses the fallback destination.
    """
    if not out_links and not address.subscribers:
        fall_back(link, address, delivery, size)
        return
    link.delivery_count += 1
    for subscriber in address.subscribers:
        address.delivered_in_process += 1
        subscriber(link.work.copy(size), link)
    is_settled = link.is_settled(delivery)
    since_s = link.work.now_s
    fanout: Fanout | None = None
    if is_settled:
        link.presettled += 1
        link.settle(delivery)
        link.owe()
    elif not out_links:
        link.on_accepted(delivery, since_s)
        return
    else:
        fanout = Fanout(link, delivery, since_s, len(out_links))
        if address.subscribers:
            fanout.outcome = ACCEPTED
    source = delivery if fanout is not None else None
    whole, shared = b"", Charge(link, size)
    for out in out_links:
        if out.compose is not None:
            payload = out.compose(link, size)
        else:
            payload = whole = whole or link.work.copy(size)
        is_alone = out.compose is not None or link.attachment.is_neighbour
        charge = charge_for(link, out, len(payload)) if is_alone else shared
        give_copy(fanout, out, source, since_s, payload, is_settled=is_settled, charge=charge)
    _check_credit(link)


def forward_anonymous(link: AnonymousInLink, _address: None, delivery: Handle, size: int) -> None:
    """Forwards to the address that the message names. `route` finds it, or has refused or released the message."""
    routed = link.route(delivery, size)
    if routed is None:
        return
    address, size = routed
    address.retired_ingress += 1
    address.forward(link, address, delivery, size)


def deliver_in_process(link: InLink, address: LiveAddress, delivery: Handle, size: int) -> None:
    """Gives the message to an in-process consumer, which always accepts.

    If there is none, uses the fallback destination.
    """
    if not address.subscribers:
        fall_back(link, address, delivery, size)
        return
    link.delivery_count += 1
    subscriber = address.subscribers[0]
    address.subscribers.rotate(-1)
    address.delivered_in_process += 1
    payload = link.work.copy(size)
    take_in_process(link, delivery)
    if not subscriber(payload, link) and link.is_open:
        link.owe()


def _payload(link: InLink | None, out: OutLink, size: int) -> bytes:
    return out.compose(link, size) if out.compose is not None else out.work.copy(size)


def _give(link: InLink, origin: Origin, out: OutLink, delivery: Handle, size: int) -> None:
    give_copy(origin, out, delivery, link.work.now_s, _payload(link, out, size), is_settled=False)
    _check_credit(link)


def _check_credit(link: InLink) -> None:
    """Makes sure that a sender which continues beyond its credit is dealt with at the end of the pass."""
    if link.wire.credit < 0:
        link.owe(0)


def _give_settled(link: InLink, out: OutLink, delivery: Handle, size: int) -> None:
    """Sends a presettled message. Its credit returns when it is written, so a slow receiver delays the sender."""
    link.presettled += 1
    link.settle(delivery)
    if out.room > 0 and out.compose is None:
        out.room -= 1
        out.delivery_count += 1
        out.presettled += 1
        out.settle(out.send(size))
        work = link.work
        work.touched.add(out.engine)
        if not link.owed:
            work.refill.append(link)
            work.touched.add(link.engine)
        link.owed += 1
    else:
        give_copy(link, out, None, link.work.now_s, _payload(link, out, size), is_settled=True)
        _check_credit(link)


def give_copy(
    origin: Origin | None,
    out: OutLink,
    source: Handle | None,
    since_s: int,
    payload: bytes,
    *,
    is_settled: bool,
    charge: Charge | None = None,
) -> None:
    """Sends now if the link has room, else queues.

    charge  for what is queued; None: the charge of one copy
    """
    if out.room <= 0 and not out.queue:
        # If messages wait, the room is calculated whenever the link may have more.
        out.make_room()
    if out.room > 0:
        out.room -= 1
        out.work.touched.add(out.engine)
        out.send_payload(origin, source, since_s, payload, is_settled=is_settled)
        return
    if charge is None:
        charge = charge_for(origin if isinstance(origin, InLink) else None, out, len(payload))
    if charge.payer is out and (level := out.attachment.account.level_without_room(charge.size)) is not None:
        out.refuse(origin, source, since_s, level)
    else:
        out.enqueue(Queued(origin, source, since_s, payload, is_settled, charge))


def charge_for(link: InLink | None, out: OutLink, size: int) -> Charge:
    """Returns the charge for a message that may wait. Its sender pays, or the local receiver if a router sent it.

    link  the link that it arrived on; None: it is the router's own, for which the receiver pays
    """
    if link is None:
        return Charge(out.attachment.account, size)
    return Charge(out if link.attachment.is_neighbour and not out.attachment.is_trunk else link, size)


class Fanout(Copies):
    """The copies of one unsettled multicast message that has arrived completely."""

    __slots__ = ()

    def on_accepted(self, source: Handle, since_s: int) -> None:
        self.conclude(ACCEPTED)

    def on_outcome(self, source: Handle, since_s: int, state: int, outgoing: Handle) -> None:
        self.conclude(effective(state))

    def on_progress(
        self, source: Handle, state: int, outgoing: Handle, settle: Callable[[Handle], None]
    ) -> DecidedCopy | None:
        if state < ACCEPTED:
            return None
        copy = DecidedCopy(self, outgoing, settle)
        return copy if self.decide(copy, effective(state)) else None

    def on_lost(self, source: Handle, since_s: int, *, was_sent: bool) -> None:
        self.conclude(MODIFIED if was_sent else RELEASED)

    def forgo(self, state: int, since_s: int) -> None:
        self.on_sender_settled()
