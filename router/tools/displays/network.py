"""qdstat -n, as a table and as a graph."""

import time

from policy.printing import printable
from router.tools.displays.source import Source
from router.tools.formats import Block, Table, plain

_VERBOSE = ("ver", "cost", "neighbors", "valid-origins")


def nodes(source: Source) -> list[Block]:
    found = sorted(source.limited("router.node"), key=lambda node: str(node.get("id")))
    if not found:
        return [["Router is Standalone - No Router List"]]
    headers = ("router-id", "next-hop", "link", *(_VERBOSE if source.is_verbose else ()))
    rows = []
    for node in found:
        next_hop, link = node.get("nextHop"), node.get("routerLink")
        row = [node.get("id"), next_hop or "-", "-" if next_hop else plain(link)]
        if source.is_verbose:
            row += [plain(node.get("protocolVersion")), plain(node["cost"]) if node.get("cost") else ""]
            row += [str(node.get("linkState") or []), str(node.get("validOrigins") or [])]
        rows.append(row)
    subtitle = ""
    changed_s = max((node.get("lastTopoChange") or 0 for node in found), default=0)
    if changed_s > 1:
        subtitle = time.strftime("Last Topology Change: %A %b %d %H:%M:%S %Y GMT", time.gmtime(changed_s))
    return [Table(title="Routers in the Network", subtitle=subtitle, headers=headers, rows=tuple(rows))]


def dot(source: Source) -> list[str]:
    """Returns the routers and their neighbours, in the language of Graphviz."""
    found = sorted(source.all("router.node"), key=lambda node: str(node.get("id")))
    names = [str(node.get("id")) for node in found]
    if not found:
        names = [str(router.get("id")) for router in source.all("router")]
    lines = {f"  {_quoted(name)};": None for name in names}
    for node in found:
        for other in node.get("linkState") or ():
            lines |= {f"  {' -- '.join(map(_quoted, sorted((str(node.get('id')), str(other)))))};": None}
    return ["graph network {", "  layout=neato; overlap=false; node [shape=box];", *lines, "}"]


def _quoted(name: str) -> str:
    """Returns the name as a quoted string. Attack: a neighbour's id that would be a statement of the graph."""
    text = printable(name).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
