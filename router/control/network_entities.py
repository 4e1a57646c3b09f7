"""`router.node`: the routers of the network as this router sees them, and their management addresses.

Sources: docs/spec/network.md §16.1; docs/spec/management.md §6.5, §7.7.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from policy.addressing.address import AREA
from router.management.owners import Owner
from router.management.query import Rows

if TYPE_CHECKING:
    from router.network.host import Host


class _ChangeTime:
    """The time of the last topology change: the same number for the same change, even if the two clocks drift."""

    def __init__(self, clock: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        self._clock = clock
        self._wall_clock = wall_clock
        self._known: tuple[float, int] | None = None

    def in_epoch_s(self, changed: float | None) -> int:
        """Returns the time of the change in seconds since 1970 UTC, 0 for never.

        changed  monotonic seconds; None: never
        """
        if changed is None:
            return 0
        if self._known is None or self._known[0] != changed:
            self._known = changed, int(self._wall_clock() - (self._clock() - changed))
        return self._known[1]


def node_rows_owner(host: "Host | None", clock: Callable[[], float], wall_clock: Callable[[], float]) -> Owner:
    """Makes the owner of the rows of all routers.

    host        None: the router is in no network
    clock       monotonic seconds
    wall_clock  seconds since 1970 UTC
    """
    change = _ChangeTime(clock, wall_clock)

    def rows() -> Iterator[Mapping[str, object]]:
        if host is not None:
            yield _own_row(host, change)
            for row in sorted(host.rows.values(), key=lambda row: row.index):
                yield {
                    **_named(row.id),
                    "index": row.index,
                    "protocolVersion": row.version,
                    "instance": row.instance,
                    "linkState": list(row.link_state),
                    "nextHop": row.next_hop,
                    "validOrigins": list(row.valid_origins) if row.valid_origins is not None else None,
                    "routerLink": row.link,
                    "cost": row.cost,
                }

    return Owner(type="router.node", rows=Rows(rows))


def nodes_of(host: "Host | None") -> Callable[[], list[str]]:
    """Returns a function that lists the management addresses of all known routers, this one first. [] without a
    network.
    """

    def addresses() -> list[str]:
        if host is None:
            return []
        return [f"{_address(each)}/$management" for each in (host.settings.router_id, *sorted(host.rows))]

    return addresses


def _address(router_id: str) -> str:
    return f"amqp:/_topo/{AREA}/{router_id}"


def _named(router_id: str) -> dict[str, object]:
    name = f"router.node/{router_id}"
    return {"id": router_id, "name": name, "identity": name, "address": _address(router_id)}


def _own_row(host: "Host", change: _ChangeTime) -> Mapping[str, object]:
    return {
        **_named(host.settings.router_id),
        "index": 0,
        "protocolVersion": 1,
        "instance": host.settings.instance,
        "linkState": list(host.own_links),
        "nextHop": "(self)",
        "validOrigins": [],
        "lastTopoChange": change.in_epoch_s(host.last_topology_change),
    }
