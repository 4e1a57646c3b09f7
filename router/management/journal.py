"""Records each change of the router by management: user, origin, request, before and after, and outcome.

Each CREATE, UPDATE, DELETE, and any other operation that would change something, gives one audit event and one log
line, done or not. The schema says which values are secret; they are hidden. Source: docs/audit.md, Changes by
management.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final, cast

from policy.configuration.schema import EntityType
from policy.configuration.value_texts import HIDDEN
from policy.decision import Reason
from policy.files.redaction import is_secret_name
from policy.rights import NAMING
from router.effects import Audit, AuditEvent, Emit, Log, ManagementMembers, Refused, RuleMembers, audit_event
from router.faults import fault_text
from router.management.query import Row
from router.management.requests import FORBIDDEN, Plan, Request, Requester, Response

# Attack: attributes of a megabyte fill the disk with their own records, or push important parts out of the record.
# Therefore each value is cut, and all of them together; the SHA-256 identifies what was cut.
MAX_VALUE_CHARACTERS: Final = 400
MAX_TEXT_CHARACTERS: Final = 8000
# Limit for a refused request, which costs its sender nothing.
MAX_REFUSED_CHARACTERS: Final = 1000
# Maps within maps: groups of a vhost and their settings, and no deeper.
MAX_DEPTH: Final = 3


class Journal:
    def __init__(self, emit: Emit) -> None:
        self._emit = emit

    def record(
        self,
        request: Request,
        plan: Plan | None,
        operation: str,
        response: Response,
        *,
        before: Row | None,
        reason: Reason | None,
        lines: tuple[Log, ...] = (),
    ) -> None:
        """Records a request that would change something, after it was answered.

        plan    None if there is no plan
        before  the entity before an UPDATE or DELETE
        reason  why policy refused it; None: policy did not refuse it
        lines   log lines that come before the record's own line
        """
        status, description = response.status, response.description
        rule = request.requester.rule if reason is not None else None
        event = audit_event(
            "management",
            "allow" if reason is None else "deny",
            (reason or Reason.ALLOWED).value,
            request.requester.facts,
            {"detail": description},
            cast(RuleMembers, asdict(rule)) if rule is not None else None,
        )
        try:
            event["management"] = _described(plan, operation, request, before, status, response.body)
        except Exception as error:  # a record that says little is better than none
            event["management"] = {"operation": operation, "status": status}
            event["detail"] = f"{description} [what was asked could not be described: {fault_text(error)}]"
        lines = (*lines, _line(event, status, description))
        if status >= 400:
            emit_refused(self._emit, request.requester, lines, event)
            return
        # Changes of the router are never summed up.
        self._emit(Audit(event=event))
        for line in lines:
            self._emit(line)


def emit_refused(emit: Emit, requester: Requester, lines: tuple[Log, ...], event: AuditEvent | None = None) -> None:
    """Records a request that was not carried out."""
    what = "Error performing requests" if event is None else ""
    emit(Refused(stage="management", facts=requester.facts, lines=lines, event=event, what=what))


def _line(event: AuditEvent, status: int, description: str) -> Log:
    done = event["management"]
    where = f"[C{event['connection']}] " if event.get("connection") is not None else ""
    who = f"user '{event.get('user') or ''}' at '{event.get('remote_host') or ''}'"
    kind = str(done.get("entity_type") or "an unknown type").rpartition(".dispatch.")[2]
    what = f"{done['operation']} of {kind} '{done.get('entity_name') or ''}'"
    outcome = str(status) if status < 400 else f"{status} {description}"
    return Log(module="AGENT", level="info", text=f"{where}{what} by {who}: {outcome}")


def denial_reason(status: int) -> Reason | None:
    """Returns why policy refused a request with this status, if nothing more precise is known."""
    return Reason.FORBIDDEN_OPERATION if status == FORBIDDEN else None


def _described(
    plan: Plan | None, operation: str, request: Request, before: Row | None, status: int, body: object
) -> ManagementMembers:
    """Returns the member `management` of the event."""
    entity_type = plan.entity_type if plan is not None else None
    properties = request.properties if isinstance(request.properties, Mapping) else {}
    after = body if isinstance(body, Mapping) else {}
    entity: Mapping[Any, Any] = before or after
    shown: ManagementMembers = {
        "operation": operation,
        "entity_type": entity_type.long_name if entity_type is not None else _text(properties.get("type")),
        "entity_name": _text(entity.get("name", properties.get("name"))),
        "entity_identity": _text(entity.get("identity", properties.get("identity"))),
        "before": None,
        "after": None,
        "status": status,
    }
    given = _hidden(entity_type, plan.given if plan is not None else {})
    if status >= 400:
        shown["after"] = _shown(given, MAX_REFUSED_CHARACTERS) if given else None
    elif operation == "DELETE":
        shown["before"] = _shown(_hidden(entity_type, before or {}))
    elif operation == "CREATE":
        shown["after"] = _shown(_hidden(entity_type, after))
    else:
        was, is_ = (_flat(_hidden(entity_type, row)) for row in (before or {}, after or given))
        changed = [key for key in {**was, **is_} if was.get(key) != is_.get(key) or key in given]
        changed = [key for key in changed if not _is_statistic(entity_type, key)]
        shown["before"], shown["after"] = (
            _bounded({key: row[key] for key in changed if key in row}, MAX_TEXT_CHARACTERS) for row in (was, is_)
        )
    return shown


def _is_statistic(entity_type: EntityType | None, key: str) -> bool:
    attribute = entity_type.attributes.get(key) if entity_type is not None else None
    return attribute is not None and attribute.is_graph


def _text(value: object) -> str | None:
    return str(value) if isinstance(value, str) else None


def _hidden(entity_type: EntityType | None, row: Mapping[Any, Any]) -> dict[str, object]:
    """Hides secrets by the schema, and unknown attributes, which may be secrets under a misspelt name.

    Attack: a group called `tokens` hides its changes from the record. Therefore a name alone does not make a secret if
    the schema says that there is none.
    """
    shown: dict[str, object] = {}
    for key, value in row.items():
        if value is None:
            continue
        if entity_type is None:
            shown[str(key)] = value if key in NAMING else HIDDEN
            continue
        attribute = entity_type.attributes.get(entity_type.canonical_names.get(key, key))
        if attribute is None:
            shown[str(key)] = value if key in entity_type.columns else HIDDEN
        elif attribute.is_secret:
            shown[str(key)] = HIDDEN
        else:
            shown[str(key)] = _by_name(value) if attribute.kind == "properties" else value
    return shown


def _by_name(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): HIDDEN if is_secret_name(key) else _by_name(each) for key, each in value.items()}
    return [_by_name(each) for each in value] if isinstance(value, list | tuple) else value


def _shown(row: Mapping[str, object], limit: int = MAX_TEXT_CHARACTERS) -> str:
    return _bounded(_flat(row), limit)


def _flat(row: Mapping[str, object]) -> dict[str, object]:
    """Flattens maps within maps to keys like `groups.clerks.targets`, so that a record shows
    exactly what has changed.
    """
    return dict(_flattened(row, "", MAX_DEPTH))


def _flattened(row: Mapping[Any, Any], before: str, depth: int) -> Iterator[tuple[str, object]]:
    for key, value in row.items():
        name = f"{before}{str(key)[:MAX_VALUE_CHARACTERS]}"
        if isinstance(value, Mapping) and value and depth > 1:
            yield from _flattened(value, f"{name}.", depth - 1)
        else:
            yield name, value


def _bounded(row: Mapping[str, object], limit: int) -> str:
    """Returns a JSON object in ASCII with at most `limit` characters.

    The rest is counted and identified by its SHA-256.
    """
    whole = hashlib.sha256()
    pieces: list[str] = []
    left, missing = limit - 120, 0  # room for the mark
    for key, value in sorted(row.items()):
        text = json.dumps(_plain(value))
        whole.update(f"{json.dumps(key)}:{text},".encode())
        if len(text) > MAX_VALUE_CHARACTERS:
            cut = {"cut": text[: MAX_VALUE_CHARACTERS // 2], "characters": len(text)}
            text = json.dumps({**cut, "sha256": hashlib.sha256(text.encode()).hexdigest()})
        piece = f"{json.dumps(key)}: {text}"
        left -= len(piece) + 2
        if left < 0:
            missing += 1
        else:
            pieces.append(piece)
    if missing:
        pieces.append(f'"...": {{"more": {missing}, "sha256": "{whole.hexdigest()}"}}')
    return "{" + ", ".join(pieces) + "}"


def _plain(value: object) -> object:
    """Converts a value for JSON: wire values become plain ones, and other objects become the name of their type."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return f"<{type(value).__name__}>"
