"""One admitted AMQP peer: what its Open, Begin, Attach, Detach, End and Close lead to.

Each passes the gate first; only what was admitted reaches the core. Sources: docs/spec/routing.md §1, §5;
docs/spec/policy-and-auth.md §3.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from auth.identity import Identity
from policy.addressing.address import Address, Unclear
from router.admission.connection_gate import ConnectionGate, Direction, LinkRequest, Refusal
from router.amqp.engine import Engine, IncomingWire, OutgoingWire, Session
from router.amqp.message_text import message_text
from router.amqp.terminus import Condition, RemoteOpen, Terminus, describe
from router.connection.inspection import (
    composer,
    condition_of,
    inspector,
    observed,
    observed_sending,
    outside,
    reply_inspector,
    router_for,
    target_of,
)
from router.connection.replies import Asker, Replies
from router.connection.terms import ConnectionTerms
from router.core.attachments import Attachment
from router.core.core import Core
from router.core.in_links import InLink
from router.core.out_links import OutLink
from router.core.rates import Rates
from router.core.selection import AnonymousInLink
from router.effects import Emit, log
from router.values import Array, Handle, int_, symbol

PRODUCT: Final = "qpid-dispatch-router"  # what clients and neighbouring routers recognise
CAPABILITIES: Final = Array(symbol, (symbol("ANONYMOUS-RELAY"), symbol("qd.streaming-links")))
_ROUTER_CAPABILITIES: Final = frozenset(("qd.router", "qd.router-data", "qd.router-edge-downlink"))
_FORBIDDEN: Final = Condition(name="qd:forbidden", description="Connectivity to the node is forbidden")
# For what is left of a dynamic address when the link that it was made for is gone.
_ADDRESS_GONE: Final = Condition(name="amqp:resource-deleted", description="the dynamic address is gone")
_LINK_OVER_CREDIT: Final = Condition(
    name="amqp:link:transfer-limit-exceeded", description="more messages than credit was granted for"
)

Wire = IncomingWire | OutgoingWire


class Peer(Asker):
    """The engine's Owner for one accepted connection."""

    def __init__(
        self,
        *,
        connection_id: int,
        connection_name: str,
        terms: ConnectionTerms,
        identity: Identity,
        security: Mapping[str, Any],
        gate: ConnectionGate,
        core: Core,
        version: str,
        emit: Emit,
        write: Callable[[bytes], None],
        fail: Callable[[Condition, str], None],
        shut: Callable[[], None],
        crash: Callable[[Exception], None],
        opened: Callable[[], None],
        wall_clock: Callable[[], float],
        is_server: bool = True,
    ) -> None:
        """security  the connection entity's isEncrypted, sslProto, sslCipher, sslSsf, ssl
        fail      (condition, reason code): log and audit a failure, then close
        shut      write what is pending, then close the socket
        crash     an exception escaped while this connection was served
        opened    the Open was admitted
        wall_clock  seconds since 1970 UTC, for rules that hold for a time
        """
        self.connection_id = connection_id
        self.connection_name = connection_name
        self.terms = terms
        self.identity = identity
        self.security = security
        self.gate = gate
        self.core = core
        self.version = version
        self.emit = emit
        self.fail = fail
        self.shut = shut
        self.crash = crash
        self._opened = opened
        self._wall_clock = wall_clock
        self.remote: RemoteOpen | None = None
        self.is_open = False
        self.is_outgoing = False
        self.tenant = None  # whose address space the connection's mobile addresses are in
        self.close_condition: Condition | None = None  # what a Close said, the peer's or ours
        self.summary = ""  # what the log and connectionMsg say of the Open
        self.opened_at_s = 0
        self._replies: Replies | None = None  # what it was asked to reply to, where that matters
        self.last_delivery_s: int | None = None
        self._delivery_total = 0
        self.engine = Engine(
            self,
            write,
            core.work.touched,
            container_id=core.router_id,
            max_frame_bytes=terms.max_frame_bytes,
            channel_max=terms.channel_max,
            idle_timeout_ms=terms.idle_timeout_s * 1000,
            is_server=is_server,
        )
        self.attachment = Attachment(
            connection_id=connection_id,
            engine=self.engine,
            capacity=terms.capacity,
            is_route_container=terms.role == "route-container",
        )

    # Owner

    def start_outgoing(self, hostname: str) -> None:
        """We made this connection: our Open goes first."""
        self.is_outgoing = True
        self.engine.open(properties=self._open_properties(), capabilities=CAPABILITIES, hostname=hostname)
        self.core.work.touched.add(self.engine)

    def on_open(self, remote: RemoteOpen) -> None:
        self.remote = remote
        refusal = self._judge_outgoing() if self.is_outgoing else self._answer_open(remote)
        if refusal is not None:
            self._close(refusal)
            return
        self.tenant = self._tenant()
        self._follow_rates()
        self._follow_replies()
        self.is_open = True
        self.opened_at_s = self.core.work.now_s
        self.summary = (
            f"Connection Opened: dir={'out' if self.is_outgoing else 'in'} host={self.connection_name} "
            f"vhost={self.tenant or ''} "
            f"encrypted={self.security['sslProto'] or 'no'} auth={self.identity.mechanism or 'no'} "
            f"user={self.identity.user if self.identity.user is not None else '(null)'} "
            f"container_id={remote.container_id}"
        )
        self._log(f"{self.summary} props={_describe_map(remote.properties)}")
        self._opened()

    def _close(self, refusal: Refusal) -> None:
        for wire in self.engine.links.values():
            _take_no_more(wire)
        self.close_condition = condition_of(refusal)
        self.engine.close(self.close_condition)
        self.core.work.touched.add(self.engine)
        self.shut()

    def _tenant(self) -> str | None:
        """Whose address space the connection's is, by the settings it has now."""
        if not self.terms.is_multi_tenant or self.remote is None:
            return None
        settings = self.gate.settings
        return (settings.vhost if settings is not None else self.remote.hostname) or None

    def _follow_rates(self) -> None:
        """What the connection may send in a second is what its settings say now."""
        settings = self.gate.settings
        rates = Rates(messages=settings.max_message_rate, bytes=settings.max_byte_rate) if settings else Rates()
        self.core.set_rates(self.attachment, rates)

    def _follow_replies(self) -> None:
        """What the connection may reply to is remembered for as long as its settings, or a candidate's, ask for."""
        if self._replies is None:
            self._replies = self.gate.addresses = Replies(self.core, self.attachment, self.tenant)
        if self._replies.keep(self.gate.reply_window_s):
            for link in self.attachment.out_links:
                self._choose_composition(link)

    def _answer_open(self, remote: RemoteOpen) -> Refusal | None:
        """A client's Open: judged, then answered, with the limits of its group where it has one."""
        refusal = self.gate.admit(
            self.identity,
            hostname=remote.hostname,
            policy_vhost=self.terms.policy_vhost,
            is_encrypted=bool(self.security["isEncrypted"]),
            now=self._wall_clock(),
        )
        settings = self.gate.settings
        self.engine.open(
            properties=self._open_properties(),
            capabilities=CAPABILITIES,
            max_frame_bytes=max(settings.max_frame_size, 512) if settings and settings.max_frame_size else None,
            channel_max=min(settings.max_sessions - 1, 32767) if settings and settings.max_sessions else None,
        )
        return refusal

    def _judge_outgoing(self) -> Refusal | None:
        if self.terms.policy_vhost is None:
            return None
        return self.gate.adopt_connector(
            self.identity,
            policy_vhost=self.terms.policy_vhost,
            is_encrypted=bool(self.security["isEncrypted"]),
            now=self._wall_clock(),
        )

    def _open_properties(self) -> dict[Any, Any]:
        properties: dict[Any, Any] = {
            symbol("product"): PRODUCT,
            symbol("version"): self.version,
            symbol("qd.conn-id"): int_(self.connection_id),
        }
        if self.terms.cost > 1:
            properties[symbol("qd.inter-router-cost")] = int_(self.terms.cost)
        if self.terms.failover:
            properties[symbol("failover-server-list")] = [
                {symbol(key): value for key, value in server.items()} for server in self.terms.failover
            ]
        for key, value in self.terms.open_properties.items():
            properties[symbol(key)] = value
        return properties

    def on_begin(self, session: Session) -> None:
        if not self.is_open or not self._may_stay():
            return
        refusal = self.gate.begin()
        if refusal is not None:
            session.refuse(condition_of(refusal))
            return
        session.is_counted = True
        settings = self.gate.settings
        window = settings.max_session_window if settings is not None else 0
        session.accept(incoming_capacity_bytes=window or self.terms.session_bytes)

    def on_end(self, session: Session) -> None:
        if session.is_counted:
            self.gate.end()

    def on_attach(self, wire: Wire) -> None:
        if not self.is_open or not wire.session.is_counted or not self._may_stay():
            wire.ignore()
            return
        source, target = wire.source, wire.target
        is_sender = isinstance(wire, IncomingWire)
        terminus = target if is_sender else source
        if terminus is not None and not _ROUTER_CAPABILITIES.isdisjoint(terminus.capabilities):
            self._log("Router attach forbidden on non-inter-router connection")
            wire.refuse(_FORBIDDEN)
            return
        address = self._address_of(terminus)
        refusal = self._shut_out(wire, address) or self.gate.attach(_request(wire, terminus, address))
        if refusal is not None:
            wire.refuse(condition_of(refusal))
            return
        assert not isinstance(address, Unclear)  # refused, with or without policy
        wire.named = address
        wire.is_counted = True
        if isinstance(wire, IncomingWire):
            self._attach_sender(wire, terminus)
        else:
            self._attach_receiver(wire, terminus)
        if isinstance(wire.core, InLink | OutLink):
            self._log_link(wire.core, f"Link attached: dir={'in' if is_sender else 'out'} "
                                      f"source={describe(source)} target={describe(target)}")  # fmt: skip

    def resolve(self, text: str) -> Address | Unclear:
        """What an address that the peer wrote means."""
        return self.core.resolve(text, tenant=self.tenant)

    def _address_of(self, terminus: Terminus | None) -> Address | Unclear | None:
        """None where the peer names no address, or wants one made."""
        if terminus is None or terminus.is_dynamic or not terminus.address:
            return None
        return self.resolve(terminus.address)

    def _shut_out(self, wire: Wire, address: Address | Unclear | None) -> Refusal | None:
        """Does a link lead into the router itself, on a connection that may not?"""
        if self.terms.reaches_in_process or not isinstance(address, Address):
            return None
        if not (address.is_management or self.core.is_in_process(address)):
            return None
        return self.gate.refuse_in_process(_direction_of(wire), address.written, link_name=wire.name)

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
        link = self.core.add_in_link(wire, self.attachment, wire.named, is_dynamic=dynamic is not None)
        link.on_oversize = lambda delivery, size, before: self._on_oversize(link, delivery, size, before)
        link.on_over_credit = lambda: self._on_over_credit(link)
        self._choose_inspection(link)

    def _choose_inspection(self, link: InLink) -> None:
        """What the connection's settings ask to be looked at in each message of a link, and nothing more."""
        link.max_message_bytes = self.gate.watched_message_bytes
        inspect = inspector(link, self.gate, strips=self.terms.strips_in)
        if self._replies is not None and self._replies.memory is not None:
            inspect = self._as_reply(link, inspect)
        if self.terms.message_components:
            inspect = observed(inspect, self._message_log("Received", link))
        if isinstance(link, AnonymousInLink):
            route = router_for(link, inspect, self.gate, self.core, self.resolve)
            link.route = route if self.terms.reaches_in_process else outside(link, route, self.gate)
        else:
            link.inspect = inspect

    def _as_reply(self, link: InLink, inspect: Callable[[Handle, int], int]) -> Callable[[Handle, int], int]:
        """On a link that was attached to reply each message is asked about: the right is for a time."""
        target = link.wire.named
        if target is None or self.gate.is_listed(target):
            return inspect
        if self.core.owner_of(target, self.attachment, is_ingress=True) == "own":
            return inspect
        return reply_inspector(link, inspect, self.gate, target)

    def _attach_receiver(self, wire: OutgoingWire, source: Terminus | None) -> None:
        dynamic = None
        if source is not None and source.is_dynamic:
            wire.named = dynamic = self.core.dynamic_address(is_source=True)
        unroutable = self.core.check_source(wire.named)
        if unroutable is not None:
            wire.refuse(unroutable)
            return
        assert wire.named is not None  # else it were unroutable
        wire.accept(dynamic_address=dynamic.written if dynamic is not None else None)
        is_dynamic = dynamic is not None
        self._choose_composition(self.core.add_out_link(wire, self.attachment, wire.named, is_dynamic=is_dynamic))

    def _choose_composition(self, link: OutLink) -> None:
        """What is done to messages before they leave on a link, and nothing more."""
        link.compose = composer(self.core.router_id) if not self.terms.strips_out else None
        link.on_sending = None
        if self.terms.message_components:
            link.compose = observed_sending(link.compose, self._message_log("Sent", link))
        if self._replies is not None and self._replies.memory is not None:
            self._replies.watch(link)

    def _message_log(self, verb: str, link: InLink | OutLink) -> Callable[[bytes], None]:
        """What logs the messages of a link as messageLoggingComponents asks (routing §21)."""
        wire = _wire_of(link)
        source, target = (terminus.address if terminus is not None else None for terminus in (wire.source, wire.target))
        where = f"on link '{wire.name}' ({source or ''} -> {target or ''})"

        def see(head: bytes) -> None:
            what = message_text(head, self.terms.message_components)
            log(self.emit, "MESSAGE", "trace", f"[C{self.connection_id}]: {verb} {what} {where}")

        return see

    def on_detach(self, wire: Wire, *, is_closed: bool) -> None:
        self._drop_link(wire, "Link detached")

    def _drop_link(self, wire: Wire, why: str) -> None:
        link = wire.core
        if isinstance(link, InLink | OutLink):
            self._remove_link(link, why)
        if wire.is_counted:
            wire.is_counted = False
            self.gate.detach(_direction_of(wire))

    def _remove_link(self, link: InLink | OutLink, why: str) -> None:
        """The link is gone. A dynamic address that was made for it goes as well, where policy is on."""
        address = self.core.table.bound(link)
        is_maker = address is not None and address.made_by is link
        self.core.remove_link(link)
        self._log_link_end(link, why)
        if is_maker and address is not None and self.gate.gate.ruleset.is_enabled:
            for other in [other for other in address.out_links if other.attachment is self.attachment]:
                self._end_link(_wire_of(other), _ADDRESS_GONE, is_peers_doing=True)

    def on_close(self, condition: Condition | None) -> None:
        self.close_condition = condition
        self.lose_links()
        self.engine.close()
        self.shut()

    def on_transport_error(self, condition: Condition) -> None:
        reason = "idle_timeout" if "idle-timeout" in condition.description else "malformed_frame"
        self.fail(condition, reason)

    # Decided again

    def _may_stay(self) -> bool:
        """Before the client gets anything new; a connection that is denied by now is closed."""
        self.gate.catch_up()
        if not self.gate.is_denied and self._tenant() != self.tenant:
            self.gate.refuse_move()
        if self.gate.refusal is None:
            return True
        self._close(self.gate.refusal)
        return False

    def redecide(self) -> Iterator[None]:
        """Judge the connection, its sessions and its links by the rules in force; what is denied is ended.

        Of what is too many the newest goes. The caller may pause at every step: what comes meanwhile has been judged by
        the new rules already.
        """
        if not self.is_open or self.engine.is_deaf or not self._may_stay() or not self.gate.is_redecided:
            return
        self._follow_rates()
        self._follow_replies()
        yield
        kept = 0
        for session in list(self.engine.sessions.values()):
            if session.is_counted and not session.is_ended and not self.engine.is_deaf:
                refusal = self.gate.begin_again(kept)
                kept += refusal is None
                if refusal is not None:
                    self._end_session(session, refusal)
                yield
        links = {"send": 0, "receive": 0}
        for wire in list(self.engine.links.values()):
            if wire.core is not None and wire.is_counted and not self.engine.is_deaf:
                links[_direction_of(wire)] += self._keep_link(wire, links[_direction_of(wire)])
                yield

    def ask_candidate(self, now: float) -> Iterator[None]:
        """Ask a new candidate policy about the connection, its sessions and its links. All of them stay.

        now  seconds since 1970 UTC. The caller may pause at every step: what comes meanwhile has asked it already.
        """
        candidate = self.gate.shadow
        if not self.is_open or self.engine.is_deaf or candidate is None:
            return
        if not candidate.judge_again(now):
            return
        self._follow_replies()
        yield
        counted = (session for session in list(self.engine.sessions.values()) if session.is_counted)
        for number, session in enumerate(counted):
            if not session.is_ended:
                candidate.session_again(number)
                yield
        links = {"send": 0, "receive": 0}
        for wire in list(self.engine.links.values()):
            if wire.core is not None and wire.is_counted:
                direction = _direction_of(wire)
                self.gate.ask_candidate(_request_again(wire), links[direction])
                links[direction] += 1
                if isinstance(wire.core, InLink):
                    self._choose_inspection(wire.core)
                yield

    def keep_within_limits(self) -> None:
        """As the gate's; a connection without room is closed."""
        if self.is_open and not self.engine.is_deaf and not self.gate.keep_within_limits():
            assert self.gate.refusal is not None
            self._close(self.gate.refusal)

    def _keep_link(self, wire: Wire, older: int) -> bool:
        refusal = self.gate.attach_again(_request_again(wire), older)
        if refusal is not None:
            self._end_link(wire, condition_of(refusal))
        elif isinstance(wire.core, InLink):
            self._choose_inspection(wire.core)
        return refusal is None

    def _end_session(self, session: Session, refusal: Refusal) -> None:
        for wire in self.engine.links_of(session):
            _take_no_more(wire)
            self._drop_link(wire, "Link closed with its session")
        session.is_counted = False
        self.gate.end()
        session.close(condition_of(refusal))
        self.core.work.touched.add(self.engine)

    def _end_link(self, wire: Wire, condition: Condition, *, is_peers_doing: bool = False) -> None:
        _take_no_more(wire)
        self._drop_link(wire, "Link detached")
        wire.close(condition, is_peers_doing=is_peers_doing)
        self.core.work.touched.add(self.engine)

    # Limits

    def _on_oversize(self, link: InLink, delivery: Handle, size: int, before: int) -> bool:
        """A message grew past the size that is watched. Returns whether it is refused.

        Then with the three-level reaction of policy §3.10: reject, detach, close.
        """
        refusal = self.gate.refuse_size(size, before, link.identity, target_of(link))
        if refusal is None:
            return False
        link.wire.abort_stream()  # first, lest closing the link hurries the rest of it to the receivers
        link.refuse(delivery, condition_of(refusal))
        link.settle(delivery)  # although the rest of it is not read
        _wire_of(link).close()
        self.engine.stop_listening()
        self.engine.close(Condition(name="amqp:connection:forced", description=refusal.description))
        self.core.work.touched.add(self.engine)
        self.shut()
        return True

    def _on_over_credit(self, link: InLink) -> None:
        """A sender that ignores its credit would fill our memory: its link is closed."""
        wire = _wire_of(link)
        _take_no_more(wire)
        self._remove_link(link, "Link detached")
        wire.close(_LINK_OVER_CREDIT)
        self.core.work.touched.add(self.engine)

    def note_deliveries(self) -> None:
        """Called about once a second while the connection is busy: keeps lastDlvSeconds without a cost per message."""
        attachment = self.attachment
        total = sum(link.delivery_count for link in (*attachment.in_links, *attachment.out_links))
        if total != self._delivery_total:
            self._delivery_total = total
            self.last_delivery_s = self.core.work.now_s

    # The end

    def lose_links(self) -> None:
        """The connection is going: every link on it is gone."""
        attachment = self.attachment
        links: list[InLink | OutLink] = [*attachment.in_links, *attachment.out_links]
        for link in links:
            self.core.remove_link(link)
            self._log_link_end(link, "Link closed due to connection loss")

    def retire(self) -> None:
        """The connection is about to be closed: its links are gone, and what the peer still says goes nowhere."""
        self.lose_links()
        self.engine.stop_listening()

    def end(self) -> None:
        """The socket is closed: give everything back. Call once."""
        try:
            self.lose_links()
            if self.is_open:
                self._log("Connection Closed")
        finally:
            self.core.work.touched.discard(self.engine)
            self.engine.free()

    # Logs

    def _log(self, text: str) -> None:
        log(self.emit, "ROUTER_CORE", "info", f"[C{self.connection_id}] {text}")

    def _log_link(self, link: InLink | OutLink, text: str) -> None:
        log(self.emit, "ROUTER_CORE", "info", f"[C{self.connection_id}][L{link.identity}] {text}")

    def _log_link_end(self, link: InLink | OutLink, why: str) -> None:
        self._log_link(
            link,
            f"{why}: del={link.delivery_count} presett={link.presettled} psdrop={link.dropped_presettled} "
            f"acc={link.accepted} rej={link.rejected} rel={link.released} mod={link.modified} "
            f"delay1={link.delayed_1s} delay10={link.delayed_10s} blocked=no",
        )


