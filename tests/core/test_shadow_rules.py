"""What a candidate is asked, with which facts, and what is told of it, one by one. Source: docs/policy.md, Shadow."""

from collections.abc import Callable
from typing import Any

import pytest
from memory_net import Vhosts, at, ruleset_of

from policy.decide import ConnectionDecision
from policy.decision import Decision, Reason
from policy.facts import ConnectionFacts, LinkFacts, MessageFacts
from policy.ruleset import Ruleset, SourceLocation, compile_ruleset
from policy.usage import UsageLedger
from router.admission import candidate as candidate_module
from router.admission import disagreements as disagreements_module
from router.admission.candidate import ConnectionShadow, Shadow
from router.admission.disagreements import Row
from router.effects import Audit, Effect, Log

NOW = 1.85e9
ALL: dict[str, Any] = {"remoteHosts": "*", "sources": "*", "targets": "*", "allowAnonymousSender": True}
ALLOWED = Decision(is_allowed=True, reason=Reason.ALLOWED)
DENIED = Decision(is_allowed=False, reason=Reason.NO_VHOST)


def rules(**vhosts: dict[str, Any]) -> Ruleset:
    return ruleset_of(Vhosts(vhosts))


def for_all(group: dict[str, Any] | None = None, **limits: Any) -> dict[str, Any]:
    return {"allowUnknownUser": True, "groups": {"$default": {**ALL, **(group or {})}}, **limits}


