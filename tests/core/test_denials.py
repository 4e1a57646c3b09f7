"""A denial is a value; the recorder makes of it what it leaves (issue 10, point 4)."""

from typing import get_args

import pytest

from policy.decision import Decision, Reason, Rule
from policy.usage import UsageLedger
from router.admission.denials import Counter, Denied, Recorder, line
from router.admission.refusals import LINK_REFUSED
from router.effects import Audit, AuditEvent, Effect, Log

DECISION = Decision(is_allowed=False, reason=Reason.TARGET_NOT_ALLOWED, rule=Rule(vhost="v", item="targets"))


def recorded(denied: Denied, *, explains: bool = False) -> tuple[list[Effect], UsageLedger, str]:
    effects: list[Effect] = []
    ledger = UsageLedger()
    recorder = Recorder(ledger, effects.append)
    recorder.explains = explains
    refusal = recorder.record(denied, {"connection": 7, "user": "ann", "vhost": "v"})
    return effects, ledger, refusal.description


def denied(**more: object) -> Denied:
    return Denied(stage="attach", decision=DECISION, refusal=LINK_REFUSED, **more)  # type: ignore[arg-type]


def event_of(effects: list[Effect]) -> AuditEvent:
    (audit,) = [each for each in effects if isinstance(each, Audit)]
    return audit.event


def test_lines_come_first_and_the_event_has_all_that_is_known() -> None:
    lines = (line("info", "one"), line("debug", "two"))
    effects, _ledger, told = recorded(denied(lines=lines, request={"address": "a", "limit": 3}, time_s=5.0))
    assert effects[:2] == [
        Log(module="POLICY", level="info", text="one"),
        Log(module="POLICY", level="debug", text="two"),
    ]
    assert isinstance(effects[2], Audit)
    assert effects[2].time_s == 5.0
    assert event_of(effects) == {
        "connection": 7, "user": "ann", "vhost": "v", "stage": "attach", "decision": "deny",
        "reason": "target_not_allowed", "condition": "amqp:unauthorized-access", "address": "a", "limit": 3,
        "detail": "link disallowed by local policy",
        "rule": {"vhost": "v", "group": None, "item": "targets", "file": None, "line": None},
    }  # fmt: skip
    assert told == "link disallowed by local policy"


def test_the_peer_and_the_event_are_told_the_rule_where_the_policy_wants_that() -> None:
    effects, _ledger, told = recorded(denied(), explains=True)
    assert told == "link disallowed by local policy: target_not_allowed, vhost 'v', targets"
    assert event_of(effects)["detail"] == told


def test_a_peer_that_is_told_nothing_has_no_condition() -> None:
    effects, _ledger, _told = recorded(denied(is_silent=True))
    assert not {"condition", "detail"} & event_of(effects).keys()


def test_what_the_denial_says_of_itself_goes_before_what_the_peer_is_told() -> None:
    effects, _ledger, told = recorded(denied(request={"detail": "why"}))
    assert (event_of(effects)["detail"], told) == ("why", LINK_REFUSED.description)


@pytest.mark.parametrize("counter", [*get_args(Counter), None])
def test_one_counter_counts_it_once(counter: Counter | None) -> None:
    _effects, ledger, _told = recorded(denied(counter=counter))
    ledger.ensure_vhost("v")
    counts = {**ledger.vhost_denials("v"), "connectionsDenied": ledger.vhost_stats("v")["connectionsDenied"]}
    expected = {
        "open": "connectionsDenied", "session": "sessionDenied", "send": "senderDenied", "receive": "receiverDenied",
        "message_size": "maxMessageSizeDenied",
    }.get(counter or "")  # fmt: skip
    assert {name for name, count in counts.items() if count} == ({expected} if expected else set())
    assert ledger.policy_counters()["totalDenials"] == (counter not in (None, "open"))
