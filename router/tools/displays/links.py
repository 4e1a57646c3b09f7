"""qdstat -l, -a, --autolinks and --linkroutes."""

from collections.abc import Mapping
from typing import Any

from router.tools.displays.source import Source
from router.tools.formats import Block, Table, commas, plain, time_short

_CLASSES = {
    "M": "mobile",
    "R": "router",
    "A": "area",
    "L": "local",
    "T": "topo",
    "C": "link-in",
    "E": "link-in",
    "D": "link-out",
    "F": "link-out",
    "H": "edge",
}


def split_key(key: Any) -> tuple[str, str, str]:
    """Returns an address key as class, address and phase: `M0queue` is mobile, queue, 0."""
    text = str(key or "")
    if not text:
        return "", "", ""
    name = _CLASSES.get(text[0], f"unknown: {text[0]}")
    return (name, text[2:], text[1:2]) if text[0] == "M" else (name, text[1:], "")


def links(source: Source) -> list[Block]:
    headers = ["type", "dir", "conn id", "id", "peer", "class", "addr", "phs", "cap", "pri", "undel", "unsett", "deliv"]
    headers += ["presett", "psdrop", "acc", "rej", "rel", "mod", "delay", "rate", "stuck", "cred", "blkd"]
    headers += ["admin", "oper", "name"] * source.is_verbose
    rows = []
    for link in source.limited("router.link"):
        blocked_s = link.get("zeroCreditSeconds") or 0
        delayed = (link.get("deliveriesDelayed1Sec") or 0) + (link.get("deliveriesDelayed10Sec") or 0)
        row = [
            link.get("linkType"),
            link.get("linkDir"),
            link.get("connectionId"),
            link.get("identity"),
            link.get("peer"),
            *split_key(link.get("owningAddr")),
            *_numbers(link, "capacity", "priority", "undeliveredCount", "unsettledCount", "deliveryCount"),
            *_numbers(link, "presettledCount", "droppedPresettledCount", "acceptedCount", "rejectedCount"),
            *_numbers(link, "releasedCount", "modifiedCount"),
            plain(delayed),
            *_numbers(link, "settleRate", "deliveriesStuck", "creditAvailable"),
            time_short(blocked_s) if blocked_s > 0 else "-",
        ]
        if source.is_verbose:
            row += [link.get("adminStatus"), link.get("operStatus"), link.get("linkName")]
        rows.append(row)
    return [Table(title="Router Links", headers=tuple(headers), rows=tuple(rows))]


def addresses(source: Source) -> list[Block]:
    headers = ["class", "addr", "phs", "distrib", "pri"]
    headers += ["in-proc"] * source.is_verbose + ["local", "remote", "in", "out", "thru", "fallback"]
    headers += ["to-proc", "from-proc"] * source.is_verbose
    rows = []
    for address in source.limited("router.address"):
        key = str(address.get("key") or address.get("name") or "")
        is_link_route = key[:1] in ("C", "D", "E", "F")
        priority = address.get("priority")
        row = [
            *split_key(key),
            address.get("distribution"),
            "-" if isinstance(priority, int) and priority < 0 else plain(priority),
        ]
        if source.is_verbose:
            row.append(plain(address.get("inProcess")))
        row.append(commas(address.get("containerCount" if is_link_route else "subscriberCount")))
        counters = ["remoteCount", "deliveriesIngress", "deliveriesEgress", "deliveriesTransit"]
        counters.append("deliveriesRedirectedToFallback")
        counters += ["deliveriesToContainer", "deliveriesFromContainer"] * source.is_verbose
        rows.append([*row, *(commas(address.get(name)) for name in counters)])
    rows.sort(key=lambda row: str(row[1]))
    return [Table(title="Router Addresses", headers=tuple(headers), rows=tuple(rows))]


def auto_links(source: Source) -> list[Block]:
    rows = [
        (
            link.get("address"),
            link.get("direction"),
            plain(link.get("phase")),
            link.get("externalAddress"),
            link.get("linkRef"),
            link.get("operStatus"),
            link.get("lastError"),
        )
        for link in source.limited("router.config.autoLink")
    ]
    if not rows:
        return [["AutoLinks", "No AutoLinks found"]]
    rows.sort(key=lambda row: str(row[0]))
    headers = ("addr", "dir", "phs", "extAddr", "link", "status", "lastErr")
    return [Table(title="AutoLinks", headers=headers, rows=tuple(rows))]


def link_routes(source: Source) -> list[Block]:
    found = source.limited("router.config.linkRoute")
    if not found:
        return [["Link Routes", "No Link Routes found"]]
    has_external = any(route.get("addExternalPrefix") or route.get("delExternalPrefix") for route in found)
    rows = [
        (
            route.get("prefix") or route.get("pattern"),
            route.get("direction"),
            route.get("distribution"),
            route.get("operStatus"),
            *((route.get("addExternalPrefix"), route.get("delExternalPrefix")) if has_external else ()),
        )
        for route in found
    ]
    rows.sort(key=lambda row: str(row[0]))
    headers = ("address", "dir", "distrib", "status", *(("add-ext-prefix", "del-ext-prefix") if has_external else ()))
    return [Table(title="Link Routes", headers=headers, rows=tuple(rows))]


def _numbers(entity: Mapping[str, Any], *names: str) -> list[str]:
    return [plain(entity.get(name)) for name in names]
