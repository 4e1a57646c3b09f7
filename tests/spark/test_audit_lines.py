"""Lines are events, or stand in quarantine with the reason (issue 2, part 8: Audit)."""

import json
from datetime import datetime
from typing import Any

import jsonschema
import pytest
from literal_events import DELETED, EVENT, FOLDED, MANAGEMENT, SHADOW, change_line, line, line_without, shadow_line

import schemas
from router.audit import event as audit_event

pytest.importorskip("jsonschema_rs")

from spark.lines import quick
from spark.lines.judge import MAX_EXPLAINED, MAX_LINE_BYTES, NOT_ONE_OBJECT, judge

GOOD = line()

WHOLE = [
    line(redecision="policy_change"),
    line(redecision=None),
    GOOD,
    line(attempts=999),
    GOOD + "\r",
    f"  {GOOD} ",
    line(user=None, rule=None, connection=None),
    line(user="é" * 256),
    line(user="\U0001f600" * 256),
    line(address='"\\' * 512),
    line(address="\x01" * 1024),
    line(detail='}{"][\\" {'),
    line(rule={"vhost": None, "group": None, "item": None, "file": None, "line": None}),
    line(reason="events_lost", stage="audit", lost=4),
    line(time="2024-02-29T23:59:59.999999Z"),
    line(schema_version=1),
    line(schema_version=2),
    line(schema_version=3),
    line(schema_version=5, previous="0" * 64, signer="1" * 16, signature="2" * 128),
    line(attempts=19947, folded=FOLDED),
    line(attempts=2, folded={"first": None, "last": None, "owner": "various", "samples": None}),
    line(reason="file_deleted", stage="audit", deleted=DELETED),
    line_without("start").replace('"schema_version": 4', '"schema_version": 1'),
    change_line(),
    change_line(management={"operation": "DELETE", "before": '{"name": "b"}', "after": None, "status": 204}),
    line(stage="management", decision="deny", reason="management_not_allowed"),
    shadow_line(),
    shadow_line(decision="shadow_allow", reason="no_vhost", shadow={"reason": "allowed", "count": 2**40}),
]

BROKEN = {
    GOOD[:200]: NOT_ONE_OBJECT,
    GOOD[:-1]: NOT_ONE_OBJECT,
    GOOD[40:]: NOT_ONE_OBJECT,
    GOOD + GOOD: NOT_ONE_OBJECT,
    GOOD + " {}": NOT_ONE_OBJECT,
    GOOD + "x": NOT_ONE_OBJECT,
    GOOD[:200] + GOOD: NOT_ONE_OBJECT,
    f"[{GOOD}]": NOT_ONE_OBJECT,
    "": NOT_ONE_OBJECT,
    "   ": NOT_ONE_OBJECT,
    "null": NOT_ONE_OBJECT,
    "\x00\x00\x00": NOT_ONE_OBJECT,
    GOOD.replace('"', "'"): NOT_ONE_OBJECT,
    GOOD[:-1] + ', "user": "other"}': NOT_ONE_OBJECT,
    GOOD.replace('"detail": ""', '"detail": ' + "[" * 5000 + "]" * 5000): NOT_ONE_OBJECT,
    GOOD.replace('"detail": ""', '"detail": "\\ud800"'): NOT_ONE_OBJECT,
    GOOD.replace('"limit": null', '"limit": NaN'): NOT_ONE_OBJECT,
    line(user=5): "user: must be string or null, is bigint",
    line(user=["eve"]): "user: must be string or null, is array",
    line(user="x" * 257): "user: longer than 256 characters",
    line(is_encrypted="true"): "is_encrypted: must be boolean, is string",
    line(connection="3"): "connection: must be integer or null, is string",
    line(connection=1.5): "connection: must be integer or null, is decimal",
    line(connection=2**63): "connection: must be integer or null, is decimal",
    line(connection=-1): "connection: less than 0, or too large",
    line(rule="acme"): "rule: must be object or null, is string",
    line(rule={**EVENT["rule"], "line": 0, "why": 1}): "rule.no such member: why; rule.line: less than 1, or too large",
    line(rule={"vhost": 1, "group": None, "item": None, "file": None}): (
        "rule.vhost: must be string or null, is bigint; rule.line: missing"
    ),
    line(detail=None): "detail: must be string, is void",
    line(reason="whim"): "reason: not one of the values it may have",
    line(stage="Open"): "stage: not one of the values it may have",
    line(direction="up"): "direction: not one of the values it may have",
    line(schema_version=7): "schema_version: less than 1, or too large",
    line(event_id="A" * 32): "event_id: not of the form it must have",
    line(event_id="a" * 32 + "\n"): "event_id: not of the form it must have; event_id: longer than 32 characters",
    line(remote_host="localhost"): "remote_host: not of the form it must have",
    line(time="2026-13-20T14:05:06.000007Z"): "time: no such moment",
    line(time="2026-11-20T14:05:06Z"): "time: not of the form it must have; time: no such moment",
    line(flavour=1): "no such member: flavour",
    line(Reason=1): "no such member: Reason",
    line(lost=3): "lost: only for reason events_lost",
    line(reason="events_lost"): "lost: missing",
    line(reason="events_lost", lost=0): "lost: less than 1, or too large",
    line(deleted=DELETED): "deleted: only for reason file_deleted",
    line(reason="file_deleted"): "deleted: missing",
    line(reason="file_deleted", deleted={**DELETED, "limit": "me"}): "deleted.limit: not one of the values it may have",
    line(folded=FOLDED): "folded: only with attempts",
    line(attempts=1, folded={**FOLDED, "owner": "eve"}): "folded.owner: not one of the values it may have",
    line(attempts=1, folded={**FOLDED, "samples": "\u00e9"}): "folded.samples: not of the form it must have",
    line(redecision="whim"): "redecision: not one of the values it may have",
    line(attempts=0): "attempts: less than 1, or too large",
    line(attempts=None): "attempts: must be integer, is void",
    line(shadow=SHADOW): "shadow: only for shadow decisions",
    line(decision="shadow_deny"): "shadow: missing",
    shadow_line(shadow={"count": 0, "why": 1}): "shadow.no such member: why; shadow.count: less than 1, or too large",
    shadow_line(shadow={"reason": "No!"}): "shadow.reason: not of the form it must have",
    line(management=MANAGEMENT): "management: only at stage management",
    change_line(management={"status": 1000, "after": "\n"}): (
        "management.after: not of the form it must have; management.status: less than 0, or too large"
    ),
    line_without("user"): "user: missing",
    line_without("start"): "start: missing",
    line_without("sequence"): "sequence: missing",
    line(start="1" * 31): "start: not of the form it must have",
    line(sequence=-1): "sequence: less than 0, or too large",
    line_without("time"): "time: missing",
    "x" * (MAX_LINE_BYTES + 1): f"longer than {MAX_LINE_BYTES} bytes",
    GOOD[:-1] + " " * MAX_LINE_BYTES + "}": f"longer than {MAX_LINE_BYTES} bytes",
}


