"""The life of a routed link: attach, answer, detach and loss pass from one peer to the other.

Source: docs/spec/routing.md §15.3, §15.4.
"""

from collections.abc import Callable
from typing import Final, Protocol

from policy.addressing.address import Address
from router.amqp.engine import CannotBegin, IncomingWire, OutgoingWire, Session
from router.amqp.terminus import Condition, Terminus
from router.connection.link_routes import Host, Limiting, LinkRoute, LinkRoutes
from router.connection.peer_messages import PeerMessages
from router.core.attachments import Attachment
from router.core.core import NO_ROUTE, Core
from router.core.routed import RoutedIn, RoutedOut, RoutedPath, forward_routed
from router.core.streams import begin_stream
from router.core.updates import Updates

Wire = IncomingWire | OutgoingWire

_COORDINATOR: Final = "$coordinator"
_EXPIRES: Final = ("link-detach", "session-end", "connection-close")
TOO_LASTING: Final = Condition(name="qd:link-expiration", description="Requested link expiration not allowed")
LOST: Final = Condition(name="qd:routed-link-lost", description="Connectivity to the peer container was lost")


class Side(Limiting, Protocol):
    """The links of the connection whose peer attached (router.connection.peer_links).

    container  the container id of the peer
    """

    attachment: Attachment
    core: Core
    container: str
    messages: PeerMessages

    def log_attached(self, wire: Wire) -> None: ...
    def forget_routed(self, wire: Wire) -> None:
        """The link is over: it counts no longer."""
        ...


class RoutedLinks:
    """The routed links that the peer of one connection attached."""

    def __init__(self, side: Side, link_routes: LinkRoutes) -> None:
        self._side = side
        self._link_routes = link_routes
        self._links: dict[Wire, RoutedLink] = {}

    def take(self, wire: Wire, terminus: Terminus | None, address: Address | None, *, limit_bytes: int) -> bool:
        """Route an admitted link, or refuse it where its container is not there. False: nothing routes it.

        terminus     the one that is not the peer's own
        address      None where that names none
        limit_bytes  of a message that the peer sends, 0: none
        """
        is_sender = isinstance(wire, IncomingWire)
        if terminus is None:
            return False
        name, full, written = (address.name, address.full, address.written) if address is not None else ("", "", "")
        if terminus.is_coordinator:
            name = _COORDINATOR
        elif address is None or not address.is_mobile or address.is_management:
            return False
        routed = self._link_routes.find(name, "send" if is_sender else "receive")
        if routed is None:
            return False
        host = routed.next_host()
        refusal = None if host is not None else NO_ROUTE
        if not self._link_routes.may_outlive and (terminus.timeout_s or terminus.expiry_policy not in _EXPIRES):
            refusal = TOO_LASTING
        if host is None or refusal is not None:
            wire.refuse(refusal or NO_ROUTE)
            self._side.forget_routed(wire)
            return True
        link = self._links[wire] = RoutedLink(
            self._side, wire, host, routed.first, key=f"M0{name}", address=full,
            tenant=full.removesuffix(written), limit_bytes=limit_bytes if is_sender else 0,
        )  # fmt: skip
        link.begin()
        return True

    def end(self, wire: Wire, *, is_closed: bool | None) -> None:
        """The peer detaches the link, if it is one; None: it is gone without."""
        link = self._links.get(wire)
        if link is not None and not link.end_near(is_closed=is_closed):
            self.forget(wire)

    def lose(self) -> None:
        """The connection is gone."""
        for wire in list(self._links):
            self.end(wire, is_closed=None)

    def forget(self, wire: Wire) -> None:
        self._links.pop(wire, None)


