"""`log` and `logStats`: the settings of the log's modules, changed by management, and their counters.

Source: docs/spec/management.md §4.
"""

from collections.abc import Mapping
from typing import Any

from policy.configuration.log_levels import LogSettingError
from router.control.logs import LogFileError, Logs
from router.control.router import Router
from router.management.logrules import settings_of
from router.management.owners import Owner
from router.management.query import Rows
from router.management.requests import ManagementError


def log_owners(logs: Logs, router: Router) -> tuple[Owner, ...]:
    def update(_before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Changes a module's settings. Errors: ManagementError."""
        try:
            logs.configure(after["module"], settings_of(after))
        except (LogSettingError, LogFileError) as error:
            raise ManagementError(500, f"CError: Configuration: {error}") from None
        trace_as_logged(logs, router)

    return (
        Owner(type="log", update=update),
        Owner(type="logStats", rows=Rows(logs.ring.rows)),
    )


def trace_as_logged(logs: Logs, router: Router) -> None:
    """Traces frames if trace is enabled for PROTOCOL."""
    router.trace.set_level(logs.rules.is_enabled("PROTOCOL", "trace"), list(router.connections.values()))
