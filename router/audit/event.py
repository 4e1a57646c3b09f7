"""Completes audit events: a router.effects.AuditEvent becomes a value that schemas/audit_event.json accepts.

Pure: the time and the id are arguments. No event is refused: a badly recorded denial is better than one without a
record. So values that do not fit are cut, replaced or dropped, and `detail` reports that.
"""

import dataclasses
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import schemas

_SCHEMA = schemas.load("audit_event")
PROPERTIES: Mapping[str, Mapping[str, Any]] = _SCHEMA["properties"]
SCHEMA_VERSION: int = PROPERTIES["schema_version"]["maximum"]
EVENTS_LOST = "events_lost"
LOG_CLOSED = "log_closed"
FILE_DELETED = "file_deleted"
CHECKPOINT = "checkpoint"
END_RECOVERED = "end_recovered"
LOGS_OWN = frozenset({EVENTS_LOST, LOG_CLOSED, FILE_DELETED, CHECKPOINT, END_RECOVERED})
SHADOW_DECISIONS = frozenset({"shadow_deny", "shadow_allow", "shadow_error"})

# Filled in here. An emitter's values under these names are dropped.
OWN_MEMBERS = frozenset(
    {
        *("schema_version", "event_id", "start", "sequence", "time", "router", "truncated", "lost", "deleted"),
        *("recovered", "signer", "previous", "signature"),  # the last two are the chain's (router.audit.chain)
    }
)
ABSENT_IF_NULL = frozenset({"attempts", "granted", "groups", "asked", "user_id"})
# The members that some events lack.
_OPTIONAL_MEMBERS = frozenset({"attempts", "granted", "groups", "asked", "user_id", "folded", "shadow", "management"})

# Used if an emitter's value is missing or not allowed by the schema. They blame the emitter, not the peer.
DEFAULTS: Mapping[str, Any] = {
    "stage": "audit",
    "decision": "deny",
    "reason": "internal_error",
    "detail": "",
    "is_encrypted": False,
    "attempts": 1,
    "asked.is_dynamic": False,
    "asked.is_coordinator": False,
    "folded.owner": "various",
    "shadow.reason": "internal_error",
    "shadow.count": 1,
    "management.operation": "unknown",
    "management.status": 500,
}

# For these, a value that is too large becomes the maximum: the default would be further from the truth.
_COUNTS = frozenset({"attempts"})
MOST_LOST: int = PROPERTIES["lost"]["maximum"]

