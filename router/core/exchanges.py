"""Exchanges: copy messages of one address to other addresses, by their subjects. Source: docs/spec/routing.md §18.

A message passes one exchange. Its copies go to receivers of the next hops, never to another exchange. This module
ensures that on this router. Other routers recognise a copy by a node that appears twice in a row in its trace.
Connections between an edge and an interior have no traces, so an edge gives messages from its uplink only to its own
clients.

Addresses without an exchange have no extra cost: an exchange replaces the address's `forward`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Protocol

from policy.addressing.address import FALLBACK_PHASE, Address, phase_in
from router.core.addresses import AddressTable, Forward, LiveAddress
from router.core.budget import Charge
from router.core.forward import Fanout, charge_for, give_copy
from router.core.in_links import Annotations, InLink, Redirected
from router.core.links import Origin
from router.core.network import Network
from router.core.out_links import OutLink
from router.core.remotes import DataOutLink
from router.core.selection import hops
from router.core.streaming_links import LargeOutLink
from router.core.subjects import MatchMethod, Subjects
from router.core.uplink import Uplink
from router.values import Handle

# The limit of one exchange. Attack: one message becomes a copy for each next hop, all made in one turn.
MAX_NEXT_HOPS: Final = 1000

Copies = list[tuple[OutLink, bytes]]


class Home(Protocol):
    """The core (router.core.core)."""

    @property
    def router_id(self) -> str: ...
    @property
    def table(self) -> AddressTable: ...
    @property
    def network(self) -> Network | None: ...
    @property
    def uplink(self) -> Uplink | None: ...
    @property
    def on_changed(self) -> Callable[[LiveAddress], None]: ...
    def grant_all(self, address: LiveAddress, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Hop:
    """A destination of copies."""

    address: Address
    phase: int

    @property
    def key(self) -> str:
        return self.address.key_in(self.phase)


@dataclass(slots=True, kw_only=True, eq=False)
class Binding:
    """Connects a subject pattern with a next hop.

    pattern  that the subject of a message matches
    """

    pattern: str
    hop: Hop
    matched: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class Terms:
    """The configuration of an exchange, and its counters.

    alternate  gets messages that have no other destination
    received   messages that clients and other routers sent
    forwarded  messages that had a destination, which may be the alternate
    """

    at: Hop
    alternate: Hop | None
    method: MatchMethod
    received: int = 0
    dropped: int = 0
    forwarded: int = 0
    diverted: int = 0
    bindings: dict[Binding, None] = field(default_factory=dict)
    hops: dict[str, int] = field(default_factory=dict)  # the number of bindings, by the key of their next hop


class Exchange:
    """The exchange of one address.

    base  forwards messages that have passed an exchange, as if there were none here. The address table sets it
    """

    def __init__(self, core: Home, terms: Terms, subject_of: Callable[[int], str | None]) -> None:
        """Sets up an exchange that is not yet open.

        subject_of  (bytes) → the subject of the message in the buffer
        """
        self._core = core
        self._node = f"0/{core.router_id}"
        self._subject_of = subject_of
        self._subjects: Subjects[Binding] = Subjects(terms.method)
        self.terms = terms
        self.base: Forward = _nowhere
        self._live: LiveAddress

    # Life

    def open(self) -> None:
        """Opens the exchange: it gets all messages to its address from now on."""
        core, terms = self._core, self.terms
        live = self._live = core.table.hold(terms.at.address, terms.at.phase)
        is_first = not live.out_links
        live.exchange = self
        core.table.choose_forward(live)
        if core.network is not None and is_first:
            core.network.local_appeared(live)
        core.grant_all(live)
        core.on_changed(live)

    def close(self) -> None:
        """Closes the exchange. Messages are then forwarded without it, and earlier ones continue."""
        core, terms, live = self._core, self.terms, self._live
        live.exchange = None
        core.table.choose_forward(live)
        if core.network is not None and not live.out_links:
            core.network.local_gone(live)
        core.table.let_go(terms.at.address, terms.at.phase)
        core.on_changed(live)

    def is_valid(self, pattern: str) -> bool:
        return self._subjects.is_valid(pattern)

    def has_room_for(self, hop: Hop) -> bool:
        return hop.key in self.terms.hops or len(self.terms.hops) < MAX_NEXT_HOPS

    def bind(self, binding: Binding) -> None:
        key = binding.hop.key
        self.terms.bindings[binding] = None
        self.terms.hops[key] = self.terms.hops.get(key, 0) + 1
        self._subjects.add(binding.pattern, binding)

    def unbind(self, binding: Binding) -> None:
        key = binding.hop.key
        del self.terms.bindings[binding]
        self.terms.hops[key] -= 1
        if not self.terms.hops[key]:
            del self.terms.hops[key]
        self._subjects.remove(binding.pattern, binding)

    # Messages

    def forward(self, link: InLink, address: LiveAddress, delivery: Handle, size: int) -> None:
        """Forwards a message that has arrived completely."""
        if link.inspect is not None and (size := link.inspect(delivery, size)) < 0:
            return
        copies = self.copies(link, size, is_streamed=False)
        if copies is None:
            inspect, link.inspect = link.inspect, None  # it has been inspected
            try:
                self.base(link, address, delivery, size)
            finally:
                link.inspect = inspect
        elif copies:
            _spread(link, copies, delivery)
        else:
            link.release_undeliverable(delivery)

    def copies(self, link: InLink, size: int, *, is_streamed: bool) -> Copies | None:
        """Returns the links that get the inspected message in the buffer, each with its payload.

        Returns None if the message has passed an exchange. It is then forwarded as without this one.
        """
        taken, terms = link.annotations, self.terms
        if taken is not None and any(one == other for one, other in pairwise(taken.trace)):
            return None
        terms.received += 1
        picked = _Picked(link, size)
        try:
            self._pick_direct(picked, taken, is_streamed=is_streamed)
            for hop in self._matched(size):
                self._pick(picked, hop, is_streamed=is_streamed)
            if not picked.copies and terms.alternate is not None:
                self._pick(picked, terms.alternate, is_streamed=is_streamed)
                terms.diverted += bool(picked.copies)
            terms.forwarded += bool(picked.copies)
        finally:
            link.annotations = taken
        if is_streamed and picked.has_one_twice:
            # The second copy would wait for the end of the first, and the first for a place for the second.
            picked.give_back()
            picked.copies.clear()
        if not picked.copies:
            terms.dropped += 1
        return picked.copies

    def _matched(self, size: int) -> Iterator[Hop]:
        """Iterates over the next hops of the message in the buffer, each once."""
        if not self.terms.bindings:
            return
        subject = self._subject_of(size)
        if subject is None:
            return
        seen: set[str] = set()
        for binding in self._subjects.find(subject):
            binding.matched += 1
            if binding.hop.key not in seen:
                seen.add(binding.hop.key)
                yield binding.hop

    def _pick_direct(self, picked: "_Picked", taken: Annotations | None, *, is_streamed: bool) -> None:
        """Picks receivers of the exchange's own address, by its distribution. On an edge only the receivers here."""
        live, link = self._live, picked.link
        if self._core.uplink is not None:
            found = _here(live)
        elif live.out_links or live.remotes:
            found = hops(live, link, picked.size, is_streamed=is_streamed)
        else:
            return
        passed = Redirected(
            to=live.key[2:],
            phase=phase_in(live.key),
            ingress=taken.ingress if taken is not None else None,
            trace=(*(taken.trace if taken is not None else ()), self._node),
            reply_to=taken.reply_to if taken is not None else None,
        )
        for out in found:
            picked.add(out, passed if isinstance(out, DataOutLink) else taken)

    def _pick(self, picked: "_Picked", hop: Hop, *, is_streamed: bool) -> None:
        """Picks receivers of a next hop, by its distribution. Each copy enters the network here."""
        link, phase = picked.link, hop.phase
        live = self._core.table.addresses.get(hop.key)
        if live is not None and live.fallback is not None and not live.has_own_path:
            live, phase = live.fallback, FALLBACK_PHASE
        reply_to = link.annotations.reply_to if link.annotations is not None else None
        here = Redirected(to=hop.address.name, phase=phase, ingress=None, trace=(), reply_to=reply_to)
        away = Redirected(to=hop.address.name, phase=phase, ingress=None, trace=(self._node,), reply_to=reply_to)
        uplink = self._core.uplink
        origin = link if uplink is not None else None
        found = hops(live, origin, picked.size, is_streamed=is_streamed) if live is not None else []
        if phase == FALLBACK_PHASE and live is not None and live.main is not None and found:
            live.main.redirected += 1
            link.redirected += 1
        if uplink is not None and not link.attachment.is_edge and (up := uplink.link) is not None:
            is_copied_up = live is not None and live.distribution == "multicast" and not live.edges
            if not found or (is_copied_up and up not in found):
                found.append(up)
        for out in found:
            picked.add(out, away if isinstance(out, DataOutLink) else here)


