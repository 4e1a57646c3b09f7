"""Opens the audit log that the router's attributes ask for. Source: docs/audit.md, The files."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from router.audit.trail import AuditLog
from router.management.kinds.router import audit_limits

_DAY_S: Final = 86400.0


def open_audit_log(attributes: Mapping[str, object], on_trouble: Callable[[str], None]) -> AuditLog | None:
    """None where no folder is named.

    on_trouble  as of AuditLog: called on another thread
    Errors      OSError, as of AuditLog
    """
    folder = attributes.get("auditDir")
    if not folder:
        return None
    limits = audit_limits(attributes)
    return AuditLog(
        Path(str(folder)),
        router_id=str(attributes["id"]),
        clock=time.time,
        max_file_bytes=limits.max_file_bytes,
        max_files=limits.max_files,
        max_bytes=limits.max_bytes,
        max_age_s=limits.max_age_days * _DAY_S if limits.max_age_days is not None else None,
        on_trouble=on_trouble,
    )
