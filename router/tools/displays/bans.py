"""qdstat --bans, which qpid-dispatch 1.20 does not have."""

from router.tools.displays.source import Source
from router.tools.formats import Block, Table, plain

_NIL = "-"


def bans(source: Source) -> list[Block]:
    rows = [
        (
            ban.get("name"),
            ban.get("remoteHost") or _NIL,
            ban.get("user") or _NIL,
            ban.get("origin"),
            ban.get("created"),
            ban.get("expires") or "never",
            plain(ban.get("hits")),
            ban.get("reason") or _NIL,
        )
        for ban in source.limited("ban")
    ]
    if not rows:
        return [["No Bans"]]
    headers = ("name", "host", "user", "origin", "created", "expires", "hits", "reason")
    return [Table(title="Bans", headers=headers, rows=tuple(rows))]
