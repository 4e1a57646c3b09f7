"""The sessions and links of one peer. The policy gate checks each of them; only admitted ones reach the core.

Sources: docs/spec/routing.md §5; docs/spec/policy-and-auth.md §3.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from policy.addressing.address import FALLBACK_PHASE, Address, Unclear
from router.admission.candidate import ConnectionShadow
from router.admission.connection_gate import ConnectionGate, Direction, LinkRequest, Refusal
from router.amqp.engine import Engine, IncomingWire, OutgoingWire, Session, SessionOwner
from router.amqp.terminus import Condition, Terminus, describe
from router.connection.inspection import condition_of, target_of, wire_of
from router.connection.peer_messages import PeerMessages
from router.connection.routed_links import RoutedLinks, is_routed_dynamic
from router.connection.surroundings import Surroundings
from router.connection.terms import DEFAULT_SESSION_BYTES, ConnectionTerms
from router.core.attachments import Attachment
from router.core.budget import Level
from router.core.in_links import InLink
from router.core.out_links import OutLink
from router.core.outcomes import UNKNOWN_TRANSACTION
from router.core.routed import RoutedIn, RoutedOut
from router.edge.interior import SERVICES, refused_lines
from router.effects import AuditStage, Log, Refused, log
from router.values import Handle

ROUTER_CAPABILITIES: Final = frozenset(("qd.router", "qd.router-data", "qd.router-edge-downlink"))
# Address keys of the services that routers have for edges.
SERVICE_KEYS: Final = frozenset(f"M0{name}" for name in SERVICES)
# Capability on a dynamic terminus: the address is to be a topic. Every receiver gets its own copy (JMS TemporaryTopic).
_TEMPORARY_TOPIC: Final = "temporary-topic"
FORBIDDEN: Final = Condition(name="qd:forbidden", description="Connectivity to the node is forbidden")
# Capabilities on the terminus of a container that takes messages from senders and gives them to receivers. The value is
# the phase after the container: how many containers a message has passed.
_WAYPOINTS: Final = {"qd.waypoint": 1} | {f"qd.waypoint.{number}": number for number in range(1, 10)}
# Capability of a link that gets an address's messages while the address has no other receiver.
_FALLBACK: Final = "qd.fallback"
# Capability on the source of a subscription that several receivers share.
_SHARED: Final = "shared"
# Without this refusal each receiver would get its own copy, although the client relies on only one of them getting it.
NOT_SHARED: Final = Condition(
    name="amqp:not-implemented", description="no link route has this address: only a broker shares subscriptions"
)
# Ends the other links of a dynamic address when the link that made the address is gone.
_ADDRESS_GONE: Final = Condition(name="amqp:resource-deleted", description="the dynamic address is gone")
_LINK_OVER_CREDIT: Final = Condition(
    name="amqp:link:transfer-limit-exceeded", description="more messages than credit was granted for"
)

Wire = IncomingWire | OutgoingWire


class PeerLinks:
    """Attaches, counts and drops the links of one connection.

    keeps_names  the peer is a router, which has already made the names of links unique
    """

    keeps_names = False

    def __init__(
        self,
        terms: ConnectionTerms,
        gate: ConnectionGate,
        surroundings: Surroundings,
        engine: Engine,
        attachment: Attachment,
        messages: PeerMessages,
        resolve: Callable[[str], Address | Unclear],
        shut: Callable[[], None],
    ) -> None:
        """resolve  returns the address that the peer means by a text
        shut     writes pending frames, then closes the socket
        """
        self.terms = terms
        self.gate = gate
        self.core = surroundings.core
        self.engine = engine
        self.attachment = attachment
        self.messages = messages
        self._emit = surroundings.emit
        self._resolve = resolve
        self._shut = shut
        self.container = ""  # the container id of the peer
        self.routed = RoutedLinks(self, surroundings.link_routes)
        self._reads_out = False  # read what has come on the links while the connection closes

    @property
    def user(self) -> str | None:
        """The user name of the login; None for an anonymous peer."""
        return self.gate.identity.login

    @property
    def resolve(self) -> Callable[[str], Address | Unclear]:
        """Returns the address that the peer means by a text."""
        return self._resolve

    def come_apart(self) -> None:
        """Removes references back to the links of a connection that is gone. Called last."""
        del self.routed

    # Sessions

    def begin(self, session: Session) -> None:
        refusal = self._over_budget("begin", "AMQP Begin") or self.gate.begin()
        if refusal is not None:
            session.refuse(condition_of(refusal))
            return
        session.is_counted = True
        settings = self.gate.settings
        window = settings.max_session_window if settings is not None else 0
        most = self.attachment.account.session_bytes(len(self.engine.sessions))
        is_usual = not window and self.terms.session_bytes == DEFAULT_SESSION_BYTES
        session.grows = is_usual and not self.attachment.is_neighbour
        session.accept(incoming_capacity_bytes=min(window or self.terms.session_bytes, most))

    def end(self, session: Session) -> None:
        """Handles the peer's End: its links count no longer and get no more messages.

        A link that made its address stays whole until it is dropped, because other links end with it.
        """
        if session.is_counted:
            self.gate.end()
        leaving = []
        for wire in session.wires.values():
            if wire.is_counted:
                wire.is_counted = False
                self.gate.detach(direction_of(wire))
            link = wire.core
            if isinstance(link, OutLink) and not self._is_maker(link):
                leaving.append(link)
        self.core.cut_off(leaving)

    def end_session(self, session: Session, refusal: Refusal) -> None:
        """Ends a session that policy denies now, together with its links."""
        for wire in list(session.wires.values()):
            _take_no_more(wire)
            self.drop(wire, "Link closed with its session")
        session.is_counted = False
        self.gate.end()
        session.close(condition_of(refusal))
        self._touch()

    # Attach

    def attach(self, wire: Wire) -> None:
        source, target = wire.source, wire.target
        is_sender = isinstance(wire, IncomingWire)
        terminus = target if is_sender else source
        if terminus is not None and not ROUTER_CAPABILITIES.isdisjoint(terminus.capabilities):
            self.attach_router(wire, terminus)
            return
        address = self._address_of(terminus)
        if isinstance(address, Address) and address.key in SERVICE_KEYS and not is_routed_dynamic(terminus):
            self.attach_service(wire, address)
            return
        over = self._over_budget("attach", "AMQP Attach")
        request = request_of(wire, terminus, address, may_be_dynamic=may_be_dynamic(self.gate))
        refusal = over or self._shut_out(wire, address) or self.gate.attach(request)
        if refusal is not None:
            wire.refuse(condition_of(refusal))
            return
        assert not isinstance(address, Unclear)  # an Unclear address is refused, with or without policy
        wire.named = address
        wire.is_counted = True
        settings = self.gate.settings
        limit = settings.max_message_size if settings is not None else 0
        if not self.routed.take(wire, terminus, address, limit_bytes=limit):
            self.attach_here(wire)

    def attach_here(self, wire: Wire) -> None:
        """Binds an admitted link to an address of this router."""
        if isinstance(wire, IncomingWire):
            self._attach_sender(wire, wire.target)
        else:
            self._attach_receiver(wire, wire.source)
        self.log_attached(wire)

    def attach_router(self, wire: Wire, terminus: Terminus) -> None:
        """Refuses a link that only routers may have between each other."""
        self._record_forbidden()
        wire.refuse(FORBIDDEN)

    def attach_service(self, wire: Wire, address: Address) -> None:
        """Refuses a link to a service that routers offer only to edges (network §15.1)."""
        self.record_forbidden("Edge service forbidden", refused_lines(address.name, self.container))
        wire.refuse(None)

    def _address_of(self, terminus: Terminus | None) -> Address | Unclear | None:
        """Returns the address that the terminus names.

        None if the terminus has no address, or is dynamic and names no link route whose container makes the address.
        """
        if terminus is None:
            return None
        text = terminus.routed_as if terminus.is_dynamic else terminus.address or None
        return self._resolve(text) if text is not None else None

    def _shut_out(self, wire: Wire, address: Address | Unclear | None) -> Refusal | None:
        """Refuses a link that leads into the router itself on a connection without that right."""
        if self.terms.reaches_in_process or not isinstance(address, Address):
            return None
        if not (address.is_management or self.core.is_in_process(address)):
            return None
        return self.gate.refuse_in_process(direction_of(wire), address.written, link_name=wire.name)

    def _attach_sender(self, wire: IncomingWire, target: Terminus | None) -> None:
        dynamic = None
        if target is not None and target.is_dynamic:
            wire.named = dynamic = self.core.dynamic_address(is_source=False)
        else:
            is_coordinator = target is not None and target.is_coordinator
            unroutable = self.core.check_target(wire.named, is_coordinator=is_coordinator)
            if unroutable is not None:
                wire.refuse(unroutable)
                return
        settings = self.gate.settings
        limit = settings.max_message_size if settings is not None else 0
        wire.accept(dynamic_address=dynamic.written if dynamic is not None else None, max_message_bytes=limit)
        link = self.core.add_in_link(
            wire,
            self.attachment,
            wire.named,
            is_dynamic=dynamic is not None,
            is_topic=_is_topic(target),
            phase=_phase(target, is_sender=True),
        )
        self.limit_in(link)
        self.messages.choose_inspection(link)

    def limit_in(self, link: InLink) -> None:
        """Installs the handlers that end a sender's link, or its connection, when it breaks a limit."""
        link.on_oversize = lambda delivery, size, before: self._on_oversize(link, delivery, size, before)
        link.on_over_credit = lambda: self._on_over_credit(link)
        link.on_stalled = partial(self._on_stalled_message, link)
        link.on_foreign = self._foreign(link)

    def limit_out(self, link: OutLink) -> None:
        link.on_stalled = lambda seconds: self._on_stalled_receiver(link, seconds)
        link.on_foreign = self._foreign(link)

    def _foreign(self, link: InLink | OutLink) -> Callable[[], None] | None:
        """Returns a function that ends a link whose peer names an unknown transaction; None for other routers."""

        def end() -> None:
            if link.is_open:
                self.end_link(wire_of(link), UNKNOWN_TRANSACTION, is_peers_doing=True)

        return None if self.attachment.is_neighbour else end

    def _attach_receiver(self, wire: OutgoingWire, source: Terminus | None) -> None:
        dynamic = None
        if source is not None and source.is_dynamic:
            wire.named = dynamic = self.core.dynamic_address(is_source=True)
        unroutable = self.core.check_source(wire.named)
        if unroutable is None and source is not None and _SHARED in source.capabilities and self.routed.offers_sharing:
            unroutable = NOT_SHARED
        if unroutable is not None:
            wire.refuse(unroutable)
            return
        assert wire.named is not None  # without a name it would be unroutable
        wire.accept(dynamic_address=dynamic.written if dynamic is not None else None)
        link = self.core.add_out_link(
            wire,
            self.attachment,
            wire.named,
            is_dynamic=dynamic is not None,
            is_topic=_is_topic(source),
            phase=_phase(source, is_sender=False),
        )
        self.limit_out(link)
        self.messages.choose_composition(link)

    # Detach

    def detached(self, wire: Wire, *, is_closed: bool) -> None:
        """Handles the peer's Detach."""
        if isinstance(wire.core, OutLink):
            wire.core.drop_unsent()
        self.routed.end(wire, is_closed=is_closed)
        self._drop(wire, "Link detached")

    def forget_routed(self, wire: Wire) -> None:
        """Forgets a routed link that has ended; it counts no longer."""
        self.routed.forget(wire)
        self.drop(wire, "Link detached")

    def drop(self, wire: Wire, why: str) -> None:
        """Ends the accounting of a link, whichever side ended it."""
        self.routed.end(wire, is_closed=None)
        self._drop(wire, why)

    def _drop(self, wire: Wire, why: str) -> None:
        """Forgets the link, however it ended: its wire is not used again."""
        link = wire.core
        if isinstance(link, InLink | OutLink):
            self._remove(link, why)
        if wire.is_counted:
            wire.is_counted = False
            self.gate.detach(direction_of(wire))

    def _remove(self, link: InLink | OutLink, why: str) -> None:
        """Removes the link from the core.

        With policy enabled, the dynamic address that was made for it ends as well.
        """
        address = self.core.table.bound(link)
        is_maker = self._is_maker(link)
        self.core.remove_link(link)
        self._log_end(link, why)
        if is_maker and address is not None and self.gate.gate.ruleset.is_enabled:
            for other in [other for other in address.out_links if other.attachment is self.attachment]:
                self.end_link(wire_of(other), _ADDRESS_GONE, is_peers_doing=True)

    def _is_maker(self, link: InLink | OutLink) -> bool:
        """Returns True if the link's address was made for this link."""
        address = self.core.table.bound(link)
        return address is not None and address.made_by is link

    def begin_own(self, owner: SessionOwner) -> Session:
        """Begins a session of our own with a router. Errors: CannotBegin"""
        most = self.attachment.account.session_bytes(len(self.engine.sessions) + 1)
        return self.engine.begin_session(owner, incoming_capacity_bytes=min(self.terms.session_bytes, most))

    def close_own(self, link: OutLink) -> None:
        """Detaches a link that this router began, whatever it carries."""
        wire = wire_of(link)
        self.drop(wire, "Link detached")
        wire.close(is_peers_doing=False)
        self._touch()

    def end_link(self, wire: Wire, condition: Condition, *, is_peers_doing: bool = False) -> None:
        _take_no_more(wire)
        self.drop(wire, "Link detached")
        wire.close(condition, is_peers_doing=is_peers_doing)
        self._touch()

    def take_no_more(self) -> None:
        """Stops forwarding messages that have already come on any link."""
        for wire in self.engine.links.values():
            _take_no_more(wire)

    def cut_off(self) -> "list[InLink | OutLink]":
        """Stops new messages to and from this connection because it is closing.

        Messages that have already come are kept.

        Returns the links, each to be given to `losing`.
        """
        # What has come is not read if it is the reason why the connection ended.
        self._reads_out = not self.engine.is_deaf
        self.routed.ask_no_more()
        in_links = [link for link in self.attachment.in_links if not _is_for_container(link)]
        out_links = [link for link in self.attachment.out_links if not _is_for_container(link)]
        self.core.cut_off(out_links)
        return [*in_links, *out_links]

    def losing(self, link: InLink | OutLink) -> Iterator[None]:
        """Removes a link together with its connection, in steps: many of its messages may wait for a byte budget."""
        try:
            if self._reads_out and isinstance(link, InLink):
                yield from link.wire.reading_out()
        finally:
            if isinstance(link, InLink):
                link.wire.take_no_more()
            self.lose(link)

    def losing_routed(self) -> Iterator[Iterator[None]]:
        """Returns the same steps for each link that is routed to a container."""
        return self.routed.losing(reads_out=self._reads_out)

    def lose(self, link: InLink | OutLink) -> None:
        """Removes the link after every message on it has been taken."""
        self.core.remove_link(link)
        self._log_end(link, "Link closed due to connection loss")

    # Limits

    def _over_budget(self, stage: AuditStage, what: str) -> Refusal | None:
        """Refuses anything new on a connection that is held back by a byte budget."""
        level = next(iter(self.attachment.account.behind), None)
        return self.refuse_over_budget(level, stage, what) if level is not None else None

    def refuse_over_budget(self, level: Level, stage: AuditStage, what: str) -> Refusal:
        budget = f"{level.kind}ByteBudget" + (f" of '{level.name}'" if level.name else "")
        return self.gate.refuse_over_budget(stage, what, budget=budget, limit=level.limit, held=level.held)

    def _on_oversize(self, link: InLink, delivery: Handle, size: int, before: int) -> bool:
        """Handles a message that grew past the watched size. Returns True if the message is refused.

        A refusal has the three levels of policy §3.10: reject the message, detach the link, close the connection.
        """
        refusal = self.gate.refuse_size(size, before, link.identity, target_of(link))
        if refusal is None:
            return False
        link.wire.abort_stream()  # first, because closing the link would send the rest of the message to the receivers
        is_partial = link.wire.is_partial(delivery)
        link.refuse(delivery, condition_of(refusal))
        link.wire.tell_outcome()
        if is_partial:
            link.settle(delivery)  # although the router does not read the rest of it
        wire_of(link).close()
        self.engine.stop_listening()
        self.engine.close(Condition(name="amqp:connection:forced", description=refusal.description))
        self._touch()
        self._shut()
        return True

    def _on_over_credit(self, link: InLink) -> None:
        """Closes the link of a sender that ignores its credit and would fill our memory."""
        wire = wire_of(link)
        _take_no_more(wire)
        self._remove(link, "Link detached")
        wire.close(_LINK_OVER_CREDIT)
        self._touch()

    def _on_stalled_message(self, link: InLink, seconds: float, holds_up_others: bool) -> None:
        """Rejects an unfinished message that makes no progress or delays other messages, and closes its link."""
        wire = wire_of(link)
        assert isinstance(wire, IncomingWire)
        refusal = self.gate.give_up_message(seconds, link.identity, target_of(link), holds_up_others=holds_up_others)
        condition = condition_of(refusal)
        wire.give_up(condition)
        self.end_link(wire, condition, is_peers_doing=True)

    def _on_stalled_receiver(self, link: OutLink, seconds: float) -> None:
        """Closes the link of a receiver that takes nothing of an unfinished message."""
        wire = wire_of(link)
        address = wire.named.written if wire.named is not None else None
        condition = condition_of(self.gate.give_up_receiver(seconds, link.identity, address))
        link.break_off()
        self.end_link(wire, condition, is_peers_doing=True)

    def _touch(self) -> None:
        """Schedules a write of the engine."""
        self.core.work.touched.add(self.engine)

    # Logs

    def _record_forbidden(self) -> None:
        text = f"[C{self.attachment.connection_id}] Router attach forbidden on non-inter-router connection"
        self.record_forbidden("Router attach forbidden", (Log(module="ROUTER_CORE", level="info", text=text),))

    def record_forbidden(self, what: str, lines: tuple[Log, ...]) -> None:
        refused = Refused(stage="attach", facts=self.gate.facts(), lines=lines, what=what)
        self.gate.gate.folding.record(refused)

    def _log_link(self, link: InLink | OutLink, text: str) -> None:
        log(self._emit, "ROUTER_CORE", "info", f"[C{self.attachment.connection_id}][L{link.identity}] {text}")

    def log_warning(self, text: str) -> None:
        log(self._emit, "ROUTER_CORE", "warning", f"[C{self.attachment.connection_id}] {text}")

    def log_attached(self, wire: Wire) -> None:
        if isinstance(wire.core, InLink | OutLink):
            way, source, target = "in" if isinstance(wire, IncomingWire) else "out", wire.source, wire.target
            self._log_link(wire.core, f"Link attached: dir={way} source={describe(source)} target={describe(target)}")

    def _log_end(self, link: InLink | OutLink, why: str) -> None:
        self._log_link(
            link,
            f"{why}: del={link.delivery_count} presett={link.presettled} psdrop={link.dropped_presettled} "
            f"acc={link.accepted} rej={link.rejected} rel={link.released} mod={link.modified} "
            f"delay1={link.delayed_1s} delay10={link.delayed_10s} blocked=no",
        )


