"""The parts of the router that connections use."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from policy.addressing.address import AREA
from router.connection.auto_links import AutoLinks
from router.connection.edge_services import EdgeServices
from router.connection.link_routes import LinkRoutes
from router.connection.trunk_messages import LOOK, stamper
from router.connection.uplinks import Uplinks
from router.core.addresses import Treatment
from router.core.core import Core
from router.core.network import Network
from router.core.uplink import Uplink
from router.core.work import SetTimer, Work
from router.effects import Emit


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The parts of the router that every connection uses.

    core        routes messages, and has the monotonic clock
    auto_links  the links that the router attaches to containers
    link_routes  decide which attaches go to containers, and to which
    version     of the router, for its Open
    wall_clock  seconds since 1970 UTC, for rules and certificates that are valid for a time
    edges       the services of an interior router for its edges; None on other routers
    uplinks     the connections of an edge router with interior routers; None on other routers
    """

    core: Core
    auto_links: AutoLinks
    link_routes: LinkRoutes
    version: str
    emit: Emit
    wall_clock: Callable[[], float]
    edges: EdgeServices | None = None
    uplinks: Uplinks | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The router's place in a network.

    configured  on an interior router: (name) → the configured treatment of an address, None if there is none
    is_edge     it is an edge router
    """

    configured: Callable[[str], Treatment | None] | None = None
    is_edge: bool = False


ALONE: Final = Place()


def assemble(
    *,
    router_id: str,
    version: str,
    work: Work,
    treatment_of: Callable[[str], Treatment],
    random_name: Callable[[], str],
    clock: Callable[[], float],
    wall_clock: Callable[[], float],
    set_timer: SetTimer,
    emit: Emit,
    place: Place = ALONE,
) -> Surroundings:
    """Makes a core and the parts around its connections, for the daemon and for the in-memory router of the tests.

    treatment_of  (name) → the treatment of the address of that name
    random_name   15 characters, never the same twice
    clock         monotonic seconds
    wall_clock    seconds since 1970 UTC
    set_timer     replaces the deadline at which an object's on_timer is called; None: no deadline
    place         in a network
    """
    core = Core(
        router_id=router_id,
        work=work,
        treatment_of=treatment_of,
        random_name=random_name,
        clock=clock,
        set_timer=set_timer,
    )
    if place.configured is not None:
        stamped = stamper(f"{AREA}/{router_id}")
        core.network = Network(core, look=LOOK, stamped=stamped, configured=place.configured)
    link_routes = LinkRoutes(core, emit)
    edges, uplinks = None, None
    if core.network is not None:
        edges = EdgeServices(core, link_routes, emit, clock)
        core.network.serve(link_routes)
    elif place.is_edge:
        core.uplink = Uplink(core.table, f"{AREA}/{router_id}", LOOK)
        uplinks = Uplinks(core, link_routes, emit, clock, started_at=int(wall_clock() * 1e9))
    return Surroundings(
        core=core,
        auto_links=AutoLinks(core, emit),
        link_routes=link_routes,
        version=version,
        emit=emit,
        wall_clock=wall_clock,
        edges=edges,
        uplinks=uplinks,
    )
