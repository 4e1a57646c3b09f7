"""The links of a connection between routers: one control pair, ten pairs for users' messages, and streaming links.

The router that made the connection attaches the pairs; the other router answers. Source: docs/spec/network.md §4.
"""

from functools import partial
from typing import Final, Protocol

from router.amqp.engine import CannotBegin, IncomingWire, LinkOwner, OutgoingWire, Session, SessionOwner
from router.amqp.terminus import Condition, Terminus
from router.connection.inspection import condition_of, wire_of
from router.connection.lanes import SPARE, Lanes
from router.connection.peer_links import PeerLinks, Wire
from router.connection.trunk_messages import Arrivals, composer, heading_of, passage_for
from router.core.core import NO_ROUTE
from router.core.in_links import InLink
from router.core.network import MAX_TRUNKS, Network
from router.core.out_links import OutLink
from router.core.remotes import PRIORITIES, ControlOutLink, DataOutLink, Trunk
from router.core.trunk_links import DataInLink
from router.effects import log

_CONTROL: Final = "qd.router"
_DATA: Final = "qd.router-data"
_NOT_A_ROUTER: Final = Condition(
    name="qd:connection-role", description="Link attach forbidden on inter-router connection"
)


class TrunkOwner(SessionOwner, LinkOwner, Protocol):
    """The peer. It is informed when sessions and links end that the router began."""


