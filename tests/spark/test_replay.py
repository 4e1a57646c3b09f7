"""The same ruleset gives what was recorded; another one says where it differs (issue 15)."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from literal_events import EVENT, FOLDED, frame

from policy.addressing.address import resolve_named
from policy.decide import decide_connection, decide_link, decide_session
from policy.decision import Decision
from policy.facts import ConnectionFacts, LinkFacts, Usage
from policy.ruleset import Ruleset, compile_ruleset
from spark.replaying.decisions import Replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STAFF: dict[str, Any] = {
    "users": "alice, bob",
    "remoteHosts": "192.0.2.0-192.0.2.9",
    "sources": "a.*, mine.${user}",
    "targets": "a.*",
    "denySources": "a.secret",
    "maxSenders": 2,
    "maxSessions": 3,
    "maxConnectionsPerUser": 2,
    "allowAnonymousSender": False,
    "validUntil": "2026-12-01T00:00:00Z",
}


def rules(**changes: Any) -> Ruleset:
    group = {name: value for name, value in {**STAFF, **changes}.items() if value is not None}
    vhost = {"hostname": "acme", "maxConnections": 9, "groups": {"staff": group}}
    return compile_ruleset({"enableVhostPolicy": True, "defaultVhost": ""}, [(vhost, None)], resolve=lambda _: [])


def event(decision: Decision, **members: Any) -> dict[str, Any]:
    said = "allow" if decision.is_allowed else "deny"
    return {**EVENT, "time_s": 1_763_647_506.0, "decision": said, "reason": decision.reason.value, **members}


RULES = rules()
COUNT = st.integers(0, 4)
PEER = st.fixed_dictionaries(
    {
        "user": st.sampled_from(["alice", "bob", "eve", None]),
        "remote_host": st.sampled_from(["192.0.2.7", "192.0.2.77", "2001:db8::1"]),
        "requested_vhost": st.sampled_from(["acme", "other", ""]),
        "time_s": st.sampled_from([1_763_647_506.0, 1_796_083_200.0, 1_796_083_199.999999]),
    }
)
LINK = st.fixed_dictionaries(
    {
        "direction": st.sampled_from(["send", "receive"]),
        "address": st.sampled_from(["a.b", "a.secret", "amqp:/a.b", "mine.alice", "b", "//", None, ""]),
        "is_dynamic": st.booleans(),
        "is_coordinator": st.booleans(),
        "capabilities": st.sampled_from([(), ("qd.waypoint_1",), ("qd.fallback",)]),
    }
)


def facts_of(peer: Mapping[str, Any]) -> ConnectionFacts:
    members = {name: peer[name] for name in ("user", "remote_host", "requested_vhost")}
    return ConnectionFacts(connection_name="", now=peer["time_s"], **members)


@given(peer=PEER, counts=st.tuples(COUNT, COUNT, COUNT))
def test_an_open_is_decided_as_it_was(peer: dict[str, Any], counts: tuple[int, int, int]) -> None:
    usage = dict(zip(("total", "of_user", "of_host"), counts, strict=True))
    decision = decide_connection(RULES, facts_of(peer), Usage(**usage)).decision
    assert Replay(RULES).decide(event(decision, stage="open", usage=usage, **peer)).decision == decision


@given(peer=PEER, link=LINK, count=COUNT, has_asked=st.booleans())
@settings(max_examples=300)
def test_a_link_is_decided_as_it_was_or_it_is_said_what_is_not_recorded(
    peer: dict[str, Any], link: dict[str, Any], count: int, has_asked: bool
) -> None:
    opened = decide_connection(RULES, facts_of(peer), Usage()).settings
    if opened is None:
        return
    asked = {name: link[name] for name in ("is_dynamic", "is_coordinator", "capabilities")}
    recorded: dict[str, Any] | None = {**asked, "capabilities": json.dumps(link["capabilities"]), "reply_age_ms": None}
    if not any(asked.values()):
        recorded = None  # as routers leave it out
    since_5 = {"asked": recorded, "schema_version": 5}
    address = resolve_named(link["address"], router_id="R1")
    decision = decide_link(opened, LinkFacts(direction=link["direction"], address=address, open_links=count, **asked))
    members: dict[str, Any] = {name: link[name] for name in ("direction", "address")}
    members |= {"stage": "attach", "usage": {"open_links": count}, **peer}
    again = Replay(RULES).decide(event(decision, **members, **(since_5 if has_asked else {})))
    if has_asked:
        assert again.decision == decision
    elif again.decision is None:
        assert "not recorded" in again.why
    elif not decision.is_allowed:
        assert again.decision == decision


@given(count=COUNT)
def test_a_session_is_decided_as_it_was(count: int) -> None:
    peer = {"user": "alice", "remote_host": "192.0.2.7", "requested_vhost": "acme", "time_s": 1_763_647_506.0}
    opened = decide_connection(RULES, facts_of(peer), Usage()).settings
    assert opened is not None
    decision = decide_session(opened, count)
    recorded = event(decision, stage="begin", usage={"open_sessions": count}, **peer)
    assert Replay(RULES).decide(recorded).decision == decision


ALICE: dict[str, Any] = {
    "user": "alice", "remote_host": "192.0.2.7", "requested_vhost": "acme", "usage": {"open_links": 0}, "time_s": 1.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"stage": "sasl", "reason": "sasl_failed"}, "not a decision of policy"),
        ({"stage": "open", "reason": "banned"}, "not a decision of policy"),
        ({"decision": "shadow_deny"}, "not a decision of policy"),
        ({"usage": None}, "the count of links is not recorded"),
        ({"address": None, "folded": FOLDED}, "a sum of requests that differ"),
        ({"direction": None}, "the direction of the link is not recorded"),
        ({"stage": "open", "reason": "user_connection_limit", "usage": None}, "the counts of connections"),
        ({"stage": "attach", "reason": "reply_window_over"}, "the age of the reply"),
        ({"stage": "transfer", "reason": "message_too_large", "limit": None}, "the size of the message"),
        ({"source": "qdrouterd"}, "the log of 1.20"),
        ({"detail": "policy was not asked"}, "policy was not asked"),
    ],
)
def test_what_is_not_recorded_is_not_guessed(members: dict[str, Any], why: str) -> None:
    rules_ = rules(maxMessageSize=10)
    answer = Replay(rules_).decide({**EVENT, **ALICE, "reason": "target_not_allowed", **members})
    assert answer.decision is None
    assert why in answer.why


def test_a_link_on_a_connection_that_the_candidate_refuses_is_refused() -> None:
    recorded = {**EVENT, **ALICE, "decision": "allow", "reason": "allowed", "address": "a.b"}
    answer = Replay(rules(users="bob")).decide(recorded)
    assert answer.decision is not None
    assert (answer.decision.reason.value, answer.at_open) == ("unknown_user", True)


@pytest.mark.spark
def test_replay_tells_who_is_hit(session: "SparkSession") -> None:
    pytest.importorskip("pyspark")
    from spark.transforms.replay import changed, replayed, totals

    base = {**EVENT, **ALICE}
    del base["time_s"]
    events = [
        {**base, "event_id": "1", "reason": "target_not_allowed", "address": "b", "attempts": 7},
        {**base, "event_id": "2", "decision": "allow", "reason": "allowed", "address": "a.b"},
        {**base, "event_id": "3", "decision": "allow", "reason": "allowed", "address": "a.c"},
        {**base, "event_id": "4", "stage": "sasl", "reason": "sasl_failed"},
        {**base, "event_id": "5", "reason": "target_not_allowed", "address": "c", "usage": None},
    ]
    lines = [json.dumps(each) for each in events]
    same = replayed(frame(session, *lines), RULES)
    assert {row.outcome for row in totals(same).collect()} == {"same", "not_replayed"}
    rows = changed(replayed(frame(session, *lines), rules(targets="a.b, b"))).collect()
    assert [(row.outcome, row.address, row.reason, row.requests, row.example) for row in rows] == [
        ("newly_allowed", "b", "allowed", 7, "1"),
        ("newly_denied", "a.c", "target_not_allowed", 1, "3"),
    ]
    assert rows[1].item == "targets"
