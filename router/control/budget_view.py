"""`budget`: the bytes that are held for each owner, and the limit. Source: docs/security.md, byte budgets."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from router.core.budget import Level
from router.core.core import Core
from router.management.owners import Owner
from router.management.query import PagedRows

_PREFIX: Final = "budget/"  # of names and identities


def budget_owner(core: Core) -> Owner:
    def page(offset: int) -> Iterator[Mapping[str, Any]]:
        return map(_row, islice(core.budgets.levels(), offset, None))

    def find(identity: str) -> Mapping[str, Any] | None:
        name = identity.removeprefix(_PREFIX)
        return next((_row(level) for level in core.budgets.levels() if _name(level) == name), None)

    return Owner(type="budget", rows=PagedRows(page, find, find))


def _name(level: Level) -> str:
    return f"{level.kind}/{level.name}" if level.name else level.kind


def _row(level: Level) -> Mapping[str, Any]:
    identity = f"{_PREFIX}{_name(level)}"
    return {
        "name": identity,
        "identity": identity,
        "kind": level.kind,
        "owner": level.name,
        "limit": level.limit,
        "held": level.held,
        "peak": level.peak,
        "connections": len(level.accounts),
        "heldBack": len(level.held_back),
    }
