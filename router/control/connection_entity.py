"""`connection`: the open connections, and the changes that management makes to one.

Sources: docs/spec/routing.md §1.10; docs/spec/management.md §8.8.
"""

from collections.abc import Mapping

from router.control.router import Router
from router.effects import log
from router.management.owners import Owner
from router.management.query import PagedRows


def connection_owner(router: Router) -> Owner:
    def change(identity: str, changes: Mapping[str, object], requester: int | None) -> None:
        """Applies changes; adminStatus "deleted" drops the connection (routing §1.10)."""
        connection = router.connections.get(int(identity))
        if "enableProtocolTrace" in changes and connection is not None:
            router.trace.switch(connection, bool(changes["enableProtocolTrace"]))
        if changes.get("adminStatus") == "deleted" and router.close_connection(int(identity)):
            by = f"[C{requester}]" if requester is not None else "[management]"
            text = f"[C{identity}] Connection force-closed by request from connection {by}"
            log(router.emit, "ROUTER_CORE", "info", text)

    rows = PagedRows(router.connection_rows, router.find_connection_row, lambda _name: None)
    return Owner(type="connection", rows=rows, change=change)
