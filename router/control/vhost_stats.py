"""`vhostStats`: the counters of each vhost. Source: docs/spec/policy-and-auth.md §3."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from policy.usage import UsageLedger
from router.management.owners import Owner
from router.management.query import PagedRows

_PREFIX: Final = "vhostStats/"  # of names and identities


def vhost_stats_owner(ledger: UsageLedger) -> Owner:
    def row(name: str) -> Mapping[str, Any]:
        identity = f"{_PREFIX}{name}"
        return {"name": identity, "identity": identity, **ledger.vhost_stats(name)}

    def page(offset: int) -> Iterator[Mapping[str, Any]]:
        return map(row, ledger.vhost_names()[offset:])

    def find(identity: str) -> Mapping[str, Any] | None:
        name = identity.removeprefix(_PREFIX)
        return row(name) if name != identity and ledger.has_vhost(name) else None

    return Owner(type="vhostStats", rows=PagedRows(page, find, find))
