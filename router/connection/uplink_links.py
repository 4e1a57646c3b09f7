"""The edge's side of a connection with an interior router: the links on the uplink.

No policy applies to an uplink, because this router chose the interior (policy §3.14). Source: docs/spec/network.md §14.
"""

from functools import partial
from typing import Final

from policy.addressing.address import FALLBACK_PHASE, Address, phase_in
from router.amqp.engine import CannotBegin, IncomingWire, OutgoingWire, Session
from router.amqp.terminus import Condition, Terminus
from router.connection.edge_messages import Unreadable, decode_service, uplink_composer
from router.connection.edge_services import INVALID_FIELD
from router.connection.edge_streaming import EdgeStreaming, Owner
from router.connection.link_routes import Host
from router.connection.peer_links import PeerLinks, Wire
from router.connection.uplinks import Uplinks
from router.core.in_links import InLink
from router.core.out_links import OutLink
from router.core.service_links import ServiceInLink, ServiceOutLink
from router.core.trunk_links import begin_control, take_control
from router.core.uplink import UPLINK
from router.edge.effects import AttachLink, End, SessionName
from router.edge.limits import MAX_MESSAGE_BYTES
from router.edge.standing import DOWN
from router.edge.standing import UPLINK as UP
from router.effects import log
from router.values import Handle

_SESSIONS: Final[tuple[SessionName, ...]] = ("endpoint", "core")