class Trial:
    """A candidate, and all that it has said."""

    def __init__(self, ruleset: Ruleset | None) -> None:
        self.effects: list[Effect] = []
        self.shadow = Shadow(self.effects.append)
        assert (self.shadow.decisions, self.shadow.faults, self.shadow.connections) == (0, 0, {})
        if ruleset is not None:
            assert self.shadow.use(ruleset)
        self.number = 0

    def open(
        self, judged: Decision = ALLOWED, *, user: str | None = "eve", vhost: str = "v", host: str = "192.0.2.1",
        is_connector: bool = False, now: float = NOW,
    ) -> ConnectionShadow | None:  # fmt: skip
        self.number += 1
        name = f"{host}:{self.number}"
        facts = ConnectionFacts(user=user, remote_host=host, requested_vhost=vhost, connection_name=name, now=now)
        members: Any = {
            "connection": self.number, "user": user, "remote_host": host, "requested_vhost": vhost,
            "vhost": "in force", "group": "of force", "ruleset_digest": "of force",
        }  # fmt: skip
        decision = ConnectionDecision(decision=judged, vhost="in force", group="of force")
        return self.shadow.opened(facts, decision, lambda: members, is_connector=is_connector)

    def opened(self, **more: Any) -> ConnectionShadow:
        connection = self.open(**more)
        assert connection is not None
        return connection

    @property
    def events(self) -> list[Any]:
        """Since the last look."""
        found = [each.event for each in self.effects if isinstance(each, Audit)]
        self.effects[:] = [each for each in self.effects if not isinstance(each, Audit)]
        return found

    @property
    def lines(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = [(each.level, each.text) for each in self.effects if isinstance(each, Log)]
        assert {each.module for each in self.effects if isinstance(each, Log)} <= {"POLICY"}
        self.effects.clear()
        return found


def side(trial: Trial, **more: Any) -> dict[str, Any]:
    digest = trial.shadow.ruleset.digest if trial.shadow.ruleset is not None else None
    nothing: dict[str, Any] = dict.fromkeys(
        ("vhost", "group", "item", "file", "line", "total", "of_user", "of_host", "limit")
    )
    return {**nothing, "count": 1, "ruleset_digest": digest, **more}


def test_an_open_that_the_candidate_would_refuse_is_told_with_all_its_facts() -> None:
    trial = Trial(rules(v=for_all(maxConnectionsPerUser=1)))
    trial.opened()
    trial.opened(user=None)
    trial.opened(host="192.0.2.2")
    (event,) = trial.events
    assert event == {
        "connection": 3, "user": "eve", "remote_host": "192.0.2.2", "requested_vhost": "v", "vhost": "in force",
        "group": "of force", "ruleset_digest": "of force",
        "stage": "open", "decision": "shadow_deny", "reason": "allowed", "rule": None,
        "direction": None, "address": None, "detail": "",
        "shadow": side(trial, vhost="v", group="$default", reason="user_connection_limit", total=2, of_user=1,
                       of_host=0, item=event["shadow"]["item"]),
    }  # fmt: skip
    assert event["shadow"]["item"]
    assert trial.lines == [
        ("info", "[C3] SHADOW DENY open for user 'eve', rhost '192.0.2.2', vhost 'v': candidate "
         f"user_connection_limit ({event['shadow']['item']}), in force allowed"),
    ]  # fmt: skip
    assert trial.shadow.decisions == 3


def test_connections_without_a_user_are_those_of_one_user() -> None:
    trial = Trial(rules(v=for_all(maxConnectionsPerUser=1)))
    first = trial.opened(user=None)
    trial.opened(user=None)
    (event,) = trial.events
    assert (event["user"], event["shadow"]["of_user"]) == (None, 1)
    first.close()
    trial.opened(user=None)
    assert trial.events == []


def test_a_connection_that_is_refused_counts_nowhere_and_is_asked_about_no_more() -> None:
    trial = Trial(rules(v=for_all()))
    assert trial.open(DENIED) is None
    assert trial.shadow.connections == {}
    assert trial.shadow.ledger.usage("v", "eve", "192.0.2.1").total == 0
    assert [event["decision"] for event in trial.events] == ["shadow_allow"]


def test_an_outgoing_connection_is_judged_as_that_of_a_connector() -> None:
    trial = Trial(rules(v={"groups": {"$connector": {**ALL, "maxSessions": 1}}}, w=for_all()))
    connection = trial.opened(is_connector=True)
    assert connection.settings is not None
    assert connection.settings.group == "$connector"
    assert trial.shadow.ledger.usage("v", "eve", "192.0.2.1").total == 0
    connection.close()
    assert trial.shadow.connections == {}
    assert trial.events == []
    trial.opened(is_connector=True, vhost="w")
    assert [event["shadow"]["vhost"] for event in trial.events] == ["w"]
    trial.opened()
    (event,) = trial.events
    assert (event["shadow"]["vhost"], event["shadow"]["group"], event["shadow"]["reason"]) == (
        "v",
        None,
        "unknown_user",
    )
    assert trial.shadow.faults == 0


def test_an_outgoing_connection_is_judged_by_its_user_and_the_time() -> None:
    window = {"validUntil": "2028-01-01T00:00:00Z"}
    trial = Trial(rules(v={"groups": {"$connector": {**ALL, **window, "sources": "q.${user}"}}}))
    late = 1.9e9
    connection = trial.opened(is_connector=True, now=1.8e9)
    assert trial.events == []
    connection.attach(ALLOWED, LinkFacts(direction="receive", address=at("q.eve")))
    assert trial.events == []
    trial.opened(is_connector=True, now=late)
    assert [event["shadow"]["reason"] for event in trial.events] == ["group_not_valid"]
    assert trial.shadow.faults == 0


def test_an_open_connection_is_asked_about_again_at_the_time_of_then() -> None:
    trial = Trial(rules(v=for_all()))
    connection = trial.opened(now=1.8e9)
    assert not connection.judge_again(1.8e9)
    trial.shadow.use(rules(v=for_all({"validUntil": "2028-01-01T00:00:00Z"})))
    assert trial.shadow.decisions == 0
    assert connection.judge_again(1.9e9)
    (event,) = trial.events
    assert (event["shadow"]["reason"], event["vhost"], event["group"]) == ("group_not_valid", "in force", "of force")
    assert not connection.judge_again(1.9e9)
    trial.shadow.use(rules(v=for_all({"validFrom": "2028-01-01T00:00:00Z"})))
    assert connection.judge_again(1.9e9)
    assert trial.events == []


def test_the_candidates_limits_are_those_of_its_group() -> None:
    trial = Trial(rules(v=for_all({"maxSessions": 1, "maxSenders": 2, "maxReceivers": 3, "maxMessageSize": 9})))
    connection = trial.opened()
    connection.begin(ALLOWED, 1)
    connection.session_again(0)
    for direction, links in (("send", 2), ("receive", 3)):
        for open_links in (links - 1, links):
            facts: Any = {"direction": direction, "address": at("a"), "open_links": open_links}
            connection.attach(ALLOWED, LinkFacts(**facts))
    connection.size(ALLOWED, 9, 0, "exactly")
    connection.size(ALLOWED, 10, 9, "a")
    connection.size(ALLOWED, 11, 10, "a")
    assert connection.max_message_bytes == 9
    events = trial.events
    assert events[-1]["shadow"]["item"] == "maxMessageSize: 9"
    assert [
        (event["stage"], event["direction"], event["address"], event["shadow"]["reason"], event["shadow"]["limit"])
        for event in events
    ] == [
        ("begin", None, None, "session_limit", 1),
        ("attach", "send", "a", "sender_limit", 2),
        ("attach", "receive", "a", "receiver_limit", 3),
        ("transfer", "send", "a", "message_too_large", 9),
    ]
    assert trial.shadow.decisions == 9


def test_a_link_that_another_rule_denies_has_no_limit_in_its_record() -> None:
    trial = Trial(rules(v=for_all({"sources": "b", "maxReceivers": 3})))
    trial.opened().attach(ALLOWED, LinkFacts(direction="receive", address=at("a")))
    (event,) = trial.events
    assert event["shadow"] == side(trial, vhost="v", group="$default", reason="source_not_allowed", item="sources") | {
        "item": event["shadow"]["item"]
    }


def test_messages_are_judged_by_whom_and_where_to() -> None:
    trial = Trial(rules(v=for_all({"targets": "a", "allowUserIdProxy": False})))
    connection = trial.opened()
    assert connection.checks_user_id
    connection.user_id(ALLOWED, b"eve", "a")
    assert trial.events == []
    connection.user_id(ALLOWED, b"bob", "a")
    connection.target(ALLOWED, MessageFacts(target=at("a")))
    connection.target(ALLOWED, MessageFacts(target=at("b")))
    connection.target(ALLOWED, MessageFacts(is_blank_target=True))
    assert [(event["direction"], event["address"], event["shadow"]["reason"]) for event in trial.events] == [
        ("send", "a", "user_id_proxy"),
        ("send", "b", "message_target_not_allowed"),
        ("send", "", "message_target_not_allowed"),
    ]
    assert connection.agreed_targets == {"a"}
    connection.target(DENIED, MessageFacts(target=at("a")))
    assert [event["decision"] for event in trial.events] == ["shadow_allow"]
    assert not Trial(rules(v=for_all({"allowUserIdProxy": True}))).opened().checks_user_id


def test_targets_that_both_allow_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: endless addresses on one connection, or long ones, to fill the memory."""
    monkeypatch.setattr(candidate_module, "MAX_AGREED_TARGETS", 2)
    monkeypatch.setattr(candidate_module, "MAX_AGREED_CHARACTERS", 3)
    connection = Trial(rules(v=for_all())).opened()

    def send(text: str, judged: Decision = ALLOWED) -> set[str]:
        connection.target(judged, MessageFacts(target=at(text)))
        return set(connection.agreed_targets)

    assert send("abcd") == set()
    assert send("denied", DENIED) == set()
    assert send("no", DENIED) == set()
    assert send("abc") == {"abc"}
    assert send("b") == {"abc", "b"}
    assert send("c") == {"c"}


@pytest.mark.parametrize(
    ("name", "stage", "ask"),
    [
        ("decide_session", "begin", lambda each: each.begin(ALLOWED, 0)),
        ("decide_link", "attach", lambda each: each.attach(ALLOWED, LinkFacts(direction="send", address=None))),
        ("decide_message", "transfer", lambda each: each.user_id(ALLOWED, b"u", "a")),
        ("decide_message", "transfer", lambda each: each.target(ALLOWED, MessageFacts(is_blank_target=True))),
        ("_side", "transfer", lambda each: each.size(ALLOWED, 1, 0, "a")),
        ("decide_connection", "open", lambda each: each._shadow.use(rules(v=for_all(), w=for_all())) and None),
    ],
)
def test_a_fault_is_counted_and_told_with_its_stage_and_the_candidate(
    monkeypatch: pytest.MonkeyPatch, name: str, stage: str, ask: Callable[[Any], None]
) -> None:
    def broken(*_arguments: Any, **_named: Any) -> Any:
        raise RuntimeError("secret")

    trial = Trial(rules(v=for_all()))
    connection = trial.opened()
    monkeypatch.setattr(candidate_module, name, broken)
    for _ in range(3):
        ask(connection)
        connection.judge_again(NOW)
        if stage == "open":
            connection._asked = None
    assert trial.shadow.faults >= 3 - 2 * (stage == "open")
    trial.shadow.disagreements.flush()
    event, *_ = trial.events
    text = event["detail"].removeprefix("the candidate policy could not be asked: ")
    assert text.startswith("RuntimeError at ")
    assert "secret" not in text
    assert event == {
        "stage": stage, "decision": "shadow_error", "reason": "internal_error",
        "detail": f"the candidate policy could not be asked: {text}",
        "shadow": side(trial, reason="internal_error"),
    }  # fmt: skip
    level, said = trial.lines[0]
    assert (level, said) == ("error", f"SHADOW ERROR {stage}: {event['detail']}")


def test_faults_of_one_kind_are_told_once_and_then_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: Any) -> Any:
        raise RuntimeError

    trial = Trial(rules(v=for_all()))
    connection = trial.opened()
    monkeypatch.setattr(candidate_module, "decide_session", broken)
    monkeypatch.setattr(candidate_module, "decide_link", broken)
    for _ in range(4):
        connection.begin(ALLOWED, 0)
        connection.attach(ALLOWED, LinkFacts(direction="send", address=None))
    trial.shadow.disagreements.flush()
    assert [(event["stage"], event["shadow"]["count"]) for event in trial.events] == [
        ("begin", 1), ("attach", 1), ("begin", 3), ("attach", 3),
    ]  # fmt: skip
    assert trial.shadow.faults == 8
    assert [text for _, text in trial.lines][-1].endswith(", 3 times since this was last said")


def test_a_fault_at_the_open_and_at_the_end_is_one_of_the_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: Any) -> Any:
        raise RuntimeError

    trial = Trial(rules(v=for_all()))
    connection = trial.opened()
    monkeypatch.setattr(UsageLedger, "release", broken)
    connection.close()
    assert [event["stage"] for event in trial.events] == ["open"]
    trial = Trial(rules(v=for_all()))
    monkeypatch.setattr(candidate_module, "decide_connection", broken)
    trial.opened()
    assert [event["stage"] for event in trial.events] == ["open"]
    assert trial.shadow.faults == 1


def test_the_place_of_the_candidates_rule_is_told() -> None:
    def resolve(name: str) -> list[str]:
        raise OSError(name)

    written = {"hostname": "v", **for_all({"sources": "a"})}
    trial = Trial(
        compile_ruleset(Vhosts({}).policy, [(written, SourceLocation(file="v.json", line=7))], resolve=resolve)
    )
    trial.opened().attach(ALLOWED, LinkFacts(direction="receive", address=at("b")))
    (event,) = trial.events
    assert (event["shadow"]["file"], event["shadow"]["line"]) == ("v.json", 7)
    assert "(sources, v.json:7), in force allowed" in trial.lines[-1][1]


def test_faults_that_are_too_many_to_be_told_are_summed_up_by_their_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disagreements_module, "MAX_TOLD", 0)
    trial = Trial(None)
    for stage in ("open", "attach", "attach"):
        trial.shadow.note_fault(RuntimeError(), stage)
    trial.shadow.disagreements.flush()
    assert [(event["stage"], event["shadow"]["count"]) for event in trial.events] == [("open", 1), ("attach", 2)]


def test_a_connection_that_the_candidate_would_not_have_is_asked_about_no_more() -> None:
    trial = Trial(rules(w=for_all()))
    connection = trial.opened()
    assert len(trial.events) == 1
    connection.begin(ALLOWED, 0)
    connection.attach(ALLOWED, LinkFacts(direction="send", address=None))
    connection.user_id(ALLOWED, b"u", "a")
    connection.target(ALLOWED, MessageFacts(is_blank_target=True))
    connection.target(ALLOWED, MessageFacts(target=at("a")))
    connection.size(ALLOWED, 1, 0, "a")
    assert (connection.max_message_bytes, connection.checks_user_id) == (0, False)
    assert (trial.events, trial.shadow.faults, trial.shadow.decisions) == ([], 0, 1)


def test_a_fault_without_a_candidate_is_told_without_its_digest() -> None:
    trial = Trial(None)
    trial.shadow.note_fault(RuntimeError(), "open")
    assert trial.events[0]["shadow"] == side(trial, reason="internal_error")


def test_what_ends_the_process_is_not_taken_for_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: Any) -> Any:
        raise KeyboardInterrupt

    trial = Trial(rules(v=for_all()))
    connection = trial.opened()
    monkeypatch.setattr(candidate_module, "decide_session", interrupted)
    with pytest.raises(KeyboardInterrupt):
        connection.begin(ALLOWED, 0)
    assert trial.shadow.faults == 0


def test_a_connection_may_end_after_its_candidate() -> None:
    trial = Trial(rules(v=for_all()))
    connection = trial.opened()
    trial.shadow.use(rules(w=for_all()))
    connection.close()
    connection.close()
    assert (trial.shadow.faults, trial.shadow.connections) == (0, {})


# Counts and sums


@pytest.mark.parametrize(
    ("row", "identity"),
    [
        (Row("would_deny", "allowed", "no_vhost", "v", None), "would_deny/no_vhost/vhost/v"),
        (Row("would_allow", "no_vhost", "allowed", None, "w"), "would_allow/no_vhost/requested/w"),
        (Row("would_deny", "allowed", "no_vhost", None, None), "would_deny/no_vhost/other"),
    ],
)
def test_what_a_row_is_called(row: Row, identity: str) -> None:
    assert row.identity == f"shadowDisagreement/{identity}"


def test_totals_are_those_of_each_outcome() -> None:
    trial = Trial(rules(v=for_all()))
    for _ in range(3):
        trial.open(DENIED)
    trial.open(vhost="w")
    trial.open(vhost="w2")
    found = trial.shadow.disagreements
    assert (found.total("would_allow"), found.total("would_deny")) == (3, 2)
    found.clear()
    assert (found.total("would_allow"), list(found.rows())) == (0, [])


def test_a_sum_tells_nothing_of_those_it_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: an address per attempt. What remains says the stage, the reasons, the vhost and the direction."""
    monkeypatch.setattr(disagreements_module, "MAX_TOLD", 1)
    trial = Trial(rules(v=for_all({"sources": "a", "targets": "a"})))
    connection = trial.opened()
    for number in range(4):
        connection.attach(ALLOWED, LinkFacts(direction="receive", address=at(f"b{number}")))
    connection.attach(ALLOWED, LinkFacts(direction="send", address=at("b")))
    (first,) = trial.events
    assert first["address"] == "b0"
    trial.lines  # noqa: B018  what was said so far
    trial.shadow.disagreements.flush()
    received, sent = trial.events
    assert received == {
        "stage": "attach", "decision": "shadow_deny", "reason": "allowed", "ruleset_digest": "of force",
        "vhost": "in force", "direction": "receive",
        "detail": "various users, hosts and addresses, beyond the 1 told one by one",
        "shadow": side(trial, vhost="v", group="$default", reason="source_not_allowed", count=3),
    }  # fmt: skip
    assert (sent["direction"], sent["shadow"]["count"]) == ("send", 1)
    said = "SHADOW DENY attach for various users, hosts and addresses, beyond the 1 told one by one: candidate "
    assert trial.lines == [
        ("info", f"{said}source_not_allowed, in force allowed, 3 times since this was last said"),
        ("info", f"{said}target_not_allowed, in force allowed"),
    ]


def test_requests_that_differ_are_told_one_by_one() -> None:
    trial = Trial(rules(v=for_all({"sources": "a"})))
    first, second = trial.opened(), trial.opened(user=None, host="192.0.2.2")
    for connection in (first, second, first, second):
        for text in ("b", "c"):
            connection.attach(ALLOWED, LinkFacts(direction="receive", address=at(text)))
    assert [(event["user"], event["address"]) for event in trial.events] == [
        ("eve", "b"), ("eve", "c"), (None, "b"), (None, "c"),
    ]  # fmt: skip
    trial.lines  # noqa: B018
    trial.shadow.disagreements.flush()
    assert [event["shadow"]["count"] for event in trial.events] == [1, 1, 1, 1]
    assert "[C2] SHADOW DENY attach 'c' for user '', rhost '192.0.2.2', vhost 'v'" in trial.lines[-1][1]


def test_what_goes_on_is_told_with_each_flush() -> None:
    trial = Trial(rules())
    for count in (2, 1, 3):
        for _ in range(count + (trial.number == 0)):
            trial.open()
        trial.shadow.disagreements.flush()
    events = trial.events
    assert [event["shadow"]["count"] for event in events] == [1, 2, 1, 3]
    assert {(event["user"], event["reason"]) for event in events} == {("eve", "allowed")}
    said = ", {} times since this was last said"
    endings = ["allowed", said.format(2), "allowed", said.format(3)]
    assert all(text.endswith(end) for (_, text), end in zip(trial.lines, endings, strict=True))


@pytest.mark.parametrize("other", [{"user": "bob"}, {"host": "192.0.2.2"}])
def test_another_user_or_host_is_another_disagreement(other: dict[str, Any]) -> None:
    trial = Trial(rules())
    trial.open()
    trial.open(**other)
    trial.open()
    assert [event["connection"] for event in trial.events] == [1, 2]


def test_both_directions_of_an_address_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(rules(v=for_all({"allowWaypointLinks": False})))
    connection = trial.opened()
    for direction in ("send", "receive"):
        facts: Any = {"direction": direction, "address": at("a"), "capabilities": ("qd.waypoint_1",)}
        connection.attach(ALLOWED, LinkFacts(**facts))
    assert [event["direction"] for event in trial.events] == ["send", "receive"]


def test_a_candidate_that_allows_is_told_with_the_vhost_that_was_asked_for() -> None:
    trial = Trial(rules(v=for_all()))
    trial.open(DENIED, vhost="v")
    assert trial.lines == [
        ("info", "[C1] SHADOW ALLOW open for user 'eve', rhost '192.0.2.1', vhost 'v': candidate allowed, in force "
         "no_vhost"),
    ]  # fmt: skip
    trial = Trial(rules())
    trial.open(vhost="w")
    assert trial.lines == [
        ("info", "[C1] SHADOW DENY open for user 'eve', rhost '192.0.2.1', vhost 'w': candidate no_vhost "
         "(defaultVhost: $default), in force allowed"),
    ]  # fmt: skip


def test_the_vhost_that_the_candidate_chooses_is_told() -> None:
    trial = Trial(rules(**{"$default": {"groups": {}}}))
    trial.open(vhost="w")
    assert "for user 'eve', rhost '192.0.2.1', vhost '$default': candidate unknown_user" in trial.lines[0][1]
