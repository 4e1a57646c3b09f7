"""The sessions and links of one peer: each passes the gate first; only admitted ones reach the core.

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
# The services of routers for edges, by the keys of their addresses.
SERVICE_KEYS: Final = frozenset(f"M0{name}" for name in SERVICES)
# On a dynamic terminus: the address is to be a topic, whose every receiver gets its copy (JMS TemporaryTopic).
_TEMPORARY_TOPIC: Final = "temporary-topic"
FORBIDDEN: Final = Condition(name="qd:forbidden", description="Connectivity to the node is forbidden")
# On the terminus of a container that takes messages from senders and gives them to receivers: the phases between which
# it stands, by how many containers are before it.
_WAYPOINTS: Final = {"qd.waypoint": 1} | {f"qd.waypoint.{number}": number for number in range(1, 10)}
# Of what gets an address's messages while nobody else receives them.
_FALLBACK: Final = "qd.fallback"
# On the source of a subscription that several receivers share.
_SHARED: Final = "shared"
# Each would get its copy, where the client relies on one of them getting it.
NOT_SHARED: Final = Condition(
    name="amqp:not-implemented", description="no link route has this address: only a broker shares subscriptions"
)
# Ends the other links of a dynamic address when the link that it was made for is gone.
_ADDRESS_GONE: Final = Condition(name="amqp:resource-deleted", description="the dynamic address is gone")
_LINK_OVER_CREDIT: Final = Condition(
    name="amqp:link:transfer-limit-exceeded", description="more messages than credit was granted for"
)

Wire = IncomingWire | OutgoingWire


class PeerLinks:
    """Attaches, counts and drops the links of one connection.

    keeps_names  the peer is a router, which has made the names of links unique
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
        """resolve  the address that the peer means by a text
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
        self._reads_out = False  # what has come on the links, as the connection goes

    @property
    def user(self) -> str | None:
        """Who has logged in; None: an anonymous peer."""
        return self.gate.identity.login

    @property
    def resolve(self) -> Callable[[str], Address | Unclear]:
        """The address that the peer means by a text."""
        return self._resolve

    def come_apart(self) -> None:
        """Let go of what refers back to the links of a connection that is gone, at the very end."""
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
        """The peer has ended the session. Of links that it still has no more is to be heard, and they count no longer.

        One whose address was made for it stays whole until it is dropped: others end with it.
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
        """End a session that is denied by now, and its links with it."""
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
        assert not isinstance(address, Unclear)  # refused, with or without policy
        wire.named = address
        wire.is_counted = True
        settings = self.gate.settings
        limit = settings.max_message_size if settings is not None else 0
        if not self.routed.take(wire, terminus, address, limit_bytes=limit):
            self.attach_here(wire)

    def attach_here(self, wire: Wire) -> None:
        """Bind an admitted link to an address of this router."""
        if isinstance(wire, IncomingWire):
            self._attach_sender(wire, wire.target)
        else:
            self._attach_receiver(wire, wire.source)
        self.log_attached(wire)

    def attach_router(self, wire: Wire, terminus: Terminus) -> None:
        """A link as routers have among each other: no client has any."""
        self._record_forbidden()
        wire.refuse(FORBIDDEN)

    def attach_service(self, wire: Wire, address: Address) -> None:
        """A link to what routers have for edges alone (network §15.1)."""
        self.record_forbidden("Edge service forbidden", refused_lines(address.name, self.container))
        wire.refuse(None)

    def _address_of(self, terminus: Terminus | None) -> Address | Unclear | None:
        """None where the peer names no address, or wants one made, and not by a container whose link route it names."""
        if terminus is None:
            return None
        text = terminus.routed_as if terminus.is_dynamic else terminus.address or None
        return self._resolve(text) if text is not None else None

    def _shut_out(self, wire: Wire, address: Address | Unclear | None) -> Refusal | None:
        """Does a link lead into the router itself, on a connection that may not?"""
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
        """What a sender must not do costs it its link, or more."""
        link.on_oversize = lambda delivery, size, before: self._on_oversize(link, delivery, size, before)
        link.on_over_credit = lambda: self._on_over_credit(link)
        link.on_stalled = partial(self._on_stalled_message, link)
        link.on_foreign = self._foreign(link)

    def limit_out(self, link: OutLink) -> None:
        link.on_stalled = lambda seconds: self._on_stalled_receiver(link, seconds)
        link.on_foreign = self._foreign(link)

    def _foreign(self, link: InLink | OutLink) -> Callable[[], None] | None:
        """Ends a link whose peer has named a transaction that nobody here has; those of other routers stay."""

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
        """The peer detaches."""
        if isinstance(wire.core, OutLink):
            wire.core.drop_unsent()
        self.routed.end(wire, is_closed=is_closed)
        self._drop(wire, "Link detached")

    def forget_routed(self, wire: Wire) -> None:
        """A routed link is over: it counts no longer."""
        self.routed.forget(wire)
        self.drop(wire, "Link detached")

    def drop(self, wire: Wire, why: str) -> None:
        """The link is over, whichever side ended it: it counts no longer."""
        self.routed.end(wire, is_closed=None)
        self._drop(wire, why)

    def _drop(self, wire: Wire, why: str) -> None:
        """Forget the link, however it ended: its wire is used no more."""
        link = wire.core
        if isinstance(link, InLink | OutLink):
            self._remove(link, why)
        if wire.is_counted:
            wire.is_counted = False
            self.gate.detach(direction_of(wire))

    def _remove(self, link: InLink | OutLink, why: str) -> None:
        """The link is gone. A dynamic address that was made for it goes as well, where policy is on."""
        address = self.core.table.bound(link)
        is_maker = self._is_maker(link)
        self.core.remove_link(link)
        self._log_end(link, why)
        if is_maker and address is not None and self.gate.gate.ruleset.is_enabled:
            for other in [other for other in address.out_links if other.attachment is self.attachment]:
                self.end_link(wire_of(other), _ADDRESS_GONE, is_peers_doing=True)

    def _is_maker(self, link: InLink | OutLink) -> bool:
        """Was its address made for it?"""
        address = self.core.table.bound(link)
        return address is not None and address.made_by is link

    def begin_own(self, owner: SessionOwner) -> Session:
        """Begin a session of ours with a router. Errors: CannotBegin"""
        most = self.attachment.account.session_bytes(len(self.engine.sessions) + 1)
        return self.engine.begin_session(owner, incoming_capacity_bytes=min(self.terms.session_bytes, most))

    def close_own(self, link: OutLink) -> None:
        """Detach a link of ours, whatever it carries."""
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
        """Forward no more messages that have come on any link."""
        for wire in self.engine.links.values():
            _take_no_more(wire)

    def cut_off(self) -> "list[InLink | OutLink]":
        """The connection is going: at once nobody gets a message from it or by it, but for those that have come.

        Returns the links, each to be given to `losing`.
        """
        # What has come is not read where it is what ended the connection.
        self._reads_out = not self.engine.is_deaf
        self.routed.ask_no_more()
        in_links = [link for link in self.attachment.in_links if not _is_for_container(link)]
        out_links = [link for link in self.attachment.out_links if not _is_for_container(link)]
        self.core.cut_off(out_links)
        return [*in_links, *out_links]

    def losing(self, link: InLink | OutLink) -> Iterator[None]:
        """The link is gone with its connection: in steps, for many of its messages may wait behind a budget."""
        try:
            if self._reads_out and isinstance(link, InLink):
                yield from link.wire.reading_out()
        finally:
            if isinstance(link, InLink):
                link.wire.take_no_more()
            self.lose(link)

    def losing_routed(self) -> Iterator[Iterator[None]]:
        """The same for each link that goes on to a container."""
        return self.routed.losing(reads_out=self._reads_out)

    def lose(self, link: InLink | OutLink) -> None:
        """Every message that came on it has been taken."""
        self.core.remove_link(link)
        self._log_end(link, "Link closed due to connection loss")

    # Limits

    def _over_budget(self, stage: AuditStage, what: str) -> Refusal | None:
        """A connection that is held back for bytes gets nothing new."""
        level = next(iter(self.attachment.account.behind), None)
        return self.refuse_over_budget(level, stage, what) if level is not None else None

    def refuse_over_budget(self, level: Level, stage: AuditStage, what: str) -> Refusal:
        budget = f"{level.kind}ByteBudget" + (f" of '{level.name}'" if level.name else "")
        return self.gate.refuse_over_budget(stage, what, budget=budget, limit=level.limit, held=level.held)

    def _on_oversize(self, link: InLink, delivery: Handle, size: int, before: int) -> bool:
        """A message grew past the size that is watched. Returns whether it is refused.

        Then with the three-level reaction of policy §3.10: reject, detach, close.
        """
        refusal = self.gate.refuse_size(size, before, link.identity, target_of(link))
        if refusal is None:
            return False
        link.wire.abort_stream()  # first, lest closing the link hurries the rest of it to the receivers
        is_partial = link.wire.is_partial(delivery)
        link.refuse(delivery, condition_of(refusal))
        link.wire.tell_outcome()
        if is_partial:
            link.settle(delivery)  # although the rest of it is not read
        wire_of(link).close()
        self.engine.stop_listening()
        self.engine.close(Condition(name="amqp:connection:forced", description=refusal.description))
        self._touch()
        self._shut()
        return True

    def _on_over_credit(self, link: InLink) -> None:
        """A sender that ignores its credit would fill our memory: its link is closed."""
        wire = wire_of(link)
        _take_no_more(wire)
        self._remove(link, "Link detached")
        wire.close(_LINK_OVER_CREDIT)
        self._touch()

    def _on_stalled_message(self, link: InLink, seconds: float, holds_up_others: bool) -> None:
        """A message under way makes no progress, or holds up others: it is rejected, and its link closed."""
        wire = wire_of(link)
        assert isinstance(wire, IncomingWire)
        refusal = self.gate.give_up_message(seconds, link.identity, target_of(link), holds_up_others=holds_up_others)
        condition = condition_of(refusal)
        wire.give_up(condition)
        self.end_link(wire, condition, is_peers_doing=True)

    def _on_stalled_receiver(self, link: OutLink, seconds: float) -> None:
        """A receiver takes nothing of a message under way: it gets no more of it, and its link is closed."""
        wire = wire_of(link)
        address = wire.named.written if wire.named is not None else None
        condition = condition_of(self.gate.give_up_receiver(seconds, link.identity, address))
        link.break_off()
        self.end_link(wire, condition, is_peers_doing=True)

    def _touch(self) -> None:
        """The engine has something to write."""
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
    """Has the peer attached it, to go on to a container? `RoutedLinks` ends it."""
    return isinstance(link, RoutedIn | RoutedOut) and not link.is_own


def _take_no_more(wire: Wire) -> None:
    """Forward no more messages that have come on the link."""
    if isinstance(wire, IncomingWire):
        wire.take_no_more()


def _is_topic(terminus: Terminus | None) -> bool:
    return terminus is not None and _TEMPORARY_TOPIC in terminus.capabilities


def _phase(terminus: Terminus | None, *, is_sender: bool) -> int | None:
    """The phase of the address that the peer asks for as a waypoint or fallback destination; None: it is neither."""
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
    """What policy is asked about. A link whose node a container makes is asked about by its address, as any other.

    may_be_dynamic  the connection has the right to dynamic sources. Else it is asked about that, for a receiver
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
    """May the client have addresses made for what it receives from?"""
    return governed.settings is None or governed.settings.allow_dynamic_source


def request_again(wire: Wire, *, may_be_dynamic: bool) -> LinkRequest:
    """The request of an open link, by the address that it is bound to. may_be_dynamic  as for `request_of`"""
    terminus = wire.target if isinstance(wire, IncomingWire) else wire.source
    is_made = terminus is not None and terminus.is_dynamic and not is_routed_dynamic(terminus)
    return request_of(wire, terminus, None if is_made else wire.named, may_be_dynamic=may_be_dynamic)