@pytest.fixture(scope="module")
def judged() -> dict[str, Any]:
    """Line -> its reasons, or its event."""
    return {text: fate(text) for text in [*WHOLE, *BROKEN]}


def fate(text: str) -> str | dict[str, Any]:
    found = judge([text.encode("utf-8", "surrogatepass")])
    if found.faults:
        assert (list(found.faults), found.events.num_rows) == ([0], 0)
        return found.faults[0]
    assert list(found.places) == [0]
    row: dict[str, Any] = found.events.to_pylist()[0]
    return row


@pytest.mark.parametrize("text", WHOLE, ids=range(len(WHOLE)))
def test_a_valid_line_is_an_event(judged: dict[str, Any], text: str) -> None:
    expected = json.loads(text)
    expected["time"] = datetime.fromisoformat(expected["time"])
    empty = dict.fromkeys(
        [
            *("attempts", "folded", "lost", "deleted", "management", "granted", "shadow", "redecision", "start"),
            *("sequence", "groups", "asked", "user_id", "recovered", "signer", "previous", "signature"),
        ]
    )
    assert judged[text] == {**empty, **expected}


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_any_other_line_is_kept_with_the_reason(judged: dict[str, Any], text: str) -> None:
    assert judged[text] == BROKEN[text]


def test_lines_and_json_schema_agree(judged: dict[str, Any]) -> None:
    """A JSON Schema validator says the same of every line that is one JSON object at all."""
    validator = jsonschema.Draft202012Validator(schemas.load("audit_event"))
    words_only = {"time: no such moment"}
    for text, faults in judged.items():
        if isinstance(faults, str) and (
            faults == NOT_ONE_OBJECT or faults.startswith("longer than") or faults in words_only
        ):
            continue
        assert validator.is_valid(json.loads(text)) == isinstance(faults, dict), (text[:200], faults)


def test_attack_a_file_of_empty_objects_is_not_explained_line_by_line() -> None:
    found = judge([b"{}"] * (MAX_EXPLAINED + 1))
    assert found.faults[0].startswith("schema_version: missing; event_id: missing")
    assert found.faults[MAX_EXPLAINED] == "not an audit event"


def test_lines_that_are_no_text_are_told_apart() -> None:
    found = judge([b"\xff", GOOD.encode(), b"\xff" * MAX_LINE_BYTES + b"x", b""])
    assert found.faults == {0: "not UTF-8", 2: f"longer than {MAX_LINE_BYTES} bytes", 3: NOT_ONE_OBJECT}
    assert list(found.places) == [1]


def stamp(time_s: float, router_id: str = "R1") -> audit_event.Stamp:
    return audit_event.Stamp(event_id="1" * 32, start="2" * 32, sequence=3, time_s=time_s, router_id=router_id)


def test_what_the_router_writes_is_valid() -> None:
    texts = [
        audit_event.encode(whole).decode("ascii").removesuffix("\n")
        for whole in [
            audit_event.complete({}, stamp(0.0)),
            audit_event.complete(
                {"stage": "open", "reason": "no_vhost", "user": "\U0001f600" * 500, "usage": {"total": 1}, "odd": b""},
                stamp(1_700_000_000.999999, "R\n1"),
            ),
            audit_event.complete(
                {"stage": "open", "decision": "shadow_deny", "reason": "allowed", "shadow": {"reason": "no_vhost"}},
                stamp(2.5),
            ),
            audit_event.complete({"stage": "accept", "reason": "banned", "attempts": 7}, stamp(1.5)),
            audit_event.lost_marker(3, stamp(1.5)),
            audit_event.end_marker(stamp(2.0)),
        ]
    ]  # fmt: skip
    found = judge([text.encode("ascii") for text in texts])
    assert found.faults == {}
    assert found.events.num_rows == 6
    # And so that a block of it is taken as a whole.
    block = "".join(f"{text}\n" for text in texts if "\\ud" not in text).encode("ascii")
    assert quick.columns(block, *quick.bounds(block)) is not None
