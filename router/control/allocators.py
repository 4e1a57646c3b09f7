"""The `allocator` entities: how many objects of each kind exist now.

This router has no pools, because Python's allocator has them. Operators' dashboards know the names from the router that
we replace; a name without a counterpart has the count 0. Source: docs/spec/management.md §6.5.
"""

from collections.abc import Collection, Iterator, Mapping, Sized
from typing import Any, Final

from router.connection.stack import Stack
from router.core.core import Core
from router.core.out_links import OutLink
from router.management.owners import Owner
from router.management.query import Rows

# Bytes of one object and of what only this object refers to, typical of CPython 3.11, 64 bits; rounded.
_BYTES: Final[Mapping[str, int]] = {
    "qd_buffer_t": 512,
    "qd_connection_t": 4096,
    "qd_iterator_t": 160,
    "qd_link_t": 1024,
    "qd_log_entry_t": 512,
    "qd_message_t": 256,
    "qd_parsed_field_t": 88,
    "qd_session_t": 512,
    "qd_timer_t": 128,
    "qdr_action_t": 160,
    "qdr_address_t": 1024,
    "qdr_connection_t": 2048,
    "qdr_delivery_t": 256,
    "qdr_field_t": 40,
    "qdr_link_t": 1536,
    "qdr_node_t": 96,
    "qdr_terminus_t": 64,
}
# Not zero, because dashboards divide by it. The router reuses no objects and moves none in batches.
_BATCH: Final = 64
_LOCAL_MAX: Final = 128


def allocator_owner(core: Core, connections: Mapping[int, Stack], entries: Sized) -> Owner:
    """Returns the owner of the allocator entities.

    entries  the log entries that are kept
    """
    return Owner(
        type="allocator", rows=Rows(lambda: allocator_rows(core, connections.values(), log_entries=len(entries)))
    )


def allocator_rows(core: Core, connections: Collection[Stack], *, log_entries: int) -> Iterator[Mapping[str, Any]]:
    """Yields one entity per kind, in the order of their names."""
    out_links = [link for link in core.links.values() if isinstance(link, OutLink)]
    queued = sum(len(link.queue) for link in out_links)
    deliveries = queued + sum(len(link.unsettled) for link in out_links)
    speaking = [each.peer for each in connections if each.peer is not None and not each.peer.engine.is_freed]
    live = {
        "qd_buffer_t": queued,
        "qd_connection_t": len(connections),
        "qd_link_t": len(core.links),
        "qd_log_entry_t": log_entries,
        "qd_message_t": queued,
        "qd_session_t": sum(len(peer.engine.sessions) for peer in speaking),
        "qd_timer_t": len(connections),
        "qdr_address_t": len(core.table.addresses),
        "qdr_connection_t": len(speaking),
        "qdr_delivery_t": deliveries,
        "qdr_link_t": len(core.links),
    }
    for name, size in _BYTES.items():
        count = live.get(name, 0)
        yield {
            "name": f"allocator/{name}",
            "identity": f"allocator/{name}",
            "typeName": name,
            "typeSize": size,
            "transferBatchSize": _BATCH,
            "localFreeListMax": _LOCAL_MAX,
            "globalFreeListMax": 0,
            "totalAllocFromHeap": count,
            "totalFreeToHeap": 0,
            "heldByThreads": count,
            "batchesRebalancedToThreads": 0,
            "batchesRebalancedToGlobal": 0,
        }
