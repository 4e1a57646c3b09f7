"""The edge's side: events in, effects out. See the package.

`now` is in monotonic seconds. Links are identified by the numbers of the AttachLink effects. Events about a link that
the machine has given up have no effect.
"""

from itertools import count

from router.edge import standing
from router.edge.asking import correlation_ids
from router.edge.effects import Effect, RejectMessage
from router.edge.heartbeat import Heart
from router.edge.limits import Limits
from router.edge.link_routes import LinkRouteProxies
from router.edge.lookups import Lookups
from router.edge.messages import Malformed, Message, read_tracking
from router.edge.proxies import LocalAddress, Proxies
from router.edge.uplinks import Uplinks
from router.effects import Log


class EdgeMachine:
    def __init__(self, edge_id: str, *, started_at: int, limits: Limits | None = None) -> None:
        """Starts without an uplink.

        started_at  any number that differs at each start
        """
        limits = limits or Limits()
        names = correlation_ids(started_at)
        self._edge_id = edge_id
        self._numbers = count(1)
        self._uplinks = Uplinks()
        self._services: dict[int, str] = {}  # link -> its service
        self._proxies = Proxies(self._numbers)
        self._lookups = Lookups(names, limits)
        self._link_routes = LinkRouteProxies(edge_id, names, limits)
        self._heart = Heart()

    @property
    def uplink(self) -> int | None:
        """The active connection, or None."""
        return self._uplinks.active

    # Connections

    def connection_opened(self, connection: int) -> list[Effect]:
        """Handles that a connection of role edge is open."""
        before = self.uplink
        told = self._uplinks.opened(connection)
        return [*told, *self._follow(before)]

    def connection_closed(self, connection: int) -> list[Effect]:
        """Handles that a connection is closed, and its links with it."""
        before = self.uplink
        told = self._uplinks.closed(connection)
        return [*told, *self._follow(before)]

    def _follow(self, before: int | None) -> list[Effect]:
        """Starts on the connection that is active now."""
        active = self.uplink
        if active == before:
            return []
        effects: list[Effect] = []
        self._services.clear()
        self._heart.lost()
        self._link_routes.lost()
        self._proxies.uplink_lost()
        effects += self._lookups.lost()
        if active is not None:
            links = standing.standing_links(self._edge_id, active, self._numbers)
            self._services = {link.link: link.service for link in links if link.service is not None}
            effects += links
            effects += self._proxies.uplink_active(active)
        return effects

    # Links

    def link_attached(self, link: int, now: float, address: str | None = None) -> list[Effect]:
        """Handles that the interior answered an Attach.

        address  that it made for a dynamic source
        """
        match self._services.get(link):
            case None:
                self._proxies.attached(link)
            case standing.MANAGEMENT:
                self._link_routes.asking.link_up(link)
            case standing.MANAGEMENT_REPLIES if address:
                self._link_routes.asking.replies_up(address)
            case standing.LOOKUP:
                self._lookups.asking.link_up(link)
            case standing.LOOKUP_REPLIES if address:
                self._lookups.asking.replies_up(address)
            case standing.HEARTBEAT:
                self._heart.link_up(link, now)
            case _:
                pass  # this link alone starts nothing
        return self._link_routes.is_ready(now)

    def link_detached(self, link: int) -> list[Effect]:
        """Handles that the interior refused or closed a link. It is not attached again on this connection."""
        service = self._services.pop(link, None)
        if service is None:
            self._proxies.detached(link)
            return []
        effects: list[Effect] = []
        if service in (standing.MANAGEMENT, standing.MANAGEMENT_REPLIES):
            self._link_routes.lost()
        elif service in (standing.LOOKUP, standing.LOOKUP_REPLIES):
            effects += self._lookups.lost()
        elif service == standing.HEARTBEAT:
            self._heart.lost()
        text = f"[C{self.uplink}] The interior router closed the {service} link of this edge"
        return [Log(module="ROUTER_CORE", level="warning", text=text), *effects]

    def credit_changed(self, link: int, credit: int, now: float) -> list[Effect]:
        """Sets the current credit of a service's sender."""
        match self._services.get(link):
            case standing.MANAGEMENT:
                self._link_routes.asking.credit = credit
                return self._link_routes.is_ready(now)
            case standing.LOOKUP:
                self._lookups.asking.credit = credit
            case standing.HEARTBEAT:
                self._heart.credit = credit
            case _:
                pass
        return []

    def received(self, link: int, message: Message, now: float) -> list[Effect]:
        """Handles a message that arrived on a receiver of one of the services."""
        match self._services.get(link):
            case standing.TRACKING:
                return self._on_tracking(message)
            case standing.MANAGEMENT_REPLIES:
                return self._link_routes.received(message, now)
            case standing.LOOKUP_REPLIES:
                return self._lookups.received(message)
            case _:
                return []

    def _on_tracking(self, message: Message) -> list[Effect]:
        try:
            key, is_used = read_tracking(message)
        except Malformed as error:
            text = "Edge Address Proxy: received an invalid message body, rejecting"
            return [Log(module="ROUTER_CORE", level="error", text=text), RejectMessage(description=str(error))]
        return self._proxies.track(key, is_used=is_used)

    # The edge's own addresses and clients

    def address_changed(self, address: LocalAddress) -> list[Effect]:
        return self._proxies.changed(address)

    def link_route_activated(self, key: str, now: float) -> list[Effect]:
        return self._link_routes.activated(key, now)

    def link_route_deactivated(self, key: str, now: float) -> list[Effect]:
        return self._link_routes.deactivated(key, now)

    def look_up(self, token: int, address: str, now: float, *, is_sender: bool) -> list[Effect]:
        """Handles that a client attaches to an address. `Decided` follows, now or within 3 s."""
        return self._lookups.look_up(token, address, now, is_sender=is_sender)

    def tick(self, now: float) -> list[Effect]:
        """Runs the regular work. Must be called once a second."""
        return [*self._heart.tick(now), *self._lookups.tick(now), *self._link_routes.tick(now)]
