"""Opens the audit log that the router's attributes ask for. Source: docs/audit.md, The files."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, cast

from policy.configuration.kinds.router import audit_limits
from router.admission.allows import Allows
from router.audit.chain import read_signer
from router.audit.files import Fsync
from router.audit.trail import AuditLog, check_directory
from router.effects import Emit

_DAY_S: Final = 86400.0


def allows_of(attributes: Mapping[str, object], emit: Emit) -> Allows | None:
    """Returns the recorder of allowed actions; None if they are not recorded."""
    which = attributes["auditAllows"]
    if not attributes.get("auditDir") or which == "none":
        return None
    return Allows(emit, time.monotonic, time.time, has_links=which == "link")


def check_audit_log(attributes: Mapping[str, object]) -> None:
    """Checks what open_audit_log needs; makes and writes nothing. Errors: OSError, SigningKeyError."""
    if folder := attributes.get("auditDir"):
        if key := attributes.get("auditSigningKey"):
            read_signer(Path(str(key)))
        check_directory(Path(str(folder)))


def open_audit_log(
    attributes: Mapping[str, object], policy: Mapping[str, object], on_trouble: Callable[[str], None]
) -> AuditLog | None:
    """Opens the audit log; None if no folder is configured.

    policy      attributes of the `policy` entity: if it is in force, the default of onAuditFailure is `refuse`
    on_trouble  see AuditLog: called in another thread
    Errors      OSError, see AuditLog; SigningKeyError
    """
    folder = attributes.get("auditDir")
    if not folder:
        return None
    limits = audit_limits(attributes)
    key = attributes.get("auditSigningKey")
    on_failure = attributes.get("onAuditFailure") or ("refuse" if policy["enableVhostPolicy"] is True else "count")
    return AuditLog(
        Path(str(folder)),
        router_id=str(attributes["id"]),
        clock=time.time,
        max_file_bytes=limits.max_file_bytes,
        max_files=limits.max_files,
        max_bytes=limits.max_bytes,
        max_age_s=limits.max_age_days * _DAY_S if limits.max_age_days is not None else None,
        max_file_s=limits.max_file_s,
        fsync=cast(Fsync, attributes["auditFsync"]),
        is_compressed=attributes["auditCompress"] == "gzip",
        signer=read_signer(Path(str(key))) if key else None,
        is_refusing_on_failure=on_failure == "refuse",
        on_trouble=on_trouble,
    )
