"""Link routes: attaches for some addresses go to containers, which answer them.

A link route waits for connections of the role route-container, as an auto link does. A link route that a connection
made for itself ends with the connection. Matching attaches go to the containers in turn. If this router has none, the
attach goes to another router that has one. Sources: docs/spec/routing.md §15.1 to §15.3, §16; docs/spec/network.md §11.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from policy.addressing.patterns import ANY_NUMBER, PatternTree, configured_tokens, split_tokens
from router.admission.connection_gate import Direction
from router.amqp.engine import Session
from router.amqp.terminus import Condition
from router.connection.auto_links import Place
from router.connection.meetings import Meetings
from router.core.addresses import LINK_BALANCED, LiveAddress
from router.core.attachments import Attachment
from router.core.core import Core
from router.core.in_links import InLink
from router.core.out_links import OutLink
from router.core.remotes import RemoteRouter
from router.effects import Emit, log

_WILD: Final = ("*", ANY_NUMBER)
# Maximum number of words in the patterns of one other router. Attack: a neighbour claims patterns of thousands of
# words.
MAX_TOKENS_PER_ROUTER: Final = 65_536
# Maximum number of connections with own routes that policy is asked about at one attach.
MAX_JUDGED: Final = 16


class Host(Protocol):
    """An open connection that can take attaches (router.connection.hosting).

    routed      the links that are routed to it
    unanswered  how many of them its peer has not answered yet
    is_gone     the connection is gone: it takes no attach
    """

    places: tuple[Place, ...]
    routed: "dict[Onward, None]"
    unanswered: int
    is_gone: bool

    def begin(self) -> bool:
        """Begins the session if there is none. Returns False if no session is possible."""
        ...

    def with_session(
        self, owner: object, call: Callable[[Session], None], failed: Callable[[Condition | None], None], /
    ) -> None:
        """Calls `call` with an open session, now or later; calls `failed` if no session is possible.

        owner   the user that the link belongs to
        failed  receives the reason; None if the peer cannot be reached any more
        """
        ...

    def full(self, why: str, /) -> Condition:
        """Returns the error for a link that the peer has no capacity for."""
        ...

    @property
    def attachment(self) -> Attachment: ...
    @property
    def container(self) -> str: ...
    @property
    def session_bytes(self) -> int:
        """Maximum number of unread bytes on one session."""
        ...

    @property
    def links(self) -> "Limiting": ...
    @property
    def is_full(self) -> bool:
        """Returns True if the peer leaves too many links unanswered, so that it gets no more."""
        ...

    def takes(self, name: str, direction: Direction, /) -> bool:
        """Returns True if links to this address may go to a peer that made a link route for itself."""
        ...


class Limiting(Protocol):
    """The links of a connection; limits each of them."""

    def limit_in(self, link: InLink) -> None: ...
    def limit_out(self, link: OutLink) -> None: ...


class Onward(Protocol):
    """The interface of a routed link for the connection to its container."""

    def lose(self) -> None:
        """Ends the link because the connection is gone."""
        ...


Answer = Literal["local", "forward", "no_route"]
# (answer, the uplink if the answer is "forward")
Decide = Callable[[Answer, Host | None], None]


class LookUp(Protocol):
    """Asks the interior of an edge router about an attach (router.connection.uplinks)."""

    def __call__(self, address: str, decide: Decide, /, *, is_sender: bool) -> bool:
        """Returns False if no interior can be asked. Else calls `decide` later, or never if the router stops."""
        ...


class Prefixes(Protocol):
    """Translates addresses between the client and the container."""

    def external(self, address: str, /) -> str: ...
    def internal(self, external: str, /) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkRoute:
    """One link route, from the configuration or from a connection.

    name       as it appears in the log
    pattern    normalised
    key        key of its address in the table that management shows
    direction  of the client's links
    place      the connections that it waits for; None: it routes to no container of this router
    add, remove  `remove` is taken from the front of the address, then `add` is put there
    """

    name: str
    pattern: str
    key: str
    direction: Direction
    place: Place | None
    add: str = ""
    remove: str = ""

    def external(self, address: str) -> str:
        """Returns the address at the container."""
        return self.add + address.removeprefix(self.remove)

    def internal(self, external: str) -> str:
        """Returns the client's name for an address of the container.

        Without the prefix `add` the address stays unchanged.
        """
        return self.remove + external.removeprefix(self.add) if external.startswith(self.add) else external


class _Unchanged:
    """Leaves addresses unchanged: another router uses the same ones."""

    def external(self, address: str) -> str:
        return address

    def internal(self, external: str) -> str:
        return external


UNCHANGED: Final = _Unchanged()


@dataclass(frozen=True, slots=True)
class Hop:
    """The next destination of an attach.

    host  None: there is no destination now
    """

    host: Host | None
    prefixes: Prefixes


_NOWHERE: Final = Hop(None, UNCHANGED)


@dataclass(slots=True, eq=False)
class Routed:
    """The common data of all link routes with one pattern and direction. The prefixes come from the first route.

    hosts    the containers in their turn, each with its number of routes; some may be gone (Host.is_gone)
    own      the route of each connection that made one for itself
    routers  other routers that have containers, in their turn, each with its number of keys
    live     the address; None if only other routers have routes of this pattern
    """

    routes: dict[LinkRoute, None] = field(default_factory=dict)
    hosts: dict[Host, int] = field(default_factory=dict)
    own: dict[Host, LinkRoute] = field(default_factory=dict)
    routers: dict[RemoteRouter, int] = field(default_factory=dict)
    live: LiveAddress | None = None

    @property
    def is_unused(self) -> bool:
        return not (self.routes or self.routers)

    @property
    def is_own(self) -> bool:
        """Returns True if all routes were made by connections for themselves."""
        return not self.routers and len(self.own) == len(self.routes)

    def next_host(self, from_: Attachment, takes: Callable[[Host], bool]) -> Host | None:
        """Returns the container for the next attach, or None. No router gets back an attach that it sent.

        takes  returns True if a connection that made a route for itself may get this attach
        """
        is_routers = from_.is_edge or from_.is_trunk
        for host, count in self.hosts.items():
            if host.is_gone or host.is_full or (is_routers and host.attachment is from_):
                continue
            if count == 1 and host in self.own and not takes(host):
                continue
            self.hosts[host] = self.hosts.pop(host)  # moves the host to the last place
            return host
        return None

    def is_taken(self, takes: Callable[[Host], bool]) -> bool:
        """Returns True if a container takes the attach.

        takes  see next_host
        """
        return any(not (host.is_gone or host.is_full) and takes(host) for host in self.own)

    def next_router(self, from_: Attachment) -> RemoteRouter | None:
        """Returns the router for the next attach, in turn. For an attach from another router: the nearest router.

        Therefore no attach runs in a circle: each router on its way is nearer to a container than the one before. 1.20
        takes any router. There, two routers whose containers left at the same time send an attach back and forth.
        """
        reached = [
            router for router in self.routers if router.trunk is not None and router.trunk.attachment is not from_
        ]
        if from_.is_trunk and reached:
            least = min(router.cost for router in reached)
            reached = [router for router in reached if router.cost == least]
        if not reached:
            return None
        found = reached[0]
        self.routers[found] = self.routers.pop(found)
        return found

    def prefixes_of(self, host: Host) -> LinkRoute:
        own = self.own.get(host)
        return own if own is not None else next(iter(self.routes))


@dataclass(slots=True)
class _Far:
    """The link route keys of another router that are among the patterns, and the number of words in them."""

    keys: set[str] = field(default_factory=set)
    tokens: int = 0


_BOTH: Final[tuple[Direction, Direction]] = ("send", "receive")


class LinkRoutes:
    """All link routes, and the containers and routers that serve them.

    hosts_of_trunks  by connection id: the host that takes links to another router
    on_served        called with (address, True) after its first container came, (address, False) after the last left
    look_up          asks the interior; None: this is no edge router
    """

    def __init__(self, core: Core, emit: Emit) -> None:
        self._core = core
        self._emit = emit
        self._routed: dict[Direction, dict[str, Routed]] = {direction: {} for direction in _BOTH}
        self._trees: dict[Direction, PatternTree] = {direction: PatternTree(()) for direction in _BOTH}
        self._meetings: Meetings[LinkRoute, Host] = Meetings(core.work, self._met, self._parted)
        self._own: dict[Host, dict[LinkRoute, None]] = {}
        self._far: dict[RemoteRouter, _Far] = {}
        self.hosts_of_trunks: dict[int, Host] = {}
        self.on_served: Callable[[LiveAddress, bool], None] = lambda _address, _is_served: None
        self.look_up: LookUp | None = None
        self.count = 0
        self.may_outlive = True  # link routes accept a terminus that is to exist after its link

    # Looked up at each attach

    def find(self, name: str, direction: Direction) -> Routed | None:
        """Returns the routes for the address of that name; None if its links are not routed.

        direction  of the client's link
        """
        takes = self._judge(name, direction)
        return next((each for each in self._matching(name, direction) if not each.is_own or each.is_taken(takes)), None)

    def _matching(self, name: str, direction: Direction) -> Iterator[Routed]:
        """Returns the routes whose patterns match the name, the best first."""
        routed = self._routed[direction]
        if not routed:
            return iter(())
        return (routed[pattern] for pattern in self._trees[direction].matches(split_tokens(name)))

    def _judge(self, name: str, direction: Direction) -> Callable[[Host], bool]:
        """Returns a function that says whether a connection with an own route may get an attach to the address.

        Attack: a client takes the pattern `#` and keeps all other clients from every address. So an address with
        receivers belongs to them, and policy judges every address for the client. Attack: clients have hundreds of
        patterns, and the router judges all of them at each attach.
        """
        live = self._core.table.addresses.get(f"M0{name}")
        is_received = live is not None and live.has_own_path
        judged: dict[Host, bool] = {}

        def takes(host: Host) -> bool:
            if is_received or (host not in judged and len(judged) >= MAX_JUDGED):
                return False
            if host not in judged:
                judged[host] = host.takes(name, direction)
            return judged[host]

        return takes

    @property
    def takes_receivers(self) -> bool:
        return bool(self._routed["receive"])

    def next_hop(self, name: str, direction: Direction, from_: Attachment) -> Hop | None:
        """Returns the destination of the next link to the address; None if its links are not routed.

        from_  the connection that the attach came on
        """
        takes = self._judge(name, direction)
        for routed in self._matching(name, direction):
            host = routed.next_host(from_, takes)
            if host is not None:
                return Hop(host, routed.prefixes_of(host))
            if routed.is_own:
                continue  # no connection takes it
            router = routed.next_router(from_)
            if router is None or router.trunk is None:
                return _NOWHERE
            host = self.hosts_of_trunks.get(router.trunk.attachment.connection_id)
            return Hop(host, UNCHANGED) if host is not None and not host.is_full else _NOWHERE
        return None

    def has_destination(self, routed: Routed) -> bool:
        """Returns True if this router or another router has a container for the routes."""
        is_here = any(not host.is_gone for host in routed.hosts)
        return is_here or any(router.trunk is not None for router in routed.routers)

    # Configured link routes

    def is_active(self, route: LinkRoute) -> bool:
        return route.place is not None and self._meetings.has_met(route, route.place)

    def add(self, route: LinkRoute) -> None:
        self.count += 1
        self._enter(route)
        if route.place is not None:
            self._meetings.add(route, route.place)

    def remove(self, route: LinkRoute) -> None:
        """Removes a configured link route. Links that it has already routed stay."""
        self.count -= 1
        if route.place is not None:
            self._meetings.remove(route, route.place)
        self._leave(route, self._routed[route.direction][route.pattern])

    def _enter(self, route: LinkRoute) -> Routed:
        routed = self._obtain(route.direction, route.pattern)
        routed.routes[route] = None
        if routed.live is None:
            table = self._core.table
            routed.live = table.addresses.get(route.key) or table.make(route.key, LINK_BALANCED)
            routed.live.holders += 1
        return routed

    def _leave(self, route: LinkRoute, routed: Routed) -> None:
        del routed.routes[route]
        if not routed.routes and routed.live is not None:
            live, routed.live = routed.live, None
            live.holders -= 1
            self._core.table.discard_unused(live)
        self._discard_unused(route.direction, route.pattern)

    def _obtain(self, direction: Direction, pattern: str) -> Routed:
        routed = self._routed[direction].get(pattern)
        if routed is None:
            routed = self._routed[direction][pattern] = Routed()
            self._trees[direction].add(split_tokens(pattern), pattern)
        return routed

    def _discard_unused(self, direction: Direction, pattern: str) -> None:
        if self._routed[direction][pattern].is_unused:
            del self._routed[direction][pattern]
            self._trees[direction].discard(split_tokens(pattern))

    # Link routes that a connection made for itself

    def add_own(self, route: LinkRoute, host: Host) -> bool:
        """Gives a connection the links of a pattern. Returns False if it has that pattern already, or is gone."""
        if host.is_gone:
            return False
        own = self._own.setdefault(host, {})
        if any((other.direction, other.pattern) == (route.direction, route.pattern) for other in own):
            return False
        own[route] = None
        routed = self._enter(route)
        routed.own[host] = route
        self._activate(route, routed, host)
        return True

    def remove_own(self, route: LinkRoute, host: Host) -> None:
        """Removes a connection's own link route; does nothing if it has none. Links that it has already routed stay."""
        if self._own.get(host, {}).pop(route, self) is self:
            return
        routed = self._routed[route.direction][route.pattern]
        routed.own.pop(host, None)
        self._deactivate(route, routed, host)
        self._leave(route, routed)

    def own(self, host: Host) -> list[LinkRoute]:
        return list(self._own.get(host, ()))

    # Connections

    def opened(self, host: Host) -> None:
        """Connects the routes with an open connection of the role route-container, in turns: there may be thousands."""
        self._meetings.opened(host)

    def lost(self, host: Host) -> None:
        """Handles the loss of a connection of any role. It takes no more attaches; its routes are removed in turns."""
        host.is_gone = True
        self._meetings.lost(host)
        if host in self._own:
            self._core.work.begin(self._removing_own(host))
        self.hosts_of_trunks.pop(host.attachment.connection_id, None)

    def _removing_own(self, host: Host) -> Iterator[None]:
        for route in self.own(host):
            self.remove_own(route, host)
            yield
        del self._own[host]

    def _met(self, route: LinkRoute, host: Host) -> None:
        self._activate(route, self._routed[route.direction][route.pattern], host)

    def _parted(self, route: LinkRoute, host: Host, _is_gone: bool) -> None:
        self._deactivate(route, self._routed[route.direction][route.pattern], host)

    def _activate(self, route: LinkRoute, routed: Routed, host: Host) -> None:
        routed.hosts[host] = routed.hosts.get(host, 0) + 1
        self._count(routed)
        host.begin()  # before the first attach needs the session, which takes a round trip
        self._log("Activated", route)

    def _deactivate(self, route: LinkRoute, routed: Routed, host: Host) -> None:
        left = routed.hosts.get(host, 0) - 1
        if left > 0:
            routed.hosts[host] = left
        else:
            routed.hosts.pop(host, None)
        self._count(routed)
        self._log("Deactivated", route)

    def _count(self, routed: Routed) -> None:
        live = routed.live
        if live is None:
            return
        before, live.containers = live.containers, len(routed.hosts)
        if bool(before) is not bool(live.containers):
            self.on_served(live, bool(live.containers))

    def _log(self, what: str, route: LinkRoute) -> None:
        assert route.place is not None
        text = f"Link Route {what} '{route.name}' on {route.place.kind} {route.place.text}"
        log(self._emit, "ROUTER_CORE", "info", text)

    # Link routes of other routers (router.core.network)

    def mapped(self, router: RemoteRouter, key: str) -> None:
        found = read_key(key)
        far = self._far.get(router) or _Far()
        tokens = _token_count(key)
        if found is None or far.tokens + tokens > MAX_TOKENS_PER_ROUTER:
            return
        self._far[router] = far
        far.tokens += tokens
        far.keys.add(key)
        routers = self._obtain(*found).routers
        routers[router] = routers.get(router, 0) + 1

    def unmapped(self, router: RemoteRouter, key: str) -> None:
        found, far = read_key(key), self._far.get(router)
        if found is None or far is None or key not in far.keys:
            return
        far.tokens -= _token_count(key)
        far.keys.discard(key)
        if not far.keys:
            del self._far[router]
        routers = self._routed[found[0]][found[1]].routers
        left = routers.pop(router) - 1
        if left:
            routers[router] = left
        self._discard_unused(*found)


def _token_count(key: str) -> int:
    """Returns an upper bound for the number of words in the pattern of the key."""
    return key.count(".") + key.count("/") + 2


def key_of(tokens: tuple[str, ...], written: str, *, is_in: bool) -> str:
    """Returns the key of the link route's address (§15.2).

    A prefix, or a pattern that equals a prefix, gives a key of its words. Any other pattern gives a key of the pattern.

    tokens   of the pattern
    written  the configured prefix or pattern
    """
    *words, last = tokens
    if last == ANY_NUMBER and not any(word in _WILD for word in words):
        return ("C" if is_in else "D") + written.strip("./").removesuffix(ANY_NUMBER).strip("./")
    return ("E" if is_in else "F") + written


def read_key(key: str) -> tuple[Direction, str] | None:
    """Returns direction and pattern of a key; None if the key belongs to no link route."""
    is_prefix = key[0] in "CD" and len(key) > 1  # a letter alone is the key of the pattern `#`
    try:
        tokens = configured_tokens(key[1:] if is_prefix else None, None if is_prefix else key[1:] or ANY_NUMBER)
    except ValueError:
        return None
    return "send" if key[0] in "CE" else "receive", "/".join(tokens)
