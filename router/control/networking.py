"""The router's place in a network: standalone, or interior, which runs the routing protocol."""

import time
from collections.abc import Mapping
from typing import Any

from policy.addressing.address import AREA
from router.control.router import Router
from router.effects import Emit, log
from router.network.host import POOL, TEST_HOOKS, Host, limits_of, settings_of


def is_interior(attributes: Mapping[str, Any]) -> bool:
    """attributes  of the `router` entity, validated"""
    return bool(attributes["mode"] == "interior")


def start_text(attributes: Mapping[str, Any]) -> str:
    """The line that says which mode the router starts in."""
    mode = f"Interior mode, area={AREA} id={attributes['id']}" if is_interior(attributes) else "Standalone mode"
    return f"Router started in {mode}"


def join(router: Router, attributes: Mapping[str, Any], emit: Emit, *, has_test_hooks: bool) -> Host | None:
    """Run the routing protocol; None where the router is in no network.

    Its first message leaves a second from now: an earlier process with the same boot number has sent none.
    """
    network = router.core.network
    if network is None:
        return None
    settings = settings_of(router.router_id, int(time.time()), attributes)
    pool = TEST_HOOKS if has_test_hooks else POOL
    for name in ("L/qdhello", "L/qdrouter", "T/qdrouter", "L/qdrouter.ma", "T/qdrouter.ma"):
        log(emit, "ROUTER_CORE", "info", f"In-process subscription {name}")
    limits = limits_of(attributes)
    host = Host(settings=settings, network=network, emit=emit, clock=router.clock, limits=limits, pool=pool)
    router.on_second.append(host.on_second)
    return host