class UplinkLinks(PeerLinks):
    uplinks: Uplinks | None = None  # None before the Opens, and if this router is not an edge
    host: Host
    _streaming: EdgeStreaming | None = None

    @property
    def connection_id(self) -> int:
        return self.attachment.connection_id

    def open_uplink(self, uplinks: Uplinks, owner: Owner, host: Host, *, takes_streams: bool) -> None:
        """Prepares the uplink after the Opens are exchanged.

        owner  is informed when links end
        host   takes the links that are routed over this connection
        takes_streams  the interior accepts links for large messages
        """
        self._streaming = EdgeStreaming(self, owner, self._compose) if takes_streams else None
        self.uplinks = uplinks
        self.host = host
        self._owner = owner
        self._sessions: dict[SessionName, Session] = {}
        self._answered: set[SessionName] = set()
        self._waiting: dict[int, AttachLink] = {}  # until both sessions are open: links are attached in order
        self._own: dict[int, tuple[AttachLink, Wire]] = {}
        self._numbers: dict[Wire, int] = {}
        uplinks.opened(self)

    def numbers(self) -> list[int]:
        """Returns the numbers that the machine uses for the links."""
        return [*self._waiting, *self._own]

    # Effects of the machine

    def attach_own(self, effect: AttachLink) -> None:
        try:
            self._begin_sessions()
            if len(self._answered) < len(_SESSIONS):
                self._waiting[effect.link] = effect
            else:
                self._attach(effect)
        except CannotBegin as error:
            text = f"[C{self.attachment.connection_id}] no link on the uplink: {error}"
            log(self._emit, "ROUTER_CORE", "error", text)

    def _begin_sessions(self) -> None:
        for name in _SESSIONS:
            if name not in self._sessions:
                session = self._sessions[name] = self.begin_own(self._owner)
                session.on_answer = partial(self._on_begun, name)

    def _on_begun(self, name: SessionName) -> None:
        self._answered.add(name)
        if len(self._answered) == len(_SESSIONS):
            waiting, self._waiting = self._waiting, {}
            for effect in waiting.values():
                self._attach(effect)

    def _attach(self, effect: AttachLink) -> None:
        session = self._sessions[effect.session]
        name = f"qdlink.{self.core.random_name()}"
        source, target = _terminus(effect.source), _terminus(effect.target)
        wire: Wire
        if effect.is_sender:
            wire = session.attach_sender(name, self._owner, source=source, target=target)
        else:
            wire = session.attach_receiver(name, self._owner, source=source, target=target)
        self._own[effect.link] = effect, wire
        self._numbers[wire] = effect.link
        wire.on_answer = partial(self._on_answer, effect, wire)

    def detach_own(self, number: int) -> None:
        self._waiting.pop(number, None)
        found = self._own.pop(number, None)
        if found is None:
            return
        _, wire = found
        self._numbers.pop(wire, None)
        if isinstance(wire, IncomingWire):
            wire.take_no_more()
        link = wire.core
        if isinstance(link, InLink | OutLink):
            self._remove(link, "Link detached")
        wire.close(is_peers_doing=False)
        self._touch()

    def use(self, number: int, *, is_used: bool) -> None:
        found = self._own.get(number)
        if found is None:
            return
        effect, wire = found
        link = wire.core
        if not isinstance(link, OutLink) or effect.key is None:
            return
        if is_used:
            live = self.core.table.addresses.get(effect.key)
            if live is not None and link.address is None:
                self.core.receivers.bind(link, live)
        else:
            self.core.receivers.unbind(link)

    def send(self, number: int, payload: bytes, *, is_settled: bool) -> None:
        found = self._own.get(number)
        link = found[1].core if found is not None else None
        if isinstance(link, ServiceOutLink) and link.is_open:
            link.give(payload, is_settled=is_settled)

    # Events from the interior

    def _on_answer(self, effect: AttachLink, wire: Wire) -> None:
        """Handles the interior's answer to our Attach. A missing terminus of the interior means a refusal."""
        if isinstance(wire, IncomingWire):
            if wire.source is not None:
                self._take_in(effect, wire)
        elif wire.target is not None:
            self._take_out(effect, wire)
        if wire.core is not None and self.uplinks is not None:
            made = (
                wire.source.address if effect.source is not None and effect.source.is_dynamic and wire.source else None
            )
            self.log_attached(wire)
            self.uplinks.carry_out(self.uplinks.machine.link_attached(effect.link, self.uplinks.clock(), made))
            self._touch()

    def _take_in(self, effect: AttachLink, wire: IncomingWire) -> None:
        if effect.service is not None and effect.service != DOWN:
            self._take_service(effect, wire)
            return
        address = phase = None
        if effect.key is not None:
            resolved = self.core.resolve(effect.key[2:])
            if not isinstance(resolved, Address) or effect.key not in self.core.table.addresses:
                return
            wire.named = address = resolved
            phase = phase_in(effect.key)
        link = self.core.add_in_link(wire, self.attachment, address, phase=phase)
        self.limit_in(link)
        self.messages.choose_inspection(link)

    def _take_service(self, effect: AttachLink, wire: IncomingWire) -> None:
        core = self.core

        def judge(payload: bytes) -> Condition | None:
            uplinks = self.uplinks
            if uplinks is None:
                return None
            try:
                message = decode_service(payload)
            except Unreadable as error:
                return Condition(name=INVALID_FIELD, description=str(error))
            return uplinks.carry_out(uplinks.machine.received(effect.link, message, uplinks.clock()))

        link = ServiceInLink(core.next_identity(), wire, self.attachment, core.work, judge, MAX_MESSAGE_BYTES)
        wire.admit(link, None, take_control, begin_control, _ignore)
        core.adopt(link, self.attachment)
        self.limit_in(link)
        link.grant_initial(effect.credit)

    def _take_out(self, effect: AttachLink, wire: OutgoingWire) -> None:
        core = self.core
        link: OutLink
        if effect.service == UP:
            link = core.add_out_link(wire, self.attachment, UPLINK)
        elif effect.key is not None:
            link = OutLink(core.next_identity(), wire, self.attachment, core.work)
            link.is_fallback = phase_in(effect.key) == FALLBACK_PHASE
            core.adopt(link, self.attachment)
        else:
            link = ServiceOutLink(
                core.next_identity(), wire, self.attachment, core.work, partial(self._on_room, effect.link)
            )
            core.adopt(link, self.attachment)
        if effect.service in (UP, None):
            link.compose = uplink_composer(self.attachment)
            if self._streaming is not None and (effect.key is None or phase_in(effect.key) == 0):
                link.bypass = self._streaming.streaming
        if effect.service == UP and self._streaming is not None:
            self._streaming.begin()
        self.limit_out(link)

    def _compose(self, link: OutLink) -> None:
        link.compose = uplink_composer(self.attachment)

    def _on_room(self, number: int, credit: int) -> None:
        if self.uplinks is not None:
            self.uplinks.carry_out(self.uplinks.machine.credit_changed(number, credit, self.uplinks.clock()))

    def _drop(self, wire: Wire, why: str) -> None:
        super()._drop(wire, why)
        number = self._numbers.pop(wire, None) if self.uplinks is not None else None
        if number is not None and self.uplinks is not None:
            del self._own[number]
            self.uplinks.carry_out(self.uplinks.machine.link_detached(number))

    def end(self, session: Session) -> None:
        super().end(session)
        if self.uplinks is not None and self._streaming is not None:
            self._streaming.forget(session)
        if self.uplinks is not None and session in self._sessions.values():
            # An uplink with one session is useless: close it, so that a stand-by takes over or the connector connects
            # again.
            text = f"[C{self.connection_id}] The interior router ended a session of this edge: the uplink is closed"
            log(self._emit, "ROUTER_CORE", "warning", text)
            self._shut()

    def cut_off(self) -> list[InLink | OutLink]:
        links = super().cut_off()
        uplinks, self.uplinks = self.uplinks, None
        if uplinks is not None:
            uplinks.closed(self)
            if self._streaming is not None:
                self._streaming.end()
                self._streaming = None
        return links


def _terminus(end: End | None) -> Terminus | None:
    if end is None:
        return None
    return Terminus(
        address=end.address,
        is_dynamic=end.is_dynamic,
        expiry_policy="link-detach",
        capabilities=(end.capability,) if end.capability is not None else (),
    )


def _ignore(_delivery: Handle) -> None:
    """Does nothing: messages between routers are settled when they come."""