# Limits how much an emitter's mistake (a dictionary with keys from a peer) adds to one line.
_MAX_NOTES = 4
_MAX_NOTE_CHARS = 100


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The audit log's own facts about an event.

    event_id  32 lower-case hex digits, unique
    start     the same form; equal for all events of one start of the router
    sequence  from 0, one more for each event of the start, including lost ones
    time_s    seconds since 1970 UTC
    """

    event_id: str
    start: str
    sequence: int
    time_s: float
    router_id: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeletedFile:
    """A file that retention deletes.

    start        the start that its events belong to
    first, last  sequence of its first event, and of its last whole event. None: unreadable
    limit        the setting that it is deleted for
    digest       `previous` of the file after it; None: unreadable
    """

    name: str
    size: int
    start: str | None
    first: int | None
    last: int | None
    limit: str
    digest: str | None = None


def complete(event: Mapping[str, object], stamp: Stamp) -> dict[str, Any]:
    """Returns the whole event, with its members in the order of the schema.

    event    an AuditEvent. Any other mapping becomes an event too, because peers choose texts and emitters make
             mistakes.
    Returns  values that the schema accepts, strings cut to their maxLength (`truncated` is then true).
    """
    notes: list[str] = []
    whole: dict[str, Any] = {}
    is_cut = False
    for name, spec in PROPERTIES.items():
        if name in OWN_MEMBERS:
            continue
        value = event.get(name)
        if name in ABSENT_IF_NULL and value is None:
            continue
        if name == "asked" and _members(value) is None:
            notes.append(f"asked was of type {type(value).__name__}")
            continue
        if name == "folded":
            value = _folded_of(whole.get("attempts"), value, notes)
            if value is None:
                continue
        if name == "shadow":
            value = _shadow_of(whole["decision"], value, notes)
            if value is None:
                continue
        if name == "management":
            value = _management_of(whole["stage"], value, notes)
            if value is None:
                continue
        whole[name], cut = _fitted(name, spec, value, notes)
        is_cut |= cut
    if whole["reason"] in LOGS_OWN:
        notes.append(f"reason was {whole['reason']}, which only the audit log itself may use")
        whole["reason"] = DEFAULTS["reason"]
    notes += [f"no such member: {_shown(name)}" for name in event if name not in PROPERTIES or name in OWN_MEMBERS]
    if notes:
        whole["detail"], cut = _with_notes(whole["detail"], notes)
        is_cut |= cut
    return _ordered(whole, stamp, is_cut=is_cut)


def lost_marker(count: int, stamp: Stamp) -> dict[str, Any]:
    """Returns the event that replaces `count` (1 to MOST_LOST) events that could not be kept."""
    detail = f"{count} events came while nothing could be written and no more be kept; they stood before this line"
    return _of_the_log({"reason": EVENTS_LOST, "detail": detail, "lost": count}, stamp)


def deleted_marker(file: DeletedFile, stamp: Stamp) -> dict[str, Any]:
    """Returns the event that records the deletion of a file of the log."""
    detail = f"{file.name} is deleted: {file.limit} is reached"
    deleted = {
        "file": file.name[:256],
        "bytes": file.size,
        "start": file.start,
        "first": file.first,
        "last": file.last,
        "limit": file.limit,
        "digest": file.digest,
    }
    spec = PROPERTIES["deleted"]
    deleted, _ = _fitted_object("deleted", spec, deleted, [])
    if file.digest is None:
        del deleted["digest"]
    return _of_the_log({"reason": FILE_DELETED, "detail": detail, "deleted": deleted}, stamp)


def recovered_marker(name: str, size: int, sha256: str, stamp: Stamp) -> dict[str, Any]:
    """Returns the event that records that the last `size` bytes of a file are no part of the chain."""
    detail = f"the last {size} bytes of {name} are half a line, or lines written again: they do not count"
    recovered = {"file": name[:256], "bytes": size, "sha256": sha256}
    return _of_the_log({"reason": END_RECOVERED, "detail": detail, "recovered": recovered}, stamp)


def checkpoint_marker(signer: str, stamp: Stamp) -> dict[str, Any]:
    """Returns the event whose signature covers the lines before it.

    signer  name of the key, 16 hex digits
    """
    return _of_the_log({"reason": CHECKPOINT, "detail": "signed, with all lines before it", "signer": signer}, stamp)


def end_marker(stamp: Stamp, signer: str | None = None) -> dict[str, Any]:
    """Returns the last event of a start that ended normally.

    signer  as in checkpoint_marker; None: it will not be signed
    """
    members = {"reason": LOG_CLOSED, "detail": "the router stopped; this start has no further event"}
    return _of_the_log(members if signer is None else {**members, "signer": signer}, stamp)


def _of_the_log(members: Mapping[str, Any], stamp: Stamp) -> dict[str, Any]:
    absent = OWN_MEMBERS | _OPTIONAL_MEMBERS
    whole = {name: _fitted(name, spec, None, [])[0] for name, spec in PROPERTIES.items() if name not in absent}
    return _ordered({**whole, "stage": "audit", **members}, stamp, is_cut=False)


def encode(whole: Mapping[str, Any]) -> bytes:
    """Returns one line with its line feed. ASCII only, so no byte can end the line early or control a terminal."""
    return json.dumps(whole, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


def _ordered(whole: Mapping[str, Any], stamp: Stamp, *, is_cut: bool) -> dict[str, Any]:
    router, is_router_cut = _fitted("router", PROPERTIES["router"], stamp.router_id, [])
    own = {
        "schema_version": SCHEMA_VERSION,
        "event_id": stamp.event_id,
        "start": stamp.start,
        "sequence": stamp.sequence,
        "time": datetime.fromtimestamp(stamp.time_s, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "router": router,
        "truncated": is_cut or is_router_cut,
    }
    return {name: own[name] if name in own else whole[name] for name in PROPERTIES if name in own or name in whole}


def _shadow_of(decision: str, value: object, notes: list[str]) -> Mapping[Any, Any] | None:
    """Returns the candidate's side of a shadow decision, even if the emitter forgot it. Other decisions have none."""
    members = _members(value)
    if decision in SHADOW_DECISIONS:
        if members is None:
            notes.append("shadow missing")
        return members or {}
    if value is not None:
        notes.append(f"shadow is only for {', '.join(sorted(SHADOW_DECISIONS))}")
    return None


