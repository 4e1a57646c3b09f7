"""Routed links: attach, answer, detach and loss pass from one peer to the other.

An edge router asks its interior about an attach first, unless a container connected to the edge takes it
(docs/spec/network.md §14.6). Source: docs/spec/routing.md §15.3, §15.4; docs/spec/network.md §11.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from policy.addressing.address import SEPARATOR, Address
from router.amqp.engine import CannotBegin, IncomingWire, OutgoingWire, Session
from router.amqp.terminus import Condition, Terminus
from router.connection.coordination import read_request
from router.connection.link_routes import UNCHANGED, Answer, Decide, Hop, Host, Limiting, LinkRoutes, Prefixes
from router.connection.peer_messages import PeerMessages
from router.core.attachments import Attachment
from router.core.budget import Account
from router.core.coordinators import CoordinatorOut, CoordinatorPath, Transactions
from router.core.core import NO_ROUTE, Core
from router.core.routed import RoutedIn, RoutedOut, RoutedPath
from router.core.updates import Updates

Wire = IncomingWire | OutgoingWire

_COORDINATOR: Final = "$coordinator"
_EXPIRES: Final = ("link-detach", "session-end", "connection-close")
TOO_LASTING: Final = Condition(name="qd:link-expiration", description="Requested link expiration not allowed")
# Seconds that a client's Detach waits until the container has taken what the client sent before. Stops a container that
# takes nothing from keeping its clients from leaving.
LEAVE_LIMIT_S: Final = 10.0
LOST: Final = Condition(name="qd:routed-link-lost", description="Connectivity to the peer container was lost")
TOO_MANY: Final = Condition(name="amqp:resource-limit-exceeded", description="too many routed links on the connection")
TOO_LONG: Final = Condition(
    name="amqp:frame-size-too-small", description="the Attach is longer than a frame of the peer that it goes on to"
)
# Maximum number of routed links of one connection. Attack: a neighbour or an edge, which no policy counts, attaches one
# link after the other.
MAX_ROUTED: Final = 16_384
# Maximum number of attaches of one connection that wait for the interior's answer. Attack: a client attaches again and
# again while the interior answers slowly, and the edge can ask for no other client.
MAX_ASKED: Final = 256


# The link name at a container always contains the link's own name and the container id of its peer.
_FEWEST_PARTS: Final = 2


def _escaped(part: str) -> str:
    """Escapes the separator of the parts."""
    return part.replace("%", "%25").replace("@", "%40")


class Side(Limiting, Protocol):
    """The links of the connection whose peer attached (router.connection.peer_links).

    container    the container id of the peer
    user         the user name of the login; None: an anonymous peer
    keeps_names  the peer is a router, which has already made the names of links unique
    """

    attachment: Attachment
    core: Core
    container: str
    messages: PeerMessages

    @property
    def user(self) -> str | None: ...
    @property
    def keeps_names(self) -> bool: ...
    def attach_here(self, wire: Wire) -> None:
        """Binds an admitted link to an address of this router."""
        ...

    def log_attached(self, wire: Wire) -> None: ...
    def forget_routed(self, wire: Wire) -> None:
        """Stops counting a link that has ended."""
        ...


class RoutedLinks:
    """The routed links that the peer of one connection attached."""

    def __init__(self, side: Side, link_routes: LinkRoutes) -> None:
        self._side = side
        self._link_routes = link_routes
        self._links: dict[Wire, RoutedLink] = {}
        self._asked: dict[Wire, None] = {}  # wait for the interior's answer
        self._transactions: dict[Host, Transactions] = {}

    @property
    def offers_sharing(self) -> bool:
        """Returns True if the router has told clients that brokers share subscriptions."""
        return self._link_routes.takes_receivers

    def take(self, wire: Wire, terminus: Terminus | None, address: Address | None, *, limit_bytes: int) -> bool:
        """Routes an admitted link, or refuses it if no container can be reached.

        Returns False if no link route matches.

        terminus     the terminus at the other end than the peer's own
        address      None if the terminus names no address
        limit_bytes  maximum size of a message that the peer sends; 0: no limit
        """
        is_sender = isinstance(wire, IncomingWire)
        if terminus is None:
            return False
        name, full, tenant = "", "", ""
        if address is not None:
            name, full, tenant = address.name, address.full, address.name.removesuffix(address.plain)
        must = is_routed_dynamic(terminus)
        if terminus.is_coordinator:
            name = _COORDINATOR
        elif address is None or not address.is_mobile or address.is_management or address.is_dynamic:
            if must:
                self._refuse(wire, NO_ROUTE)
            return must  # an address that the router made for one peer is never routed
        hop = self._link_routes.next_hop(name, "send" if is_sender else "receive", self._side.attachment)
        if hop is None and must:
            hop = Hop(None, UNCHANGED)  # this router does not create the node in the container's place
        go = partial(
            self._go, wire, terminus, name=name, full=full, tenant=tenant,
            limit_bytes=limit_bytes if is_sender else 0,
        )  # fmt: skip
        if (hop is None or hop.host is None) and not self._side.attachment.is_edge:
            asked = full if address is not None else name
            if self._ask(wire, asked, partial(self._decided, wire, hop, go), is_sender=is_sender):
                return True
        if hop is None:
            return False
        go(hop)
        return True

    def _go(
        self, wire: Wire, terminus: Terminus, hop: Hop, *, name: str, full: str, tenant: str, limit_bytes: int,
        is_forwarded: bool = False,
    ) -> None:  # fmt: skip
        """Routes the link to its container, or refuses it.

        is_forwarded  the link goes to the interior, which makes its name unique
        """
        host = hop.host
        refusal = None if host is not None else NO_ROUTE
        if not self._link_routes.may_outlive and _lasts(terminus):
            refusal = TOO_LASTING
        elif len(self._links) >= MAX_ROUTED:
            refusal = TOO_MANY
        if host is None or refusal is not None:
            self._refuse(wire, refusal or NO_ROUTE)
            return
        side = self._side
        onward = self._names_onward(wire, tenant, is_forwarded=is_forwarded)
        if not (side.keeps_names or _lasts(terminus)):
            onward.append(f"{onward[-1]}@@@@{side.core.random_name()}")
        is_made = is_routed_dynamic(terminus)  # the container makes the address
        names = Names(
            key=f"M0{name}", onward=tuple(onward), address="" if is_made else full,
            routed_as=full if is_made and full != terminus.routed_as else None, tenant=tenant, prefixes=hop.prefixes,
        )  # fmt: skip
        link = self._links[wire] = RoutedLink(
            side, wire, host, names, self, limit_bytes=limit_bytes, number=len(self._links) + 1
        )
        link.begin()

    def _names_onward(self, wire: Wire, tenant: str, *, is_forwarded: bool) -> list[str]:
        """Returns the possible names of the next link, with the parts that distinguish this peer from other peers.

        Attack: a client uses the container id of another client and takes the name of its durable subscription.
        """
        side = self._side
        if side.keeps_names:
            return [wire.name]
        parts = [wire.name, side.container, side.user or "", tenant.removesuffix(SEPARATOR)]
        while not parts[-1] and len(parts) > _FEWEST_PARTS:
            parts.pop()
        whole = "@".join(map(_escaped, parts))
        return [_escaped(wire.name), whole] if is_forwarded and len(parts) == _FEWEST_PARTS else [whole]

    def _refuse(self, wire: Wire, condition: Condition) -> None:
        wire.refuse(condition)
        wire.engine.touch()
        self._side.forget_routed(wire)

    # Attack: an attach waits while the rules change, and is then bound by the old rules.

    def is_pending(self, wire: Wire) -> bool:
        """Returns True if the link is admitted and has no answer yet."""
        link = self._links.get(wire)
        return wire in self._asked or (link is not None and link.is_pending)

    def has_transaction(self, host: Host, name: bytes | None) -> bool:
        """Returns True if a coordinator at this container has given this transaction to the peer."""
        transactions = self._transactions.get(host)
        return transactions is not None and name in transactions

    def path(self, host: Host, key: str, inward: RoutedIn, onward: RoutedOut) -> RoutedPath:
        has_transaction = partial(self.has_transaction, host)
        if not isinstance(onward, CoordinatorOut):
            return RoutedPath(key, inward, onward, has_transaction)
        if host not in self._transactions:
            attachment = self._side.attachment
            self._transactions[host] = Transactions(attachment.account, is_neighbours=attachment.is_neighbour)
        return CoordinatorPath(key, inward, onward, has_transaction, self._transactions[host], read_request)

    def forget_coordinator(self, host: Host, path: CoordinatorPath) -> None:
        """Forgets the path of a link to a coordinator when the link ends."""
        path.let_go()
        if not path.transactions.paths:
            self._transactions.pop(host, None)

    def refuse_pending(self, wire: Wire, condition: Condition) -> None:
        if wire in self._asked:
            del self._asked[wire]
        elif (link := self._links.get(wire)) is not None:
            link.end_near(is_closed=None)
        self._refuse(wire, condition)

    # On an edge router

    def _ask(self, wire: Wire, address: str, decide: Decide, *, is_sender: bool) -> bool:
        """Asks the interior about an attach. Returns False if this router decides alone."""
        look_up = self._link_routes.look_up
        if look_up is None:
            return False
        if len(self._asked) >= MAX_ASKED:
            self._refuse(wire, TOO_MANY)
            return True
        self._asked[wire] = None
        if look_up(address, decide, is_sender=is_sender):
            return True
        self._asked.pop(wire, None)
        return False

    def _decided(
        self, wire: Wire, own: Hop | None, go: Callable[..., None], answer: Answer, uplink: Host | None
    ) -> None:
        """Continues an attach after the interior's answer.

        own  the hop of a link route that is configured here and has no container
        """
        if self._asked.pop(wire, self) is self:
            return
        if answer == "forward":
            go(Hop(uplink, UNCHANGED), is_forwarded=True)
        elif answer == "no_route" or own is not None:
            self._refuse(wire, NO_ROUTE)
        elif isinstance(wire, OutgoingWire):
            wire.engine.attach_alone(wire, partial(self._side.attach_here, wire))
            wire.engine.watch(wire.session)
            if wire.on_credit is not None:
                wire.on_credit()  # a drain came before the answer
        else:
            self._side.attach_here(wire)
        wire.engine.touch()

    # The end

    def end(self, wire: Wire, *, is_closed: bool | None) -> None:
        """Ends the routed link of this wire, if there is one.

        is_closed  the peer's Detach closes the link; None: the link is gone without a Detach
        """
        if wire in self._asked:
            del self._asked[wire]
            if is_closed is not None:
                wire.refuse(None)  # the answer to an Attach comes before the answer to its Detach
        link = self._links.get(wire)
        if link is not None and not link.end_near(is_closed=is_closed):
            self.forget(wire)

    def ask_no_more(self) -> None:
        """Drops all pending questions because the connection is closing; `losing` is called next."""
        self._asked.clear()

    def losing(self, *, reads_out: bool) -> Iterator[Iterator[None]]:
        """Returns the steps in which each container learns that the connection is lost.

        reads_out  each container first receives what the peer had sent before
        """
        return (self._losing(wire, reads_out=reads_out) for wire in list(self._links))

    def _losing(self, wire: Wire, *, reads_out: bool) -> Iterator[None]:
        try:
            if reads_out and isinstance(wire, IncomingWire):
                yield from wire.reading_out()
        finally:
            self.end(wire, is_closed=None)

    def forget(self, wire: Wire) -> None:
        self._links.pop(wire, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names and addresses of a routed link.

    key        the address key that management shows for both links
    onward     names for the next link: the first one that is free there is used; the last is the longest
    address    of the client's terminus, with the tenant's prefix; "" if it has none
    routed_as  address of a dynamic terminus, with the tenant's prefix; None: unchanged
    tenant     the prefix of the tenant's addresses
    """

    key: str
    onward: tuple[str, ...]
    address: str
    routed_as: str | None
    tenant: str
    prefixes: Prefixes

    @property
    def external(self) -> str | None:
        """The address at the container; None if the client's terminus has no address."""
        return self.prefixes.external(self.address) if self.address else None

    def internal(self, external: str) -> str:
        """Returns the name that the client uses for an address of the container."""
        return self.prefixes.internal(external).removeprefix(self.tenant)