def _take_no_more(wire: Wire) -> None:
    """What has come on the link and was not forwarded yet is not forwarded any more."""
    if isinstance(wire, IncomingWire):
        wire.take_no_more()


def _wire_of(link: InLink | OutLink) -> Wire:
    """The engine's link, which the core knows by what it uses of it."""
    wire = link.wire
    assert isinstance(wire, IncomingWire | OutgoingWire)
    return wire


def _direction_of(wire: Wire) -> Direction:
    return "send" if isinstance(wire, IncomingWire) else "receive"


def _request(wire: Wire, terminus: Terminus | None, address: Address | Unclear | None) -> LinkRequest:
    direction = _direction_of(wire)
    if terminus is None:
        return LinkRequest(direction=direction, address=address, link_name=wire.name)
    return LinkRequest(
        direction=direction,
        address=address,
        link_name=wire.name,
        is_dynamic=terminus.is_dynamic,
        is_coordinator=terminus.is_coordinator,
        capabilities=terminus.capabilities,
    )


def _request_again(wire: Wire) -> LinkRequest:
    """Of a link that is open: by the address that it is bound to."""
    terminus = wire.target if isinstance(wire, IncomingWire) else wire.source
    return _request(wire, terminus, None if terminus is not None and terminus.is_dynamic else wire.named)


def _describe_map(mapping: Mapping[Any, Any]) -> str:
    """Open properties as the log shows them: `{:product="x", :n=1}`."""
    return "{" + ", ".join(f"{_describe(key)}={_describe(value)}" for key, value in mapping.items()) + "}"


def _describe(value: Any) -> str:
    if isinstance(value, symbol):
        return f":{value}" if str(value).isidentifier() else f':"{value}"'
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, dict):
        return _describe_map(value)
    return str(value)
