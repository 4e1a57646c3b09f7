"""allowReplies and replyWindow in a policy, and what the command line knows of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from rulesets import at, group_ruleset, settings

from policy.analysis.conversion import compatible
from policy.analysis.difference import diff_rulesets
from policy.analysis.explain import explain_link
from policy.cli.main import main
from policy.decide import decide_link, decide_message
from policy.decision import Reason
from policy.facts import LinkFacts, MessageFacts
from policy.files.validation import load_sections
from policy.ruleset import PolicyError

DYNAMIC = "amqp:/_topo/0/R/temp.abcdefghijklmno"
GROUP: dict[str, Any] = {"users": "service", "remoteHosts": "10.0.0.1", "sources": "requests"}


def policy_file(folder: Path, **group: object) -> str:
    path = folder / "policy.json"
    path.write_text(json.dumps([["vhost", {"hostname": "h", "groups": {"g": {**GROUP, **group}}}]]))
    return str(path)


def test_nobody_may_reply_unless_it_is_written() -> None:
    granted = settings()
    assert (granted.allow_replies, granted.reply_window_s) == (False, 300)
    assert settings(allowReplies="TRUE", replyWindow="60").reply_window_s == 60


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"replyWindow": 0}, "option 'replyWindow' has error 'Value '0' is below minimum '1'.'."),
        ({"replyWindow": 86401}, "option 'replyWindow' has error 'Value '86401' is above maximum '86400'.'."),
        ({"replyWindow": "soon"}, "option 'replyWindow' has error 'Value 'soon' does not resolve to an integer.'."),
        ({"allowReplies": "yes"}, "option 'allowReplies' has illegal boolean value 'yes'."),
    ],
)
def test_what_is_wrong_is_refused(written: dict[str, object], said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        group_ruleset(**written)
    assert str(caught.value).endswith(said)


def test_the_digest_of_a_policy_without_stays_what_it_was() -> None:
    plain = group_ruleset(targets="a").digest
    assert group_ruleset(targets="a", allowReplies=False).digest == plain
    assert group_ruleset(targets="a", replyWindow=7).digest == plain  # without effect
    replying = {group_ruleset(targets="a", allowReplies=True, replyWindow=window).digest for window in (7, 300)}
    assert len({plain, *replying}) == 3
    assert group_ruleset(targets="a", allowReplies=True).digest in replying


@pytest.mark.parametrize(
    ("age_s", "reason"),
    [(0.0, Reason.ALLOWED), (9.9, Reason.ALLOWED), (10.0, Reason.REPLY_WINDOW_OVER), (None, Reason.REPLY_NOT_EXPECTED)],
)
def test_links_and_messages_are_decided_alike(age_s: float | None, reason: Reason) -> None:
    granted = settings(allowReplies=True, replyWindow=10)
    link = LinkFacts(direction="send", address=at(DYNAMIC), dynamic_address="other", reply_age_s=age_s)
    message = MessageFacts(target=at(DYNAMIC), dynamic_address="other", reply_age_s=age_s)
    assert decide_link(granted, link).reason is decide_message(granted, message).reason is reason


def test_a_reply_needs_a_sender_like_others() -> None:
    granted = settings(allowReplies=True, maxSenders=1)
    link = LinkFacts(direction="send", address=at("a"), reply_age_s=0.0, open_links=1)
    assert decide_link(granted, link).reason is Reason.SENDER_LIMIT
    waypoint = LinkFacts(direction="send", address=at("a"), reply_age_s=0.0, capabilities=("qd.waypoint",))
    assert (
        decide_link(settings(allowReplies=True, allowWaypointLinks=False), waypoint).reason
        is Reason.WAYPOINT_CAPABILITY
    )


def summary(before: dict[str, object], after: dict[str, object]) -> list[tuple[str, str, str | None, str | None]]:
    old, new = ({**GROUP, "users": "bob", **more} for more in (before, after))
    changes = diff_rulesets(group_ruleset(**old), group_ruleset(**new))
    return [("+" if each.is_widening else "-", each.subject, each.before, each.after) for each in changes]


ON: dict[str, object] = {"allowReplies": True}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, ON, [("+", "allowReplies", "false", "true")]),
        ({**ON, "replyWindow": 60}, {}, [("-", "allowReplies", "true", "false")]),
        ({**ON, "replyWindow": 60}, ON, [("+", "replyWindow", "60", "300")]),
        (ON, {**ON, "replyWindow": 60}, [("-", "replyWindow", "300", "60")]),
        ({"replyWindow": 60}, {"replyWindow": 70}, []),
        ({**ON, "targets": "*"}, {"targets": "*"}, [("-", "allowReplies", "true", "false")]),
        # Who can open no sender cannot reply either.
        ({**ON, "maxSenders": 0}, ON, [("+", "allowReplies", "false", "true"), ("+", "maxSenders", "0", "no limit")]),
    ],
)
def test_a_difference_is_told_once(
    before: dict[str, object], after: dict[str, object], expected: list[tuple[str, str, str | None, str | None]]
) -> None:
    assert summary(before, after) == expected


@pytest.mark.parametrize(
    ("facts", "texts"),
    [
        (
            {"reply_age_s": 5.0},
            ["allowReplies lets the connection reply for 10 seconds: a message with this reply-to came"],
        ),
        ({"reply_age_s": 50.0}, ["came 50 seconds ago"]),
        ({}, ["targets of group 'g' do not name", "none has come"]),
        ({"dynamic_address": "own"}, ["a connection may send to the dynamic addresses it made"]),
        ({"direction": "receive"}, ["has the form of a dynamic address: only the connection that made"]),
        ({"direction": "receive", "dynamic_address": "own"}, ["only the connection that made a dynamic address"]),
        ({"address": at("x")}, ["no message with it as reply-to has come that counts"]),
        ({"address": at("x"), "reply_age_s": 5.0}, ["a message with this reply-to came 5 seconds ago"]),
    ],
)
def test_an_explanation_tells_of_owners_and_replies(facts: dict[str, Any], texts: list[str]) -> None:
    granted = settings(allowReplies=True, replyWindow=10)
    found = explain_link(granted, LinkFacts(**{"direction": "send", "address": at(DYNAMIC), **facts}))
    told = "\n".join(step.text for step in found.steps)
    assert all(text in told for text in texts), told
    assert found.steps[-1].is_passed is found.decision.is_allowed


def test_the_command_line_explains_replies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = policy_file(tmp_path, allowReplies=True)
    asked = ["explain", file, "--user", "service", "--host", "10.0.0.1", "--vhost", "h"]
    for more, status, words in (
        (["--send", DYNAMIC, "--reply-age", "20"], 0, "ALLOWED: allowed"),
        (["--send", DYNAMIC], 1, "DENIED: reply_not_expected"),
        (["--send", DYNAMIC, "--reply-age", "300"], 1, "DENIED: reply_window_over"),
        (["--send", DYNAMIC, "--own"], 0, "ALLOWED: allowed"),
        (["--receive", DYNAMIC, "--own"], 0, "ALLOWED: allowed"),
        (["--receive", DYNAMIC], 1, "DENIED: dynamic_address_not_own"),
        (["--receive", "requests", "--own"], 0, "ALLOWED: allowed"),
    ):
        assert main([*asked, *more]) == status
        assert capsys.readouterr().out.startswith(words)


def test_expectations_ask_about_replies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy_file(tmp_path, allowReplies=True)
    who = {"user": "service", "host": "10.0.0.1", "vhost": "h"}
    expected = [
        {**who, "send": "alice.replies", "replyAge": 299.9, "is": "allow"},
        {**who, "send": ["alice.replies", DYNAMIC], "replyAge": 300, "is": "deny", "reason": "reply_window_over"},
        {**who, "send": "alice.replies", "is": "deny", "reason": "target_not_allowed"},
        {**who, "receive": DYNAMIC, "is": "deny", "reason": "dynamic_address_not_own"},
    ]
    file = tmp_path / "expectations" / "e.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"policy": "../policy.json", "expect": expected}))
    assert main(["test", str(file)]) == 0
    wrong = [{**who, "receive": "a", "replyAge": 1, "is": "allow"}, {**who, "send": "a", "replyAge": -1, "is": "allow"}]
    file.write_text(json.dumps({"policy": "../policy.json", "expect": wrong}))
    capsys.readouterr()
    assert main(["test", str(file)]) == 3
    output = capsys.readouterr().out
    assert "'replyAge' is said of an address to send to" in output
    assert "'replyAge' is a number of seconds, from 0 on" in output


def test_the_schema_knows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for window in (1, "60", 86400):
        assert load_sections(Path(policy_file(tmp_path, allowReplies=True, replyWindow=window)).read_text(), "p")
    for window in (0, 86401, "0", "x", True):
        assert main(["lint", policy_file(tmp_path, allowReplies=True, replyWindow=window)]) == 3
        assert "replyWindow" in capsys.readouterr().out


def test_1_20_cannot_say_it_and_narrowing_leaves_it_out() -> None:
    def converted(*, narrows: bool = False, **group: object) -> Any:
        return compatible({"hostname": "h", "groups": {"g": {**GROUP, **group}}}, narrows=narrows)

    obstacles = converted(allowReplies=True, replyWindow=60).obstacles
    assert [each.path for each in obstacles] == [("groups", "g", "allowReplies"), ("groups", "g", "replyWindow")]
    for attributes in (converted(narrows=True, allowReplies=True), converted(allowReplies="false", replyWindow=5)):
        assert attributes.obstacles == ()
        assert attributes.attributes["groups"] == {"g": GROUP}