class RoutedLink:
    """One routed link: the client's link (near) and the container's link (far; None before it is attached)."""

    def __init__(
        self,
        side: Side,
        near: Wire,
        host: Host,
        names: Names,
        links: RoutedLinks,
        *,
        limit_bytes: int,
        number: int,
    ) -> None:
        """links        all routed links of the client
        limit_bytes  maximum size of a message that the client sends; 0: no limit
        number       how many routed links the client's connection has, this one included
        """
        self._links = links
        target = near.target if isinstance(near, IncomingWire) else None
        self._is_coordinator = target is not None and target.is_coordinator
        self._side = side
        self._near = near
        self._host = host
        self._names = names
        self._limit_bytes = limit_bytes
        self._room_bytes = side.attachment.account.session_bytes(number)  # for data from the container
        self._far: Wire | None = None
        self._path: RoutedPath | None = None
        self._is_awaited = True  # counted in the host's `unanswered`
        self._is_answered = False
        self._is_over = False
        self._near_lasts = _lasts(near.target if isinstance(near, IncomingWire) else near.source)
        self._far_lasts = False
        self._detached: bool | None = None  # is_closed of a client's Detach that waits for its answer

    @property
    def is_pending(self) -> bool:
        return not (self._is_answered or self._is_over)

    def begin(self) -> None:
        self._host.routed[self] = None
        self._host.unanswered += 1
        self._host.with_session(self._account.user, self._attach, self._fail)

    def _fail(self, condition: Condition | None) -> None:
        """Ends the link because it can have no session."""
        if condition is None:
            self.lose()
            return
        self._await_no_more()
        self._answer_detach()
        self._end(None, lambda: self._near.refuse(condition))

    @property
    def _account(self) -> Account:
        """The account of the client."""
        return self._side.attachment.account

    def _await_no_more(self) -> None:
        if self._is_awaited:
            self._is_awaited = False
            self._host.unanswered -= 1

    def _attach(self, session: Session) -> None:
        if self._is_over:
            self._await_no_more()
            return
        names = self._names
        if not self._near.fits(session.engine, names.onward[-1], names.external or "", names.routed_as or ""):
            self._await_no_more()
            self._end(None, lambda: self._near.refuse(TOO_LONG))
            return
        if isinstance(self._near, OutgoingWire) and not session.wires:
            session.tell_window(min(self._room_bytes, self._host.session_bytes))
        for name in names.onward:
            try:
                self._far = session.attach_as(self._near, name, self, address=names.external, routed_as=names.routed_as)
                break
            except CannotBegin:
                continue
        if self._far is None:
            self.lose()
            return
        self._far.on_answer = self._on_answer
        if isinstance(self._far, IncomingWire):
            session.pay_by(self._account)

    def _be_over(self) -> None:
        self._is_over = True
        if isinstance(self._path, CoordinatorPath):
            self._links.forget_coordinator(self._host, self._path)
        self._pay_no_more()

    def _pay_no_more(self) -> None:
        """Lets another client pay for the data on the session if it shares the session, else the container's
        connection.
        """
        if self._far is None or (session := self._far.session).account is not self._account:
            return
        owners = (wire.owner for wire in session.wires.values())
        others = (link for link in owners if isinstance(link, RoutedLink) and not link._is_over)
        other = next(others, None)
        session.pay_by(other._account if other is not None else session.engine.account)

    def _on_answer(self) -> None:
        """Passes the container's answer, of any kind, to the client."""
        self._await_no_more()
        near, far = self._near, self._far
        if self._is_over or far is None:
            return
        self._is_answered = True
        theirs = far.target if isinstance(far, OutgoingWire) else far.source
        self._far_lasts = _lasts(theirs)
        internal = None
        if theirs is not None and theirs.address:
            internal = self._names.internal(theirs.address)
        if not far.fits(near.engine, near.name, internal or ""):
            far.close(TOO_LONG, is_peers_doing=False)
            far.engine.touch()
            self._end(far, lambda: near.refuse(TOO_LONG))
            return

        def answer() -> None:
            near.accept_as(far, address=internal, max_message_bytes=self._limit_bytes)
            if far.is_taken:
                self._bind(far)

        if isinstance(near, OutgoingWire):
            near.engine.attach_alone(near, answer)
        else:
            answer()
        if self._path is not None:
            self._path.onward.on_credit()  # credit or a drain that the receiver sent before it had its answer

    def _bind(self, far: Wire) -> None:
        """Connects both links, so that messages can pass."""
        side, near, host, core = self._side, self._near, self._host, self._side.core
        is_sender = isinstance(near, IncomingWire)
        come, go = (near, far) if is_sender else (far, near)
        assert isinstance(come, IncomingWire)
        assert isinstance(go, OutgoingWire)
        from_, to = (side.attachment, host.attachment) if is_sender else (host.attachment, side.attachment)
        inward = RoutedIn(core.next_identity(), come, from_, core.work)
        onward = (CoordinatorOut if self._is_coordinator else RoutedOut)(core.next_identity(), go, to, core.work)
        inward.is_own, onward.is_own = not is_sender, is_sender
        inward.room_bytes = self._room_bytes
        path = self._path = inward.path = onward.path = self._links.path(self._host, self._names.key, inward, onward)
        inward.on_updated = Updates(inward, lambda: [onward]).on_updated
        core.adopt(onward, to)
        come.admit(inward, path, path.forward, path.begin, inward.on_updated)
        core.adopt(inward, from_)
        if from_.pacing is not None:
            from_.pacing.adopt(inward)
        if is_sender:
            side.messages.choose_inspection(inward)
        # Each side answers for its own link: a broker's fault never ends the client's connection.
        sides: tuple[Limiting, Limiting] = (side, host.links) if is_sender else (host.links, side)
        sides[0].limit_in(inward)
        sides[1].limit_out(onward)
        side.log_attached(near)

    # The end

    def on_detach(self, far: Wire, *, is_closed: bool) -> None:
        """Handles a Detach from the container, or the end of its session."""
        self._await_no_more()
        if self._is_over:
            if self._is_leaving and not far.session.is_ended:
                self._leave()
            if self._detached is not None and not far.session.is_ended:
                # The Detach may carry an error, or say that the terminus is gone that the client wanted to keep.
                self._near.detach_as(far, is_closed=is_closed or self._detached)
            self._answer_detach()
            return
        if far.session.is_ended or not self._is_answered:
            self.lose()
        else:
            self._end(far, lambda: self._near.detach_as(far, is_closed=is_closed))

    def lose(self) -> None:
        """Ends the link because the container cannot be reached any more."""
        self._await_no_more()
        self._answer_detach()
        self._end(self._far, self._break_off)

    def _break_off(self) -> None:
        if self._is_answered:
            _tell_loss(self._near, lasts=self._far_lasts)
        else:
            self._near.refuse(NO_ROUTE)

    def _end(self, gone: Wire | None, tell: Callable[[], None]) -> None:
        """Ends the container's side and calls `tell`, which informs the client."""
        if self._is_over:
            return
        self._be_over()
        self._host.routed.pop(self, None)
        self._unbind(gone)
        tell()
        self._near.engine.touch()
        self._side.forget_routed(self._near)

    def end_near(self, *, is_closed: bool | None) -> bool:
        """Handles the client's Detach. Returns True if the client must wait for the container's answer.

        A link name is therefore free for the client only after it is free at the container.

        is_closed  the Detach closes the link; None: the link is gone without a Detach
        """
        near, far = self._near, self._far
        if self._is_over:
            self._detached = None  # the session or the connection is gone: the client waits no longer
            self._host.routed.pop(self, None)
            if self._is_leaving:
                self._leave(is_lost=True)
            return False
        self._be_over()
        waits = far is not None and is_closed is not None and not near.session.is_ended
        if waits:
            near.is_answered_later, self._detached = True, is_closed
        else:
            self._host.routed.pop(self, None)
        if waits and self._has_left_messages():
            return True
        self._unbind(near)
        if not self._is_answered and is_closed is not None:
            near.refuse(None)  # the answer to an Attach comes before the answer to its Detach
        if far is None:
            return False
        if is_closed is None or near.session.is_ended:
            _tell_loss(far, lasts=self._near_lasts)
        else:
            far.detach_as(near, is_closed=is_closed)
        far.engine.touch()
        return waits

    def _has_left_messages(self) -> bool:
        """Returns True if messages of the client still wait for the container: then the Detach is sent after them.

        They wait only while the client's connection stays. Stops clients that connect and leave from collecting more
        and more messages for a container that takes nothing.
        """
        path = self._path
        if path is None or path.inward.wire is not self._near:
            return False
        core = self._side.core
        core.remove_link(path.inward)
        if path.onward.is_open and path.onward.has_waiting:
            path.on_emptied = self._leave
            core.set_timer(self, core.clock() + LEAVE_LIMIT_S)
        return self._is_leaving

    @property
    def _is_leaving(self) -> bool:
        return self._path is not None and self._path.on_emptied is not None

    def on_timer(self, _now: float) -> None:
        self._leave()

    def _stay_no_longer(self, path: RoutedPath) -> None:
        path.on_emptied = None
        self._side.core.set_timer(self, None)
        self._unbind(self._near)

    def _leave(self, *, is_lost: bool = False) -> None:
        """Sends the client's Detach, or reports its loss, once all messages are sent or can no longer be sent."""
        far, path = self._far, self._path
        assert far is not None
        assert path is not None
        self._stay_no_longer(path)
        if is_lost or self._detached is None:
            _tell_loss(far, lasts=self._near_lasts)
        else:
            far.detach_as(self._near, is_closed=self._detached)
        far.engine.touch()

    def _answer_detach(self) -> None:
        """Answers the client's Detach once the container has answered or is gone."""
        if self._is_leaving:
            assert self._path is not None
            self._stay_no_longer(self._path)
        is_closed, self._detached = self._detached, None
        if is_closed is not None:
            self._host.routed.pop(self, None)
            self._side.forget_routed(self._near)
            self._near.answer_detach(is_closed=is_closed)
            self._near.engine.touch()

    def _unbind(self, gone: Wire | None) -> None:
        """Stops messages on both links.

        The side that stays gets the outcomes of what it sent before it learns of the end.
        """
        path, core = self._path, self._side.core
        if path is None:
            return
        first, second = path.onward, path.inward
        order = (second, first) if path.inward.wire is gone else (first, second)
        for link in order:
            core.remove_link(link)


def is_routed_dynamic(terminus: Terminus | None) -> bool:
    """Returns True if the container of a link route is to make the node of this dynamic terminus."""
    return terminus is not None and terminus.is_dynamic and terminus.routed_as is not None


def _lasts(terminus: Terminus | None) -> bool:
    """Returns True if the terminus is to exist after its link and its connection are gone."""
    return terminus is not None and bool(terminus.timeout_s or terminus.expiry_policy not in _EXPIRES)


def _tell_loss(wire: Wire, *, lasts: bool) -> None:
    """Tells one side that the other link is lost: detaches the link if its terminus lasts, else closes it.

    A close would make a broker end the durable subscription of a client whose connection broke.
    """
    if lasts:
        wire.detach(LOST)
    else:
        wire.close(LOST, is_peers_doing=False)