class TrunkLinks(PeerLinks):
    """Links of a connection between routers.

    trunk  the connection in the core; None before the Opens, and if there are too many connections
    """

    trunk: Trunk | None = None
    keeps_names = True
    _incoming_slots = 0  # number of incoming data links so far
    _outgoing_slots = 0
    _streaming: Lanes | None = None  # for messages that come in several pieces; None: the peer takes no streaming links
    _arrivals: Arrivals

    @property
    def network(self) -> Network:
        network = self.core.network
        assert network is not None  # no other router has listeners or connectors of this role
        return network

    def open_trunk(self, *, cost: int, container: str) -> None:
        """Registers the connection in the network after the Opens are exchanged."""
        self._arrivals = Arrivals()
        self.trunk = self.network.connect(self.attachment, cost=cost, container=container, admitted=self.gate.router_id)
        if self.trunk is None:
            text = f"Exceeded maximum inter-router connection count: {MAX_TRUNKS}"
            log(self._emit, "ROUTER_CORE", "critical", text)

    # Links that this router attaches

    def begin_standing(self, owner: TrunkOwner) -> None:
        """Begins a session for the control pair and one for each priority. Attaches the links when all are answered."""
        sessions: list[Session] = []
        answered: list[Session] = []

        def on_answer(session: Session) -> None:
            answered.append(session)
            if len(answered) == 1 + PRIORITIES:
                # In the order of the sessions, not of the answers: the peer uses the first pair for priority 0.
                self._attach_standing(sessions, owner)

        for _ in range(1 + PRIORITIES):
            session = self.begin_own(owner)
            session.on_answer = partial(on_answer, session)
            sessions.append(session)

    def _attach_standing(self, sessions: list[Session], owner: TrunkOwner) -> None:
        control, *data = sessions
        self._attach_own(control, owner, _CONTROL)
        for session in data:
            self._attach_own(session, owner, _DATA)

    def _attach_own(self, session: Session, owner: TrunkOwner, capability: str) -> None:
        terminus = Terminus(capabilities=(capability,), expiry_policy="link-detach")
        receiver = session.attach_receiver(self._name(), owner, source=terminus, target=terminus)
        receiver.on_answer = lambda: self._take(receiver, capability)
        sender = session.attach_sender(self._name(), owner, source=terminus, target=terminus)
        sender.on_answer = lambda: self._begin_sending(sender, capability)

    # Streaming links that this router attaches on any connection

    def begin_streaming(self, owner: TrunkOwner) -> None:
        """Begins sessions for streaming links. Until one is answered, messages take a data link."""
        self._streaming = Lanes(self.engine, lambda: self.begin_own(owner), lambda: None)
        self._streaming.begin(SPARE)
        trunk = self.trunk
        assert trunk is not None
        trunk.streaming.attach = lambda: self._attach_streaming(trunk, owner)
        trunk.streaming.close = self.close_own

    def _attach_streaming(self, trunk: Trunk, owner: TrunkOwner) -> DataOutLink | None:
        if self._streaming is None:
            return None
        terminus = Terminus(capabilities=(_DATA,), expiry_policy="link-detach")
        try:
            session = self._streaming.lease_now()
            if session is None:
                return None
            wire = session.attach_sender(self._name(), owner, source=terminus, target=terminus)
        except CannotBegin:
            return None
        # The message waits in the link's queue for the credit that follows the peer's answer.
        link = self._add_data_out(wire, trunk, None)
        self.limit_out(link)
        return link

    def _add_data_out(self, wire: OutgoingWire, trunk: Trunk, slot: int | None) -> DataOutLink:
        network = self.network
        vouches = self.attachment.vouches
        heading = heading_of(network.node, vouches=vouches)
        compose = composer(network.node, heading, vouches=vouches)
        return network.add_data_out(wire, trunk, self.attachment, slot, compose, heading)

    def _name(self) -> str:
        return f"qdlink.{self.core.random_name()}"

    def _begin_sending(self, sender: OutgoingWire, capability: str) -> None:
        """Begins to send if the peer has accepted our Attach. Without a target it refuses."""
        if sender.target is not None:
            self._take(sender, capability)

    # Links that the peer attaches

    def attach(self, wire: Wire) -> None:
        terminus = wire.target if isinstance(wire, IncomingWire) else wire.source
        is_routers = terminus is not None and {_CONTROL, _DATA}.intersection(terminus.capabilities)
        if not is_routers and (self.trunk is None or self.trunk.control is None):
            log(
                self._emit, "ROUTER_CORE", "info",
                f"[C{self.attachment.connection_id}] Endpoint attach forbidden on inter-router connection",
            )  # fmt: skip
            wire.refuse(_NOT_A_ROUTER)
            return
        super().attach(wire)

    def attach_here(self, wire: Wire) -> None:
        """Binds a link to an address here, because no link route matches.

        Refuses a link that the other router has forwarded for a client; its name contains the container id. That router
        does not know yet that the last container has gone. Bound to an address of the same name, the link would be open
        and its client would wait in vain.
        """
        if "@" in wire.name:
            wire.refuse(NO_ROUTE)
        else:
            super().attach_here(wire)

    def attach_router(self, wire: Wire, terminus: Terminus) -> None:
        capability = _CONTROL if _CONTROL in terminus.capabilities else _DATA
        if self.trunk is None or capability not in terminus.capabilities:
            super().attach_router(wire, terminus)
            return
        if (refusal := self._over_budget("attach", "AMQP Attach")) is not None:
            wire.refuse(condition_of(refusal))
            return
        wire.accept_router()
        self._take(wire, capability)

    # Links of both routers

    def _take(self, wire: Wire, capability: str) -> None:
        """Sets up an attached link in the network, so that messages can pass."""
        trunk, network, attachment = self.trunk, self.network, self.attachment
        if trunk is None:
            return
        link: InLink | OutLink
        if isinstance(wire, IncomingWire):
            if capability == _CONTROL:
                link = network.add_control_in(wire, trunk, attachment)
            else:
                slot = self._incoming_slots if self._incoming_slots < PRIORITIES else None
                self._incoming_slots += 1
                passage = partial(
                    passage_for, gate=self.gate, network=network, arrivals=self._arrivals, resolve=self._resolve
                )
                link = network.add_data_in(wire, attachment, slot, passage)
            self.limit_in(link)
            if isinstance(link, DataInLink) and link.slot is not None:
                link.on_stalled = partial(self._on_stalled_in, link)
        else:
            if capability == _CONTROL:
                link = network.add_control_out(wire, trunk, attachment)
            else:
                slot = self._outgoing_slots if self._outgoing_slots < PRIORITIES else None
                self._outgoing_slots += 1
                link = self._add_data_out(wire, trunk, slot)
            self.limit_out(link)
            if isinstance(link, DataOutLink) and link.slot is not None:
                link.on_stalled = partial(self._on_stalled_out, link)
        self.log_attached(wire)

    # Attack: a client's messages stall in order to close one data link after another; no router attaches those again.

    def _on_stalled_in(self, link: DataInLink, seconds: float, holds_up_others: bool) -> None:
        """Ends a message that makes no progress or delays other messages; the link stays."""
        wire = wire_of(link)
        assert isinstance(wire, IncomingWire)
        refusal = self.gate.give_up_message(seconds, link.identity, None, holds_up_others=holds_up_others)
        wire.give_up(condition_of(refusal))
        self._touch()

    def _on_stalled_out(self, link: DataOutLink, seconds: float) -> None:
        """Ends a message that the neighbour takes nothing of; the link stays."""
        self.gate.give_up_receiver(seconds, link.identity, None)
        link.give_up()

    def end(self, session: Session) -> None:
        """Handles the peer's End: none of the session's links gets any more messages, although many may end later."""
        if self._streaming is not None:
            self._streaming.forget(session)
        for wire in session.wires.values():
            if isinstance(wire.core, DataOutLink | ControlOutLink):
                self.network.cut_off(wire.core)
        super().end(session)

    def cut_off(self) -> list[InLink | OutLink]:
        self._leave()
        return super().cut_off()

    def _leave(self) -> None:
        self._streaming = None
        trunk, self.trunk = self.trunk, None
        if trunk is not None:
            self.network.disconnect(trunk)
