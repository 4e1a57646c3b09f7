"""The `router` entity: the configured attributes and the totals. Source: docs/spec/management.md §6.5."""

import platform
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from router.audit.trail import AuditLog
from router.control.router import Router
from router.core.views import totalling
from router.io.memory import virtual_bytes


def router_rows(
    router: Router, attributes: Mapping[str, Any], audit: AuditLog | None
) -> Callable[[], Iterator[Mapping[str, Any] | None]]:
    """Returns a function that yields the one row of the entity, and None before it where other work may have its turn.

    attributes  of the configured entity
    """

    handshakes, descriptors = router.accepting.handshakes, router.accepting.descriptors

    def rows() -> Iterator[Mapping[str, Any] | None]:
        for totals in totalling(router.core):
            if totals is None:
                yield None
                continue
            yield {
                **attributes,
                "name": attributes["id"],
                "identity": "1",
                "version": router.surroundings.version,
                "hostName": platform.node(),
                "metadata": attributes.get("metadata"),
                **totals,
                "linkRouteCount": router.surroundings.link_routes.count,
                "autoLinkCount": router.surroundings.auto_links.count,
                "messagesGivenUp": router.progress.messages_given_up,
                "receiversGivenUp": router.progress.receivers_given_up,
                "connectionCount": router.open_count,
                "uptimeSeconds": int(time.monotonic()) - router.started_at_s,
                "memoryUsage": virtual_bytes(),
                "handshakeCount": handshakes.count,
                "handshakeBytes": handshakes.bytes_held,
                "fileDescriptorCount": descriptors.in_use(),
                "fileDescriptorLimit": descriptors.limit,
                "auditState": audit.state if audit is not None else "off",
                "auditWritten": audit.written if audit is not None else 0,
                "auditPending": audit.pending if audit is not None else 0,
                "auditLost": audit.lost if audit is not None else 0,
            }

    return rows
