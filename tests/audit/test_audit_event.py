"""Whatever an emitter passes becomes an event that the schema accepts (issue 2, part 8: Audit)."""

import json
import re
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

import schemas
from policy.decision import Reason, Rule
from policy.facts import Usage
from router import effects
from router.audit import event as audit_event
from router.audit import plain

SCHEMA = schemas.load("audit_event")
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
EVENT_ID = "0123456789abcdef" * 2
START = "fedcba9876543210" * 2


def complete(**event: Any) -> dict[str, Any]:
    return audit_event.complete(event, stamp(1_700_000_000.25))


def stamp(time_s: float = 0.0) -> audit_event.Stamp:
    return audit_event.Stamp(event_id=EVENT_ID, start=START, sequence=41, time_s=time_s, router_id="R1")


def assert_valid(whole: dict[str, Any]) -> None:
    VALIDATOR.validate(whole)
    assert json.loads(audit_event.encode(whole)) == whole


def test_the_type_of_events_is_that_of_the_schema() -> None:
    """An emitter that type-checks needs no repair."""
    properties = SCHEMA["properties"]
    filled_in = {"schema_version", "event_id", "start", "sequence", "time", "router", "truncated", "lost", "deleted"}
    filled_in |= {"recovered", "signer", "previous", "signature"}
    assert get_type_hints(effects.AuditEvent).keys() == properties.keys() - filled_in
    for name, members in (
        ("rule", effects.RuleMembers), ("usage", effects.UsageMembers), ("shadow", effects.ShadowMembers),
        ("management", effects.ManagementMembers), ("folded", effects.FoldedMembers),
        ("asked", effects.AskedMembers),
    ):  # fmt: skip
        assert get_type_hints(members).keys() == properties[name]["properties"].keys()
    for name, literal in (("stage", effects.AuditStage), ("decision", effects.AuditDecision)):
        assert list(get_args(literal)) == properties[name]["enum"]
    for name, literal in (("direction", effects.Direction), ("redecision", effects.Occasion)):
        assert [*get_args(literal), None] == properties[name]["enum"]


def test_schema_is_a_valid_strict_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["additionalProperties"] is False
    optional = {"attempts", "deleted", "folded", "granted", "lost"}
    optional |= {"management", "redecision", "sequence", "shadow", "start"}
    optional |= {"asked", "groups", "user_id", "recovered", "signer", "previous", "signature"}
    assert set(SCHEMA["properties"]) - set(SCHEMA["required"]) == optional
    unbounded = [
        name
        for name, spec in SCHEMA["properties"].items()
        if "string" in spec["type"] and "maxLength" not in spec and "enum" not in spec
    ]
    assert unbounded == []


def test_an_emitter_passes_only_what_it_knows() -> None:
    whole = complete(stage="accept", reason=Reason.ROUTER_CONNECTION_LIMIT, remote_host="192.0.2.7", limit=2)
    assert_valid(whole)
    assert whole["time"] == "2023-11-14T22:13:20.250000Z"
    assert (whole["schema_version"], whole["event_id"], whole["router"]) == (6, EVENT_ID, "R1")
    assert (whole["start"], whole["sequence"]) == (START, 41)
    assert (whole["decision"], whole["user"], whole["is_encrypted"], whole["truncated"]) == ("deny", None, False, False)
    assert type(whole["reason"]) is str
    assert not {"lost", "shadow", "folded", "deleted"} & whole.keys()


def test_rule_and_usage_may_be_the_policys_own_values() -> None:
    rule = Rule(vhost="acme", group="staff", item="targets: orders.*", file="acme.json", line=12)
    whole = complete(stage="attach", reason="target_not_allowed", rule=rule, usage=Usage(total=3, of_user=1, of_host=2))
    assert_valid(whole)
    assert whole["rule"] == {
        "vhost": "acme", "group": "staff", "item": "targets: orders.*", "file": "acme.json", "line": 12,
    }  # fmt: skip
    assert whole["usage"] == {
        "total": 3, "of_user": 1, "of_host": 2, "open_connections": None, "open_sessions": None, "open_links": None,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["address", "user", "link_name", "requested_vhost", "detail"])
def test_attack_a_megabyte_name_is_cut_and_marked(name: str) -> None:
    whole = complete(stage="attach", reason="target_not_allowed", **{name: "é" * 1_000_000})
    assert_valid(whole)
    assert whole["truncated"] is True
    assert len(whole[name]) == SCHEMA["properties"][name]["maxLength"]


