"""qdstat --budgets, which qpid-dispatch 1.20 does not have."""

from router.tools.displays.source import Source
from router.tools.formats import Block, Table, plain

_NIL = "-"


def budgets(source: Source) -> list[Block]:
    rows = [
        (
            budget.get("kind"),
            budget.get("owner") or _NIL,
            plain(budget.get("held")),
            plain(budget.get("peak")),
            plain(budget.get("limit")) if budget.get("limit") else "none",
            plain(budget.get("connections")),
            plain(budget.get("heldBack")),
        )
        for budget in source.limited("budget")
    ]
    if not rows:
        return [["No Budgets"]]
    headers = ("kind", "owner", "held", "peak", "limit", "connections", "heldBack")
    return [Table(title="Byte Budgets", headers=headers, rows=tuple(rows))]
