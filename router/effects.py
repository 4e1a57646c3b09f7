"""What the control plane may ask of the world: plain values, carried out by `router.io`.

Imports nothing of ours. Hot data (transfers, dispositions) never becomes an effect; see docs/architecture.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

LogLevel = Literal["trace", "debug", "info", "notice", "warning", "error", "critical"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One log line. `module` and the text are those of docs/spec/management.md §2.5, §2.6."""

    module: str
    level: LogLevel
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """One audit event: the members of schemas/audit_event.json that the emitter knows.

    `router.io` adds schema_version, event_id, time and router before it reaches the audit log.

    time_s  seconds since 1970 UTC: when it was decided, where the decision depended on it; None: when it is recorded
    """

    event: Mapping[str, Any]
    time_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionFailed:
    """A peer did not get in for want of credentials or of permission: counts towards an automatic ban of its host.

    remote_host  numeric address
    """

    remote_host: str


Effect = Log | Audit | AdmissionFailed
Emit = Callable[[Effect], None]


def log(emit: Emit, module: str, level: LogLevel, text: str) -> None:
    """Shorthand for the commonest effect."""
    emit(Log(module=module, level=level, text=text))