def test_attack_the_longest_event_is_bounded() -> None:
    text = "\U0001f600" * 5000
    texts = dict.fromkeys(
        ["detail", "user", "mechanism", "requested_vhost", "vhost", "group", "address", "link_name", "listener"], text
    )
    line = audit_event.encode(
        complete(stage="open", reason="no_vhost", rule=dict.fromkeys(["vhost", "group", "item", "file"], text), **texts)
    )
    assert len(line) < 100_000


def test_attack_the_longest_record_of_a_change_is_bounded() -> None:
    text = "\U0001f600" * 5000
    texts = dict.fromkeys(["detail", "user", "mechanism", "requested_vhost", "vhost", "group", "address"], text)
    asked = dict.fromkeys(["operation", "entity_type", "entity_name", "entity_identity"], text)
    asked |= dict.fromkeys(["before", "after"], '"\\' * 10_000)
    line = audit_event.encode(complete(stage="management", reason="allowed", management=asked, **texts))
    assert len(line) < 150_000


CHANGE: dict[str, Any] = {
    "operation": "CREATE", "entity_type": "org.apache.qpid.dispatch.ban", "entity_name": "b",
    "entity_identity": "ban/b", "before": None, "after": '{"name": "b"}', "status": 201,
}  # fmt: skip


def test_a_change_by_management_says_what_and_with_what_result() -> None:
    whole = complete(stage="management", decision="allow", reason="allowed", management=CHANGE)
    assert_valid(whole)
    assert whole["management"] == CHANGE
    assert not VALIDATOR.is_valid({**whole, "stage": "open"})
    assert VALIDATOR.is_valid({name: value for name, value in whole.items() if name != "management"})


@pytest.mark.parametrize(
    ("management", "note"),
    [
        ({"status": 7000}, "management.status was out of range"),
        ({"after": "line\nfeed"}, "management.after was"),
        ({"flavour": 1}, "no such member: management.flavour"),
        ("text", "management was of type str"),
    ],
)
def test_a_change_that_is_badly_described_is_recorded_all_the_same(management: object, note: str) -> None:
    whole = complete(stage="management", reason="allowed", management=management)
    assert_valid(whole)
    assert note in whole["detail"]


def test_at_other_stages_nothing_is_changed_by_management() -> None:
    whole = complete(stage="open", reason="no_vhost", management=CHANGE)
    assert_valid(whole)
    assert "management" not in whole
    assert "management is only for stage management" in whole["detail"]


def test_attack_a_name_cannot_break_the_line_or_steer_a_terminal() -> None:
    line = audit_event.encode(complete(stage="open", reason="no_vhost", user='a\n{"x":1}\r\u2028\x1b[2J\x00"'))
    assert line.count(b"\n") == 1
    assert line.endswith(b"}\n")
    assert re.fullmatch(rb"[ -~]+\n", line)


def test_a_lone_surrogate_is_replaced() -> None:
    whole = complete(stage="open", reason="no_vhost", user="a\udc80b")
    assert whole["user"] == "a?b"


def test_members_the_schema_does_not_have_are_dropped_and_named() -> None:
    whole = complete(stage="open", reason="no_vhost", detail="no such vhost", flavour="odd", event_id="mine", lost=3)
    assert_valid(whole)
    assert whole["event_id"] == EVENT_ID
    assert whole["detail"] == (
        "no such vhost [no such member: flavour; no such member: event_id; no such member: lost]"
    )


def test_a_value_that_is_not_json_leaves_only_its_types_name() -> None:
    class Secret:
        def __repr__(self) -> str:
            raise AssertionError("the repr of an unknown object was asked for")

    whole = complete(
        stage="sasl", reason="sasl_failed", user=Secret(), address=b"raw", connection="7", usage=[1], is_encrypted="yes"
    )
    assert_valid(whole)
    assert (whole["user"], whole["address"]) == ("<Secret>", "<bytes>")
    assert (whole["connection"], whole["usage"], whole["is_encrypted"]) == (None, None, False)
    assert whole["detail"].startswith("[connection was of type str; user was of type Secret;")


