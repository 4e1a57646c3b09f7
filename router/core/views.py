"""Management rows of live links and addresses, and router totals. Only reads.

Sources: docs/spec/management.md §6.5, docs/spec/routing.md §19. Wire types come from schemas/management.json.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from router.core.addresses import LiveAddress
from router.core.core import Core
from router.core.in_links import InLink
from router.core.network import MAX_TRUNKS
from router.core.out_links import OutLink
from router.core.remotes import ControlOutLink, DataOutLink

# A slice of this size takes a fraction of a millisecond.
LINKS_AT_ONCE: Final = 250

_LINK_TYPE: Final = "org.apache.qpid.dispatch.router.link"
_ADDRESS_TYPE: Final = "org.apache.qpid.dispatch.router.address"


def link_row(link: InLink | OutLink) -> Mapping[str, Any]:
    is_out = isinstance(link, OutLink)
    is_between_routers = isinstance(link, (DataOutLink, ControlOutLink))
    return {
        "name": link.name,
        "identity": str(link.identity),
        "type": _LINK_TYPE,
        "linkName": link.name,
        "linkType": link.link_type,
        "linkDir": "out" if is_out else "in",
        "owningAddr": link.owning_key,
        "capacity": link.capacity,
        "peer": link.peer,
        "undeliveredCount": len(link.queue) if isinstance(link, OutLink) else 0,
        "unsettledCount": len(link.unsettled) if isinstance(link, OutLink) else link.wire.unsettled_count,
        "deliveryCount": link.delivery_count,
        "connectionId": str(link.attachment.connection_id),
        "adminStatus": "enabled",
        "operStatus": "up",
        "presettledCount": link.presettled,
        "droppedPresettledCount": link.dropped_presettled,
        "acceptedCount": link.accepted,
        "rejectedCount": link.rejected,
        "releasedCount": link.released,
        "modifiedCount": link.modified,
        "deliveriesDelayed1Sec": link.delayed_1s,
        "deliveriesDelayed10Sec": link.delayed_10s,
        "deliveriesStuck": link.stuck,
        # By the router where a delivery entered the network. Slot 0 is this router.
        "ingressHistogram": [link.delivery_count, *[0] * 127] if is_out and not is_between_routers else None,
        "priority": link.priority,
        "settleRate": link.settle_rate,
        "creditAvailable": max(link.wire.credit, 0),
        "zeroCreditSeconds": _zero_credit_seconds(link),
    }


def _of_containers(links: Iterable[InLink | OutLink]) -> int:
    return sum(link.delivery_count for link in links if link.attachment.is_route_container)


def _zero_credit_seconds(link: InLink | OutLink) -> int:
    since_s = link.zero_credit_since_s
    return link.work.now_s - since_s if since_s is not None and link.wire.credit <= 0 else 0


def link_rows(core: Core, offset: int = 0) -> Iterator[Mapping[str, Any]]:
    """Iterates over the current links from number `offset` on.

    Leaves out links that are gone before their row is made.
    """
    links = list(islice(core.links.values(), offset, None))
    return (link_row(link) for link in links if link.is_open)


def find_link_by_name(core: Core, name: str) -> Mapping[str, Any] | None:
    """Returns the first link with this name, or None."""
    return next((link_row(link) for link in core.links.values() if link.name == name), None)


def find_link_row(core: Core, identity: str) -> Mapping[str, Any] | None:
    link = core.links.get(int(identity)) if identity.isascii() and identity.isdecimal() and len(identity) < 20 else None
    return link_row(link) if link is not None and str(link.identity) == identity else None


def find_address_row(core: Core, key: str) -> Mapping[str, Any] | None:
    address = core.table.addresses.get(key)
    return address_row(address) if address is not None else None


def address_row(address: LiveAddress) -> Mapping[str, Any]:
    return {
        "name": address.key,
        "identity": address.key,
        "type": _ADDRESS_TYPE,
        "key": address.key,
        "distribution": address.distribution,
        "inProcess": len(address.subscribers),
        "subscriberCount": address.receiver_count,
        "remoteCount": len(address.remotes),
        "containerCount": address.containers,
        "remoteHostRouters": [router.id for router in address.remotes],
        "deliveriesIngress": address.ingress_count,
        "deliveriesEgress": address.egress_count,
        "deliveriesTransit": address.transit,
        "deliveriesToContainer": address.delivered_in_process,
        "deliveriesFromContainer": address.sent_from_process,
        "deliveriesEgressRouteContainer": _of_containers(address.out_links),
        "deliveriesIngressRouteContainer": _of_containers(address.in_links),
        "transitOutstanding": _by_connection(address),
        "trackedDeliveries": sum(address.outstanding.values()),
        "priority": address.priority,
        "deliveriesRedirectedToFallback": address.redirected,
    }


def _by_connection(address: LiveAddress) -> list[int] | None:
    """Returns balanced messages without an outcome, by the tag of the connection; None: there have never been any."""
    outstanding = address.outstanding
    is_tracked = address.ways and address.distribution == "balanced"
    return [outstanding.get(tag, 0) for tag in range(MAX_TRUNKS)] if is_tracked else None


def address_rows(core: Core, offset: int = 0) -> Iterator[Mapping[str, Any]]:
    """Iterates over the current addresses from number `offset` on."""
    return (address_row(address) for address in list(islice(core.table.addresses.values(), offset, None)))


def router_totals(core: Core) -> Mapping[str, int]:
    """Returns the counters of the `router` entity: links that are gone plus live links."""
    return next(found for found in totalling(core) if found is not None)


def totalling(core: Core) -> Iterator[Mapping[str, int] | None]:
    """Calculates `router_totals`. Yields None wherever messages may be routed in between."""
    totals = replace(core.retired)
    links = list(core.links.values())  # a link that is gone meanwhile keeps its counters
    stuck = blocked = 0
    for number, link in enumerate(links, 1):
        totals.add(link)
        stuck += link.stuck
        blocked += link.is_blocked
        if number % LINKS_AT_ONCE == 0:
            yield None
    yield {
        "addrCount": len(core.table.addresses),
        "linkCount": len(links),
        "nodeCount": len(core.network.routers) if core.network is not None else 0,
        "presettledDeliveries": totals.presettled,
        "droppedPresettledDeliveries": totals.dropped_presettled,
        "acceptedDeliveries": totals.accepted,
        "rejectedDeliveries": totals.rejected,
        "releasedDeliveries": totals.released,
        "modifiedDeliveries": totals.modified,
        "deliveriesDelayed1Sec": totals.delayed_1s,
        "deliveriesDelayed10Sec": totals.delayed_10s,
        "deliveriesStuck": stuck,
        "deliveriesIngress": totals.ingress,
        "deliveriesEgress": totals.egress,
        "deliveriesTransit": totals.transit,
        "deliveriesIngressRouteContainer": totals.ingress_route_container,
        "deliveriesEgressRouteContainer": totals.egress_route_container,
        "deliveriesRedirectedToFallback": totals.redirected,
        "linksBlocked": blocked,
    }
