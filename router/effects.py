"""The effects that the control plane may request: plain values, which `router.io` carries out.

Hot data (transfers, dispositions) never becomes an effect; see docs/journeys.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Required, TypedDict, cast

from policy.configuration.log_levels import LogLevel as LogLevel

# The members of audit events. schemas/audit_event.json defines each name and its meaning.
AuditStage = Literal[
    "accept", "header", "tls", "sasl", "open", "begin", "attach", "transfer", "management", "engine", "policy", "audit"
]
AuditDecision = Literal["deny", "allow", "shadow_deny", "shadow_allow", "shadow_error"]
Direction = Literal["send", "receive"]
# The router's own reasons, in addition to those of policy.decision.Reason.
RouterReason = Literal[
    "descriptor_limit", "too_many_handshakes", "preauth_buffer_exceeded", "handshake_timeout", "handshake_aborted",
    "not_tls", "encryption_required", "authentication_required", "unexpected_header",
    "tls_handshake_failed", "tls_records", "tls_configuration",
    "http_malformed", "websocket_malformed", "websocket_refused", "origin_refused",
    "sasl_failed", "sasl_mechanism", "sasl_malformed", "verifier_unavailable", "too_many_guesses",
    "malformed_frame", "idle_timeout", "internal_error",
    "credentials_revoked", "credentials_expired", "certificate_expired", "certificate_revoked", "connection_too_old",
    "vhost_changed", "invalid_policy", "audit_unavailable",
]  # fmt: skip
# The occasions to decide about open connections again.
Occasion = Literal["policy_change", "expiry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One log line. docs/spec/management.md §2.5, §2.6 define the modules and texts."""

    module: str
    level: LogLevel
    text: str


class RuleMembers(TypedDict, total=False):
    vhost: str | None
    group: str | None
    item: str | None
    file: str | None
    line: int | None


class UsageMembers(TypedDict, total=False):
    total: int
    of_user: int
    of_host: int
    open_connections: int
    open_sessions: int
    open_links: int


class ShadowMembers(TypedDict, total=False):
    reason: str
    vhost: str | None
    group: str | None
    item: str | None
    file: str | None
    line: int | None
    total: int | None
    of_user: int | None
    of_host: int | None
    limit: int | None
    ruleset_digest: str | None
    count: int


class FoldedMembers(TypedDict):
    first: str | None
    last: str | None
    owner: Literal["connection", "user", "host", "various"]
    samples: str | None


class ManagementMembers(TypedDict, total=False):
    operation: Required[str]
    entity_type: str | None
    entity_name: str | None
    entity_identity: str | None
    before: str | None
    after: str | None
    status: Required[int]


class ConnectionMembers(TypedDict, total=False):
    """The connection's own members, and the digest of the ruleset that decides about it."""

    connection: int
    connection_name: str
    listener: str
    remote_host: str | None
    user: str | None
    mechanism: str | None
    is_encrypted: bool
    requested_vhost: str
    vhost: str | None
    group: str | None
    ruleset_digest: str | None
    granted: str
    groups: str


class AskedMembers(TypedDict):
    is_dynamic: bool
    is_coordinator: bool
    capabilities: str | None
    dynamic_address: Literal["own", "other"] | None
    reply_age_ms: int | None


class RequestMembers(TypedDict, total=False):
    """The members of the request itself, and of the answer to the peer."""

    direction: Direction | None
    address: str | None
    link_name: str | None
    asked: AskedMembers
    user_id: str
    usage: UsageMembers
    limit: int | None
    redecision: Occasion | None
    condition: str
    detail: str
    attempts: int


class AuditEvent(ConnectionMembers, RequestMembers, total=False):
    """The members of an audit event that its emitter knows. `router.audit.event` adds those that every event has."""

    stage: Required[AuditStage]
    decision: Required[AuditDecision]
    reason: Required[str]
    rule: RuleMembers | None
    shadow: ShadowMembers
    management: ManagementMembers
    folded: FoldedMembers


def audit_event(
    stage: AuditStage,
    decision: AuditDecision,
    reason: str,
    connection: ConnectionMembers,
    request: RequestMembers,
    rule: RuleMembers | None = None,
) -> AuditEvent:
    """Builds an event from its parts."""
    own = {"stage": stage, "decision": decision, "reason": reason, "rule": rule}
    return cast(AuditEvent, {**connection, **request, **own})  # mypy has no union of two TypedDicts


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """One event for the audit log.

    time_s  seconds since 1970 UTC: the time of the decision, if it depended on the time; None: the time of recording
    """

    event: AuditEvent
    time_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A peer did not get what it asked for. The refusal is written, or only counted if the peer has had enough written.

    stage   how far its connection has come
    facts   of its connection
    event   for the audit log; None: only the log gets it
    what    the sort of a refusal without an event, in words
    time_s  as in Audit
    """

    stage: AuditStage
    facts: ConnectionMembers
    lines: tuple[Log, ...] = ()
    event: AuditEvent | None = None
    what: str = ""
    time_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionFailed:
    """A peer lacks credentials or permission, and was not admitted. Counts towards an automatic ban of its host.

    remote_host  numeric address
    """

    remote_host: str


Effect = Log | Audit | Refused | AdmissionFailed
Emit = Callable[[Effect], None]


def log(emit: Emit, module: str, level: LogLevel, text: str) -> None:
    """Emits a log line: a shorthand for the most frequent effect."""
    emit(Log(module=module, level=level, text=text))