def _management_of(stage: str, value: object, notes: list[str]) -> Mapping[Any, Any] | None:
    """Returns the change that a management request would make. Other stages have no such request."""
    members = _members(value)
    if value is not None and members is None:
        notes.append(f"management was of type {type(value).__name__}")
    if members is not None and stage != "management":
        notes.append("management is only for stage management")
        return None
    return members


def _folded_of(attempts: int | None, value: object, notes: list[str]) -> Mapping[Any, Any] | None:
    """Returns the `folded` member of a sum. Only an event with `attempts` can have it."""
    members = _members(value)
    if value is not None and members is None:
        notes.append(f"folded was of type {type(value).__name__}")
    if members is not None and attempts is None:
        notes.append("folded is only for what has attempts")
        return None
    return members


def _fitted(name: str, spec: Mapping[str, Any], value: object, notes: list[str]) -> tuple[Any, bool]:
    """Returns `value` in the form that `spec` wants, and True if text was cut. Notes each replaced value."""
    kinds = [spec["type"]] if isinstance(spec["type"], str) else spec["type"]
    if value is None:
        if name in ("stage", "reason"):
            notes.append(f"{name} missing")
        return DEFAULTS.get(name), False
    if "string" in kinds and isinstance(value, str):
        return _fitted_text(name, spec, str.__str__(value), notes)
    if "boolean" in kinds and isinstance(value, bool):
        return value, False
    if "integer" in kinds and isinstance(value, int) and not isinstance(value, bool):
        if spec["minimum"] <= value <= spec["maximum"]:
            return int(value), False
        notes.append(f"{name} was out of range")
        return spec["maximum"] if name in _COUNTS and value > 0 else DEFAULTS.get(name), False
    if "object" in kinds:
        members = _members(value)
        if members is not None:
            return _fitted_object(name, spec, members, notes)
    notes.append(f"{name} was of type {type(value).__name__}")
    # only the type's name: the repr of an unknown object may be long, slow, or contain a secret
    if "string" in kinds and "enum" not in spec and "pattern" not in spec:
        return f"<{type(value).__name__}>"[: spec["maxLength"]], False
    return DEFAULTS.get(name), False


def _fitted_text(name: str, spec: Mapping[str, Any], text: str, notes: list[str]) -> tuple[Any, bool]:
    if "enum" in spec:
        if text in spec["enum"]:
            return text, False
        notes.append(f"{name} was {_shown(text)}")
        return DEFAULTS.get(name), False
    is_cut = len(text) > spec["maxLength"]
    if is_cut:
        text = text[: spec["maxLength"]]
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate is no character
    if "pattern" in spec and re.fullmatch(spec["pattern"].removeprefix("^").removesuffix("$"), text) is None:
        notes.append(f"{name} was {_shown(text)}")
        return DEFAULTS.get(name), is_cut
    return text, is_cut


def _fitted_object(
    name: str, spec: Mapping[str, Any], members: Mapping[Any, Any], notes: list[str]
) -> tuple[dict[str, Any], bool]:
    fitted: dict[str, Any] = {}
    is_cut = False
    for inner, inner_spec in spec["properties"].items():
        fitted[inner], cut = _fitted(f"{name}.{inner}", inner_spec, members.get(inner), notes)
        is_cut |= cut
    notes += [f"no such member: {name}.{_shown(inner)}" for inner in members if inner not in spec["properties"]]
    return fitted, is_cut


def _members(value: object) -> Mapping[Any, Any] | None:
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _shown(value: object) -> str:
    return value[:32].encode("ascii", "backslashreplace").decode() if isinstance(value, str) else type(value).__name__


def _with_notes(detail: str, notes: list[str]) -> tuple[str, bool]:
    """Returns `detail` with the notes after it. Cuts `detail` if both do not fit."""
    more = [f"and {len(notes) - _MAX_NOTES} more"] if len(notes) > _MAX_NOTES else []
    tail = f" [{'; '.join([note[:_MAX_NOTE_CHARS] for note in notes[:_MAX_NOTES]] + more)}]"
    room: int = PROPERTIES["detail"]["maxLength"] - len(tail)
    return (detail[:room] + tail).strip(), len(detail) > room