@pytest.mark.parametrize(
    ("event", "member", "value"),
    [
        ({"stage": "lunch", "reason": "no_vhost"}, "stage", "audit"),
        ({"stage": "open", "reason": "whim"}, "reason", "internal_error"),
        ({"stage": "open"}, "reason", "internal_error"),
        ({"stage": "open", "reason": "events_lost"}, "reason", "internal_error"),
        ({"stage": "open", "reason": "no_vhost", "remote_host": "localhost"}, "remote_host", None),
        ({"stage": "open", "reason": "no_vhost", "remote_host": "::1\n"}, "remote_host", None),
        ({"stage": "open", "reason": "no_vhost", "ruleset_digest": "ABC"}, "ruleset_digest", None),
        ({"stage": "open", "reason": "no_vhost", "limit": -1}, "limit", None),
        ({"stage": "open", "reason": "no_vhost", "limit": 2**63}, "limit", None),
        ({"stage": "open", "reason": "no_vhost", "limit": True}, "limit", None),
        ({"stage": "open", "reason": "no_vhost", "direction": "sideways"}, "direction", None),
    ],
)
def test_a_value_out_of_the_schema_is_replaced_and_noted(event: dict[str, Any], member: str, value: object) -> None:
    whole = complete(**event)
    assert_valid(whole)
    assert whole[member] == value
    assert f"{member} " in whole["detail"]


def test_notes_find_room_behind_a_long_detail() -> None:
    whole = complete(stage="open", reason="whim", detail="d" * 1024)
    assert_valid(whole)
    assert whole["detail"].endswith("[reason was whim]")
    assert whole["truncated"] is True


def test_the_loss_marker_is_a_valid_event() -> None:
    marker = audit_event.lost_marker(7, stamp())
    assert_valid(marker)
    assert (marker["stage"], marker["reason"], marker["lost"]) == ("audit", "events_lost", 7)


def test_the_mark_of_the_end_is_a_valid_event_that_only_the_log_may_make() -> None:
    marker = audit_event.end_marker(stamp())
    assert_valid(marker)
    assert (marker["stage"], marker["reason"], marker["sequence"]) == ("audit", "log_closed", 41)
    assert "lost" not in marker
    whole = complete(stage="audit", reason="log_closed")
    assert_valid(whole)
    assert whole["reason"] == "internal_error"
    assert "which only the audit log itself may use" in whole["detail"]


def test_an_event_of_this_version_has_a_number_and_older_ones_need_none() -> None:
    whole = complete(stage="open", reason="no_vhost")
    for member in ("start", "sequence"):
        without = {name: value for name, value in whole.items() if name != member}
        assert not VALIDATOR.is_valid(without)
        assert VALIDATOR.is_valid({**without, "schema_version": 1})


def test_lost_belongs_to_events_lost_alone() -> None:
    marker = audit_event.lost_marker(7, stamp())
    assert not VALIDATOR.is_valid({**marker, "reason": "no_vhost"})
    assert not VALIDATOR.is_valid({name: value for name, value in marker.items() if name != "lost"})


def test_an_event_may_stand_for_several_requests() -> None:
    assert "attempts" not in complete(stage="accept", reason="banned")
    whole = complete(stage="accept", reason="banned", attempts=999)
    assert_valid(whole)
    assert whole["attempts"] == 999
    whole = complete(stage="accept", reason="banned", attempts=0)
    assert_valid(whole)
    assert (whole["attempts"], whole["detail"]) == (1, "[attempts was out of range]")
    whole = complete(stage="accept", reason="banned", attempts=2**31)
    assert_valid(whole)
    assert (whole["attempts"], whole["detail"]) == (2**31 - 1, "[attempts was out of range]")


def test_a_shadow_decision_has_the_candidates_side() -> None:
    """issue 5, shadow"""
    shadow = {"reason": "no_vhost", "vhost": None, "item": "defaultVhost: ", "count": 40, "ruleset_digest": "ab" * 32}
    whole = complete(stage="open", decision="shadow_deny", reason="allowed", shadow=shadow)
    assert_valid(whole)
    assert whole["shadow"] == {
        **dict.fromkeys(["group", "file", "line", "total", "of_user", "of_host", "limit"]), **shadow,
    }  # fmt: skip
    assert not VALIDATOR.is_valid({name: value for name, value in whole.items() if name != "shadow"})


@pytest.mark.parametrize(
    ("shadow", "note"),
    [(None, "shadow missing"), ({"count": 0}, "shadow.count was out of range"), ({"reason": "No!"}, "shadow.reason")],
)
def test_a_shadow_decision_has_a_valid_side_whatever_is_passed(shadow: object, note: str) -> None:
    whole = complete(stage="open", decision="shadow_allow", reason="no_vhost", shadow=shadow)
    assert_valid(whole)
    assert (whole["shadow"]["reason"], whole["shadow"]["count"]) == ("internal_error", 1)
    assert note in whole["detail"]