class _Picked:
    """The copies of one message, which is in the buffer."""

    __slots__ = ("_whole", "copies", "link", "size")

    def __init__(self, link: InLink, size: int) -> None:
        self.link = link
        self.size = size
        self.copies: Copies = []
        self._whole = b""

    def add(self, out: OutLink, annotations: Annotations | None) -> None:
        if out.compose is not None:
            self.link.annotations = annotations
            payload = out.compose(self.link, self.size)
        else:
            payload = self._whole = self._whole or self.link.work.copy(self.size)
        self.copies.append((out, payload))

    @property
    def has_one_twice(self) -> bool:
        return len({out for out, _ in self.copies}) < len(self.copies)

    def give_back(self) -> None:
        """Returns the links that were reserved for copies of a message that streams."""
        for out, _ in self.copies:
            if isinstance(out, DataOutLink) and out.slot is None:
                out.trunk.streaming.rest(out)
            elif isinstance(out, LargeOutLink):
                out.home.rest(out)


def _here(live: LiveAddress) -> list[OutLink]:
    """Returns an edge's own clients among the receivers: all for multicast, else the least loaded."""
    found = [out for out in live.out_links if not out.attachment.is_edge]
    if live.distribution == "multicast" or len(found) < 2:
        return found
    return [min(found, key=lambda out: out.load)]


def _spread(link: InLink, copies: Copies, delivery: Handle) -> None:
    """Sends the copies.

    The sender gets one combined outcome, as for a multicast (routing §7.3), and pays for what waits.
    """
    link.delivery_count += 1
    since_s, is_settled = link.work.now_s, link.is_settled(delivery)
    origin: Origin | None = None
    if is_settled:
        link.presettled += 1
        link.settle(delivery)
        link.owe()
    else:
        origin = link if len(copies) == 1 else Fanout(link, delivery, since_s, len(copies))
    source = delivery if origin is not None else None
    charges: dict[int, Charge] = {}  # for payloads without annotations, which share their bytes
    for out, payload in copies:
        charge = charges.get(id(payload))
        if charge is None:
            charge = charge_for(link, out, len(payload))
            if charge.payer is link:
                charges[id(payload)] = charge
        give_copy(origin, out, source, since_s, payload, is_settled=is_settled, charge=charge)
    if link.wire.credit < 0:
        link.owe(0)


def _nowhere(_link: InLink, _address: LiveAddress, _delivery: Handle, _size: int) -> None:
    raise AssertionError("a message came before the exchange was opened")
