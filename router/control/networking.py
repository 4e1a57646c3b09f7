"""The router's place in a network: standalone, interior (with the routing protocol), or edge."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from policy.addressing.address import AREA
from router.connection.surroundings import Place
from router.control.router import Router
from router.core.addresses import Treatment
from router.core.treatments import AddressBook
from router.edge.interior import SERVICES
from router.edge.messages import HEARTBEAT_ADDRESS
from router.effects import ConnectionMembers, Emit, log

if TYPE_CHECKING:
    from router.network.host import Host


def network_place(attributes: Mapping[str, Any], addresses: AddressBook) -> Place:
    """Returns the place that the configured mode gives.

    attributes  of the `router` entity, validated
    """
    mode = attributes["mode"]
    return Place(configured=addresses.configured if mode == "interior" else None, is_edge=mode == "edge")


def start_text(attributes: Mapping[str, Any]) -> str:
    """Returns the log line with the mode in which the router starts."""
    interior = f"Interior mode, area={AREA} id={attributes['id']}"
    modes = {"interior": interior, "edge": "Edge mode", "standalone": "Standalone mode"}
    return f"Router started in {modes[attributes['mode']]}"


def join(router: Router, attributes: Mapping[str, Any], emit: Emit, *, has_test_hooks: bool) -> "Host | None":
    """Starts the edge protocol, and on an interior router the routing protocol. None on all other routers.

    Its first message leaves a second from now: an earlier process with the same boot number has sent no message.
    """
    surroundings = router.surroundings
    # Operators' scripts count the address of the heartbeat on every router. The core does not serve links to services:
    # messages that reach their addresses in other ways are dropped.
    for service in SERVICES if surroundings.edges is not None else (HEARTBEAT_ADDRESS,):
        router.core.subscribe(service, lambda _payload, _link: None, treatment=Treatment())
    for part in (surroundings.edges, surroundings.uplinks):
        if part is not None:
            router.on_second.append(part.on_second)
    network = router.core.network
    if network is None:
        return None
    # Imported here, because only interior routers need it.
    from router.network.host import POOL, TEST_HOOKS, Host, limits_of, settings_of

    settings = settings_of(router.router_id, int(time.time()), attributes)
    pool = TEST_HOOKS if has_test_hooks else POOL
    for name in ("L/qdhello", "L/qdrouter", "T/qdrouter", "L/qdrouter.ma", "T/qdrouter.ma"):
        log(emit, "ROUTER_CORE", "info", f"In-process subscription {name}")
    limits = limits_of(attributes)

    def facts_of(connection_id: int) -> ConnectionMembers:
        connection = router.connections.get(connection_id)
        return connection.gate.facts() if connection is not None else {}

    host = Host(
        settings=settings,
        network=network,
        emit=emit,
        clock=router.clock,
        facts_of=facts_of,
        limits=limits,
        pool=pool,
    )
    router.on_second.append(host.on_second)
    return host