def test_a_denial_has_no_candidates_side() -> None:
    whole = complete(stage="open", reason="no_vhost", shadow={"reason": "no_vhost", "count": 1})
    assert_valid(whole)
    assert "shadow" not in whole
    assert "shadow is only for" in whole["detail"]


@dataclass(frozen=True)
class Odd:
    total: object = b"x"
    surprise: object = None


ANY_VALUE = st.recursive(
    st.sampled_from([None, True, object(), Odd()]) | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(sorted(SCHEMA["properties"])) | st.text() | st.integers(), ANY_VALUE))
def test_any_event_at_all_becomes_a_valid_one(event: dict[Any, Any]) -> None:
    assert_valid(audit_event.complete(event, stamp(1.5)))


PLAIN = {
    "connection": 2, "connection_name": "127.0.0.1:49084", "listener": "127.0.0.1:5671", "remote_host": "127.0.0.1",
    "user": "al\"ice\n", "mechanism": "PLAIN", "is_encrypted": True, "requested_vhost": None, "vhost": "$default",
    "group": "apps", "ruleset_digest": "6a" * 32, "stage": "attach", "decision": "deny",
    "reason": Reason.SOURCE_NOT_ALLOWED, "direction": "receive", "address": "secret", "link_name": "",
    "detail": "link disallowed by local policy", "rule": {"vhost": "$default", "item": "sources", "line": 42},
    "usage": {"open_links": 0}, "condition": "amqp:unauthorized-access", "attempts": 3, "groups": "[]",
    "asked": {"is_dynamic": True, "capabilities": "[]", "reply_age_ms": 0},
}  # fmt: skip
OTHERS = st.sampled_from(
    ["", "x", "ä", "\ud800", "\x7f", "x" * 1025, "::1%e", "ab" * 32, "events_lost", "shadow_deny", "accept", "other", 0,
     -1, 2**63, True, False, 1.5, {"line": 1}, {"line": True}, {"open_links": 2}, {"more": 1}, {"is_dynamic": 1}, {}]
)  # fmt: skip


def test_what_a_router_writes_most_is_written_at_once() -> None:
    assert plain.line(PLAIN, stamp(1.5)) == audit_event.encode(audit_event.complete(PLAIN, stamp(1.5)))


@given(
    st.dictionaries(st.sampled_from([*SCHEMA["properties"], "more", ""]), OTHERS | st.none() | ANY_VALUE, max_size=3),
    st.sets(st.sampled_from(sorted(PLAIN))),
    st.floats(0, 4e9),
)
def test_what_is_written_at_once_is_what_would_be_written_step_by_step(
    changes: dict[Any, Any], without: set[str], time_s: float
) -> None:
    event = {name: value for name, value in (PLAIN | changes).items() if name not in without}
    line = plain.line(event, stamp(time_s))
    assert line is None or line == audit_event.encode(audit_event.complete(event, stamp(time_s)))


def test_a_sum_says_how_many_and_since_when() -> None:
    folded = {"first": "2026-11-20T14:05:06.000007Z", "last": None, "owner": "connection", "samples": '["a"]'}
    whole = complete(stage="attach", reason="target_not_allowed", attempts=7, folded=folded)
    assert_valid(whole)
    assert (whole["attempts"], whole["folded"]) == (7, folded)


@pytest.mark.parametrize(
    ("members", "note"),
    [
        ({"folded": {"owner": "host"}}, "folded is only for what has attempts"),
        ({"folded": 7, "attempts": 2}, "folded was of type int"),
        ({"folded": {"owner": "nobody"}, "attempts": 2}, "folded.owner was nobody"),
        ({"deleted": {"file": "x"}}, "no such member: deleted"),
        ({"reason": "file_deleted"}, "reason was file_deleted, which only the audit log itself may use"),
    ],
)
def test_a_sum_that_is_badly_described_is_recorded_all_the_same(members: dict[str, object], note: str) -> None:
    whole = complete(**{"stage": "attach", "reason": "target_not_allowed", **members})
    assert_valid(whole)
    assert note in whole["detail"]


def test_a_file_that_is_deleted_says_which_events_are_gone() -> None:
    file = audit_event.DeletedFile(
        name="denials-x.jsonl", size=9, start=START, first=0, last=None, limit="auditMaxFiles"
    )
    whole = audit_event.deleted_marker(file, stamp())
    assert_valid(whole)
    assert whole["deleted"] == {
        "file": "denials-x.jsonl", "bytes": 9, "start": START, "first": 0, "last": None, "limit": "auditMaxFiles",
    }  # fmt: skip