def _is_for_container(link: InLink | OutLink) -> bool:
    """Returns True if the peer attached this link and a container serves it. `RoutedLinks` ends such a link."""
    return isinstance(link, RoutedIn | RoutedOut) and not link.is_own


def _take_no_more(wire: Wire) -> None:
    """Stops forwarding messages that have already come on the link."""
    if isinstance(wire, IncomingWire):
        wire.take_no_more()


def _is_topic(terminus: Terminus | None) -> bool:
    return terminus is not None and _TEMPORARY_TOPIC in terminus.capabilities


def _phase(terminus: Terminus | None, *, is_sender: bool) -> int | None:
    """Returns the phase that the peer asks for as a waypoint or fallback destination; None if it is neither."""
    capabilities = terminus.capabilities if terminus is not None else ()
    if _FALLBACK in capabilities:
        return FALLBACK_PHASE
    waypoint = next((_WAYPOINTS[each] for each in capabilities if each in _WAYPOINTS), None)
    return waypoint if is_sender or waypoint is None else waypoint - 1


def direction_of(wire: Wire) -> Direction:
    return "send" if isinstance(wire, IncomingWire) else "receive"


def request_of(
    wire: Wire, terminus: Terminus | None, address: Address | Unclear | None, *, may_be_dynamic: bool = True
) -> LinkRequest:
    """Builds the question to policy about a link. If a container makes the node, the question has that address.

    may_be_dynamic  the connection has the right to dynamic sources. If not, a receiver's question is about that right
    """
    direction = direction_of(wire)
    if terminus is None:
        return LinkRequest(direction=direction, address=address, link_name=wire.name)
    is_dynamic = terminus.is_dynamic
    if is_routed_dynamic(terminus):
        is_dynamic = direction == "receive" and not may_be_dynamic
        address = None if is_dynamic else address
    return LinkRequest(
        direction=direction,
        address=address,
        link_name=wire.name,
        is_dynamic=is_dynamic,
        is_coordinator=terminus.is_coordinator,
        capabilities=terminus.capabilities,
    )


def may_be_dynamic(governed: ConnectionGate | ConnectionShadow) -> bool:
    """Returns True if the client may have addresses made for its receivers."""
    return governed.settings is None or governed.settings.allow_dynamic_source


def request_again(wire: Wire, *, may_be_dynamic: bool) -> LinkRequest:
    """Builds the question to policy about an open link, from its bound address.

    may_be_dynamic  see `request_of`
    """
    terminus = wire.target if isinstance(wire, IncomingWire) else wire.source
    is_made = terminus is not None and terminus.is_dynamic and not is_routed_dynamic(terminus)
    return request_of(wire, terminus, None if is_made else wire.named, may_be_dynamic=may_be_dynamic)
