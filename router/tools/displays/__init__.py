"""The displays of qdstat: each display is a function from a Source to blocks of output.

Source of the layouts: docs/spec/management.md section 9.3.
"""

from collections.abc import Callable, Mapping

from router.tools.displays.bans import bans
from router.tools.displays.budgets import budgets
from router.tools.displays.connections import connections, edge_connections
from router.tools.displays.general import general, log, memory
from router.tools.displays.links import addresses, auto_links, link_routes, links
from router.tools.displays.network import nodes
from router.tools.displays.source import Source
from router.tools.displays.vhosts import policy, vhost_groups, vhost_stats, vhosts
from router.tools.formats import Block

Display = Callable[[Source], list[Block]]

DISPLAYS: Mapping[str, Display] = {
    "general": general,
    "connections": connections,
    "links": links,
    "nodes": nodes,
    "edge": edge_connections,
    "address": addresses,
    "memory": memory,
    "policy": policy,
    "autolinks": auto_links,
    "linkroutes": link_routes,
    "vhosts": vhosts,
    "vhostgroups": vhost_groups,
    "vhoststats": vhost_stats,
    "bans": bans,
    "budgets": budgets,
    "log": log,
}
# Printed without date and router id above it.
WITHOUT_HEADER = frozenset({"vhosts", "vhostgroups", "vhoststats", "bans", "budgets", "log"})
ALL_ENTITIES = (
    "links",
    "address",
    "connections",
    "autolinks",
    "linkroutes",
    "general",
    "memory",
    "policy",
    "vhosts",
    "vhoststats",
)