class RoutedLink:
    """near  the client's wire; far: the container's, None before it is attached"""

    def __init__(
        self,
        side: Side,
        near: Wire,
        host: Host,
        route: LinkRoute,
        *,
        key: str,
        address: str,
        tenant: str,
        limit_bytes: int,
    ) -> None:
        """key      as management shows what both links belong to
        address  of the client's terminus, in its tenant's space; "" where it has none
        tenant   what that begins with
        limit_bytes  of a message that the client sends, 0: none
        """
        self._key = key
        self._tenant = tenant
        self._side = side
        self._near = near
        self._host = host
        self._route = route
        self._address = address
        self._name = f"{near.name}@{side.container}"
        self._limit_bytes = limit_bytes
        self._far: Wire | None = None
        self._path: RoutedPath | None = None
        self._is_answered = False
        self._is_over = False
        self._detached: bool | None = None  # the client waits for the answer to its Detach: was that closed?

    def begin(self) -> None:
        self._host.routed[self] = None
        self._host.with_session(self._attach, self.lose)

    def _attach(self, session: Session) -> None:
        if self._is_over:
            return
        external = self._route.external(self._address) if self._address else None
        try:
            self._far = session.attach_as(self._near, self._name, self, address=external)
        except CannotBegin:
            self.lose()
            return
        self._far.on_answer = self._on_answer

    def _on_answer(self) -> None:
        """The container has answered, whatever: the client has the same answer."""
        near, far = self._near, self._far
        if self._is_over or far is None:
            return
        self._is_answered = True
        theirs = far.target if isinstance(far, OutgoingWire) else far.source
        internal = None
        if theirs is not None and theirs.address:
            internal = self._route.internal(theirs.address).removeprefix(self._tenant)

        def answer() -> None:
            near.accept_as(far, address=internal, max_message_bytes=self._limit_bytes)
            if theirs is not None:
                self._bind(far)

        if isinstance(near, OutgoingWire):
            near.engine.attach_alone(near, answer)
        else:
            answer()
        if self._path is not None:
            self._path.relay_credit()

    def _bind(self, far: Wire) -> None:
        """Messages may pass."""
        side, near, host, core = self._side, self._near, self._host, self._side.core
        is_sender = isinstance(near, IncomingWire)
        come, go = (near, far) if is_sender else (far, near)
        assert isinstance(come, IncomingWire)
        assert isinstance(go, OutgoingWire)
        from_, to = (side.attachment, host.attachment) if is_sender else (host.attachment, side.attachment)
        inward = RoutedIn(core.next_identity(), come, from_, core.work)
        onward = RoutedOut(core.next_identity(), go, to, core.work)
        inward.is_own, onward.is_own = not is_sender, is_sender
        path = self._path = inward.path = onward.path = RoutedPath(self._key, inward, onward)
        inward.on_updated = Updates(inward, lambda: [onward]).on_updated
        core.adopt(onward, to)
        come.admit(inward, path, forward_routed, begin_stream, inward.on_updated)
        core.adopt(inward, from_)
        if from_.pacing is not None:
            from_.pacing.adopt(inward)
        if is_sender:
            side.messages.choose_inspection(inward)
        # Each side answers for its own link: what a broker does ends nothing of the client's connection.
        sides: tuple[Limiting, Limiting] = (side, host.links) if is_sender else (host.links, side)
        sides[0].limit_in(inward)
        sides[1].limit_out(onward)
        side.log_attached(near)

    # The end

    def on_detach(self, far: Wire, *, is_closed: bool) -> None:
        """The container detaches, or has ended the session."""
        if self._is_over:
            self._answer_detach()
            return
        if far.session.is_ended or not self._is_answered:
            self.lose()
        else:
            self._end(far, lambda: self._near.detach_as(far, is_closed=is_closed))

    def lose(self) -> None:
        """There is no way to the container any more."""
        self._answer_detach()
        self._end(self._far, self._break_off)

    def _break_off(self) -> None:
        if self._is_answered:
            self._near.close(LOST, is_peers_doing=False)
        else:
            self._near.refuse(NO_ROUTE)

    def _end(self, gone: Wire | None, tell: Callable[[], None]) -> None:
        """The container's side is gone: `tell` the client."""
        if self._is_over:
            return
        self._is_over = True
        self._host.routed.pop(self, None)
        self._unbind(gone)
        tell()
        self._near.engine.touch()
        self._side.forget_routed(self._near)

    def end_near(self, *, is_closed: bool | None) -> bool:
        """The client detaches; None: it is gone without. Returns whether it waits for the container's answer.

        So a name is free again for the client when it is free at the container.
        """
        near, far = self._near, self._far
        if self._is_over:
            self._detached = None  # it waits no longer: its session or connection is gone
            self._host.routed.pop(self, None)
            return False
        self._is_over = True
        waits = far is not None and is_closed is not None and not near.session.is_ended
        if waits:
            near.is_answered_later, self._detached = True, is_closed
        else:
            self._host.routed.pop(self, None)
        self._unbind(near)
        if not self._is_answered and is_closed is not None:
            near.refuse(NO_ROUTE)  # an Attach has its answer before its Detach has
        if far is None:
            return False
        if is_closed is None or near.session.is_ended:
            far.close(LOST, is_peers_doing=False)
        else:
            far.detach_as(near, is_closed=is_closed)
        far.engine.touch()
        return waits

    def _answer_detach(self) -> None:
        """The container has answered, or is gone: the client's Detach is answered."""
        is_closed, self._detached = self._detached, None
        if is_closed is not None:
            self._host.routed.pop(self, None)
            self._side.forget_routed(self._near)
            self._near.answer_detach(is_closed=is_closed)
            self._near.engine.touch()

    def _unbind(self, gone: Wire | None) -> None:
        """No message passes any more. What the side that stays had sent has its outcome before it is told."""
        path, core = self._path, self._side.core
        if path is None:
            return
        first, second = path.onward, path.inward
        order = (second, first) if path.inward.wire is gone else (first, second)
        for link in order:
            core.remove_link(link)
