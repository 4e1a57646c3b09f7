"""Link routes: attaches for some addresses go to containers, which answer for themselves.

A link route waits for connections of the role route-container, as an auto link does. An attach that matches one goes to
the containers in turn. Sources: docs/spec/routing.md §15.1 to §15.3.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from policy.addressing.patterns import PatternTree, split_tokens
from router.admission.connection_gate import Direction
from router.amqp.engine import Session
from router.connection.auto_links import Place
from router.core.attachments import Attachment
from router.core.core import Core
from router.core.in_links import InLink
from router.core.out_links import OutLink
from router.effects import Emit, log


class Host(Protocol):
    """An open connection to a container (router.connection.peer_container).

    routed  the links that are routed to it
    """

    places: tuple[Place, ...]
    routed: "dict[Onward, None]"

    def with_session(self, call: Callable[[Session], None], failed: Callable[[], None]) -> None:
        """Call `call` with a session that is open, now or later; `failed` where there can be none."""
        ...

    @property
    def attachment(self) -> Attachment: ...
    @property
    def links(self) -> "Limiting": ...


class Limiting(Protocol):
    """The links of a connection, which hold each of them to its limits."""

    def limit_in(self, link: InLink) -> None: ...
    def limit_out(self, link: OutLink) -> None: ...


class Onward(Protocol):
    """A routed link, as the connection to its container sees it."""

    def lose(self) -> None:
        """The connection is gone."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkRoute:
    """One configured link route.

    name       as it is called in the log
    pattern    normalised
    key        of its address in the table that management shows
    direction  of the client's links
    place      None: it routes to no container of this router
    add, remove  put before the address at the container, after this was taken off its front
    """

    name: str
    pattern: str
    key: str
    direction: Direction
    place: Place | None
    add: str = ""
    remove: str = ""

    def external(self, address: str) -> str:
        """The address at the container."""
        return self.add + address.removeprefix(self.remove)

    def internal(self, external: str) -> str:
        """What a client calls an address of the container; one that no client's becomes stays as it is."""
        return self.remove + external.removeprefix(self.add) if external.startswith(self.add) else external


@dataclass(slots=True, eq=False)
class Routed:
    """What link routes of one pattern and direction share: the prefixes are those of the first.

    hosts  the containers that are there, in their turn
    """

    routes: dict[LinkRoute, None] = field(default_factory=dict)
    hosts: dict[Host, int] = field(default_factory=dict)

    @property
    def first(self) -> LinkRoute:
        return next(iter(self.routes))

    def next_host(self) -> Host | None:
        """The container for the next attach; None: there is none."""
        host = next(iter(self.hosts), None)
        if host is not None:
            self.hosts[host] = self.hosts.pop(host)  # the last in turn now
        return host

    def add_host(self, host: Host) -> None:
        self.hosts[host] = self.hosts.get(host, 0) + 1

    def discard_host(self, host: Host) -> None:
        """One route fewer that leads to it."""
        left = self.hosts.get(host, 0) - 1
        if left > 0:
            self.hosts[host] = left
        else:
            self.hosts.pop(host, None)


_BOTH: Final[tuple[Direction, Direction]] = ("send", "receive")


class LinkRoutes:
    """The configured link routes, and the containers that are there."""

    def __init__(self, core: Core, emit: Emit) -> None:
        self._core = core
        self._emit = emit
        self._routed: dict[Direction, dict[str, Routed]] = {direction: {} for direction in _BOTH}
        self._trees: dict[Direction, PatternTree | None] = dict.fromkeys(_BOTH)
        self._at: dict[Place, dict[LinkRoute, None]] = {}
        self._hosts: dict[Place, dict[Host, None]] = {}
        self.count = 0
        self.may_outlive = True  # a terminus that is to outlive its link may be routed

    def find(self, name: str, direction: Direction) -> Routed | None:
        """Of the address of that name; None: its links are not routed.

        direction  of the client's link
        """
        routed = self._routed[direction]
        if not routed:
            return None
        tree = self._trees[direction]
        if tree is None:
            tree = self._trees[direction] = PatternTree((split_tokens(pattern), pattern) for pattern in routed)
        pattern = tree.find(split_tokens(name))
        return routed[pattern] if pattern is not None else None

    def rows(self) -> Iterator[tuple[LinkRoute, int]]:
        """Each with the number of containers that its address has."""
        for by_pattern in self._routed.values():
            for routed in by_pattern.values():
                for route in routed.routes:
                    yield route, len(routed.hosts)

    def is_active(self, route: LinkRoute) -> bool:
        return route.place is not None and bool(self._hosts.get(route.place))

    def add(self, route: LinkRoute) -> None:
        self.count += 1
        by_pattern = self._routed[route.direction]
        if route.pattern not in by_pattern:
            self._trees[route.direction] = None
        routed = by_pattern.setdefault(route.pattern, Routed())
        routed.routes[route] = None
        if route.place is not None:
            self._at.setdefault(route.place, {})[route] = None
            for host in self._hosts.get(route.place, ()):
                self._activate(route, routed, host)

    def remove(self, route: LinkRoute) -> None:
        """Links that it has routed stay."""
        self.count -= 1
        by_pattern = self._routed[route.direction]
        routed = by_pattern[route.pattern]
        if route.place is not None:
            self._at[route.place].pop(route, None)
            for host in self._hosts.get(route.place, ()):
                self._deactivate(route, routed, host)
        del routed.routes[route]
        if not routed.routes:
            del by_pattern[route.pattern]
            self._trees[route.direction] = None

    def opened(self, host: Host) -> None:
        """A connection of the role route-container is open."""
        for place in host.places:
            self._hosts.setdefault(place, {})[host] = None
            for route in self._at.get(place, ()):
                self._activate(route, self._routed[route.direction][route.pattern], host)

    def lost(self, host: Host) -> None:
        for place in host.places:
            if self._hosts.get(place, {}).pop(host, self) is None:
                for route in self._at.get(place, ()):
                    self._deactivate(route, self._routed[route.direction][route.pattern], host)

    def _activate(self, route: LinkRoute, routed: Routed, host: Host) -> None:
        routed.add_host(host)
        self._log("Activated", route)

    def _deactivate(self, route: LinkRoute, routed: Routed, host: Host) -> None:
        routed.discard_host(host)
        self._log("Deactivated", route)

    def _log(self, what: str, route: LinkRoute) -> None:
        assert route.place is not None
        text = f"Link Route {what} '{route.name}' on {route.place.kind} {route.place.text}"
        log(self._emit, "ROUTER_CORE", "info", text)
