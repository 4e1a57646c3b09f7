"""The link routes that a container serves at the edge, announced on the interior. Source: docs/spec/network.md §14.7.

Each route has one request at a time. If a route changes meanwhile, it is checked again when the answer has arrived.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from router.edge.asking import Asking
from router.edge.effects import Effect
from router.edge.limits import Limits
from router.edge.messages import Malformed, Message, create_link_route, delete_link_route, read_management_reply
from router.effects import Log

ANSWER_IN_S: Final = 10.0
_CREATED: Final = 201
_DELETED: Final = (204, 404)


class _State(Enum):
    ABSENT = auto()
    CREATING = auto()
    PRESENT = auto()
    DELETING = auto()
    REFUSED = auto()  # until it becomes inactive, or another uplink takes over


@dataclass(slots=True)
class _Route:
    """One link route.

    identity  of the interior's entity, if there is one
    """

    key: str
    token: int
    is_active: bool = True
    state: _State = _State.ABSENT
    identity: str = ""


class LinkRouteProxies:
    def __init__(self, edge_id: str, correlation_ids: Iterator[str], limits: Limits) -> None:
        self.asking = Asking(correlation_ids, answer_in_s=ANSWER_IN_S, limit=limits.waiting_management_requests)
        self._edge_id = edge_id
        self._routes: dict[str, _Route] = {}
        self._by_token: dict[int, _Route] = {}
        self._last_token = 0

    def activated(self, key: str, now: float) -> list[Effect]:
        """Announces a link route.

        key  of class C, D, E or F
        """
        route = self._routes.get(key)
        if route is None:
            self._last_token += 1
            route = self._routes[key] = self._by_token[self._last_token] = _Route(key, self._last_token)
        route.is_active = True
        return self._go_on(route, now)

    def deactivated(self, key: str, now: float) -> list[Effect]:
        route = self._routes.get(key)
        if route is None:
            return []
        route.is_active = False
        return self._go_on(route, now)

    def is_ready(self, now: float) -> list[Effect]:
        """Continues, because the links are attached, or have credit again."""
        for route in list(self._routes.values()):
            self._want(route, now)
        return [*self.asking.send()]

    def received(self, message: Message, now: float) -> list[Effect]:
        token = self.asking.answered(message)
        route = self._by_token.get(token) if token is not None else None
        if route is None:
            return []
        try:
            status, body = read_management_reply(message)
        except Malformed:
            status, body = 0, {}
        effects: list[Effect] = []
        identity = body.get("identity")
        if route.state is _State.CREATING and status == _CREATED and isinstance(identity, str):
            route.state, route.identity = _State.PRESENT, str(identity)
        elif route.state is _State.CREATING:
            route.state = _State.REFUSED
            effects.append(self._complain(route, "created", status))
        else:
            route.state = _State.ABSENT
            if status not in _DELETED:
                effects.append(self._complain(route, "deleted", status))
        return [*effects, *self._go_on(route, now)]

    def lost(self) -> None:
        """Forgets the uplink that is gone, and everything that was made there."""
        self.asking.lost()
        for route in list(self._routes.values()):
            route.state = _State.ABSENT
            if not route.is_active:
                self._forget(route)

    def tick(self, now: float) -> list[Effect]:
        for token in self.asking.expired(now):
            # It is unknown whether the route was made. If it is made again under its name, it is refused, and stays.
            route = self._by_token[token]
            route.state = _State.ABSENT
            if not route.is_active:
                self._forget(route)
        return []

    def _go_on(self, route: _Route, now: float) -> list[Effect]:
        self._want(route, now)
        return [*self.asking.send()]

    def _want(self, route: _Route, now: float) -> None:
        """Requests what is missing. A request that cannot be sent now is made later."""
        name = f"{self._edge_id}/proxyLinkRoute/{route.key}"
        if route.is_active and route.state is _State.ABSENT:
            message = create_link_route(name, _pattern(route.key), is_in=route.key[0] in "CE")
            if self.asking.is_ready and self.asking.ask(route.token, message, now):
                route.state = _State.CREATING
        elif not route.is_active and route.state is _State.PRESENT:
            if self.asking.ask(route.token, delete_link_route(name, route.identity), now):
                route.state = _State.DELETING
        elif not route.is_active and route.state in (_State.ABSENT, _State.REFUSED):
            self._forget(route)

    def _forget(self, route: _Route) -> None:
        self._routes.pop(route.key, None)
        self._by_token.pop(route.token, None)

    def _complain(self, route: _Route, done: str, status: int) -> Log:
        text = f"Link route '{route.key}' was not {done} on the interior router: status {status}"
        return Log(module="ROUTER_CORE", level="error", text=text)


def _pattern(key: str) -> str:
    return f"{key[1:]}/#" if key[0] in "CD" else key[1:]
