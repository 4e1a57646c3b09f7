"""validFrom and validUntil: when a group's members may be connected, and that nothing takes its place."""

import json
import math
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rulesets import present, ruleset

from policy.analysis.changes import Change
from policy.analysis.confirmation import confirms
from policy.analysis.difference import diff_rulesets
from policy.cli.main import main
from policy.decide import ConnectionDecision, decide_connection, decide_connector
from policy.decision import Reason
from policy.facts import ConnectionFacts, Usage
from policy.ruleset import PolicyError, Ruleset, SourceLocation, compile_ruleset
from policy.windows import Window, joined, read_instant, shown_instant, stretches_of

BEGIN, END = "2027-01-15T09:00:00+01:00", "2027-01-15T10:00:00Z"
BEGIN_S, END_S = 1_800_000_000.0, 1_800_007_200.0


def windowed(window: dict[str, object], **more: object) -> Ruleset:
    """anna in a group with this window, everybody else in a wider one without."""
    groups = {
        "g": {"users": "anna", "remoteHosts": "*", "targets": "a", **present(window)},
        "all": {"users": "*", "remoteHosts": "*", "sources": "*", "targets": "*"},
    }
    return ruleset({"hostname": "h", "groups": groups, **more})


def at(rules: Ruleset, now: float | None, user: str = "anna") -> ConnectionDecision:
    facts = ConnectionFacts(user=user, remote_host="10.0.0.1", requested_vhost="h", connection_name="c", now=now)
    return decide_connection(rules, facts, Usage())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2027-01-15T08:00:00Z", BEGIN_S),
        ("2027-01-15t08:00:00z", BEGIN_S),
        ("2027-01-15 09:00:00+01:00", BEGIN_S),
        ("2027-01-15T02:30:00-05:30", BEGIN_S),
        ("2027-01-15T08:00:00-00:00", BEGIN_S),
        ("2027-01-15T08:00:00.25Z", BEGIN_S + 0.25),
        ("1970-01-01T00:00:00Z", 0.0),
        ("2024-02-29T00:00:00Z", 1_709_164_800.0),
        ("2027-01-16T07:59:00+23:59", BEGIN_S),
        ("2027-01-14T08:01:00-23:59", BEGIN_S),
    ],
)
def test_instants_are_those_of_rfc_3339(text: str, seconds: float) -> None:
    assert read_instant(text) == seconds


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("2027-01-15T08:00:00", "Its offset from UTC is missing: 2027-01-15T08:00:00Z or"),
        ("2027-01-15", "must be an RFC 3339 time, such as"),
        ("15.1.2027 08:00", "must be an RFC 3339 time"),
        ("2027-01-15T08:00Z", "must be an RFC 3339 time"),
        ("2027-01-15T08:00:00+0100", "must be an RFC 3339 time"),
        (" 2027-01-15T08:00:00Z", "must be an RFC 3339 time"),
        ("٢٠٢٧-01-15T08:00:00Z", "must be an RFC 3339 time"),
        ("2027-01-15T08:00:00.1234567Z", "must be an RFC 3339 time"),
        ("2027-02-29T08:00:00Z", "day is out of range for month"),
        ("2016-12-31T23:59:60Z", "second must be in 0..59"),
        ("2027-01-15T24:00:00Z", "hour must be in 0..23"),
        ("2027-01-15T08:00:00+24:00", "goes up to 23:59"),
        ("2027-01-15T08:00:00+23:60", "goes up to 23:59"),
        ("0001-01-01T00:00:00+01:00", "not in the years 1970 to 9999"),
        ("1969-12-31T23:59:59Z", "not in the years 1970 to 9999"),
        ("9999-12-31T23:59:59-01:00", "not in the years 1970 to 9999"),
        ("9999-12-31T23:59:59.999999Z", "not in the years 1970 to 9999"),
        (1_800_000_000, "must be an RFC 3339 time"),
        (["2027-01-15T08:00:00Z"], "must be an RFC 3339 time"),
    ],
)
def test_what_is_no_instant_is_refused_with_what_would_be_right(value: object, said: str) -> None:
    with pytest.raises(PolicyError, match="user group 'g' option 'validUntil' has illegal value") as caught:
        windowed({"validUntil": value})
    assert said in str(caught.value)


@pytest.fixture
def far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine's time zone is nine hours ahead."""
    monkeypatch.setenv("TZ", "XYZ-9")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_from_utc")
def test_the_time_zone_of_the_machine_does_not_count() -> None:
    assert read_instant("2027-01-15T08:00:00Z") == BEGIN_S
    assert shown_instant(BEGIN_S) == "2027-01-15T08:00:00Z"


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 30)))
def test_an_instant_is_shown_so_that_it_can_be_read(moment: datetime) -> None:
    seconds = moment.replace(tzinfo=UTC).timestamp()
    assert read_instant(shown_instant(seconds)) == seconds


@pytest.mark.parametrize("end", [BEGIN, "2027-01-15T08:00:00Z", "2027-01-15T07:59:59Z"])
def test_a_window_that_never_opens_is_refused_at_its_end(end: str) -> None:
    source = SourceLocation(
        file="p.json", line=1, places={("groups", "g", "validFrom"): (4, 1), ("groups", "g", "validUntil"): (5, 1)}
    )
    vhost = {"hostname": "h", "groups": {"g": {"users": "a", "validFrom": BEGIN, "validUntil": end}}}
    with pytest.raises(PolicyError, match="is not after validFrom 2027-01-15T08:00:00Z") as caught:
        compile_ruleset({}, [(vhost, source)], resolve=lambda _: ())
    assert (caught.value.file, caught.value.line) == ("p.json", 5)


@pytest.mark.parametrize(
    ("window", "now", "is_valid"),
    [
        ({"validFrom": BEGIN}, BEGIN_S - 0.001, False),
        ({"validFrom": BEGIN}, BEGIN_S, True),
        ({"validUntil": END}, END_S - 0.001, True),
        ({"validUntil": END}, END_S, False),
        ({"validFrom": BEGIN, "validUntil": END}, 0.0, False),
        ({"validFrom": BEGIN, "validUntil": END}, BEGIN_S, True),
        ({"validFrom": BEGIN, "validUntil": END}, math.inf, False),
        ({"validFrom": BEGIN}, math.nan, False),
        ({"validUntil": END}, math.nan, False),
        ({"validFrom": BEGIN}, None, False),
        ({"validUntil": END}, None, False),
        ({}, None, True),
        ({"validUntil": None}, None, True),
    ],
)
def test_a_window_begins_with_its_first_instant_and_ends_before_its_last(
    window: dict[str, object], now: float | None, is_valid: bool
) -> None:
    decision = at(windowed(window), now).decision
    assert decision.is_allowed == is_valid
    assert decision.reason is (Reason.ALLOWED if is_valid else Reason.GROUP_NOT_VALID)


@pytest.mark.parametrize("wider", [{}, {"allowUnknownUser": True}])
def test_outside_its_window_a_user_falls_into_no_wider_group(wider: dict[str, object]) -> None:
    """The group with the user `*` would allow more than the one that is over."""
    judged = at(windowed({"validUntil": END}), END_S)
    assert (judged.decision.is_allowed, judged.group, judged.settings) == (False, "g", None)
    groups = {"g": {"users": "anna", "remoteHosts": "*", "validUntil": END}, "$default": {"remoteHosts": "*"}}
    default = ruleset({"hostname": "h", "groups": groups, **wider})
    assert at(default, END_S).decision.reason is Reason.GROUP_NOT_VALID
    assert at(default, END_S, "ben").decision.is_allowed == bool(wider)


def test_a_window_decides_before_the_host_and_the_limits() -> None:
    rules = windowed({"validUntil": END, "remoteHosts": "10.9.9.9", "maxConnectionsPerUser": 0})
    assert at(rules, END_S).decision.reason is Reason.GROUP_NOT_VALID
    assert at(rules, BEGIN_S).decision.reason is Reason.HOST_NOT_ALLOWED


def test_of_several_groups_of_the_authenticator_the_first_by_name_holds_even_when_it_is_over() -> None:
    groups = {
        "a": {"authenticatorGroups": "dev", "remoteHosts": "*", "validUntil": END},
        "b": {"authenticatorGroups": "ops", "remoteHosts": "*"},
    }
    facts = ConnectionFacts(
        user="u", remote_host="::1", requested_vhost="h", connection_name="c", groups=("ops", "dev"), now=END_S
    )
    judged = decide_connection(ruleset({"hostname": "h", "groups": groups}), facts, Usage())
    assert (judged.decision.reason, judged.group) == (Reason.GROUP_NOT_VALID, "a")


@pytest.mark.parametrize(
    ("window", "now", "item"),
    [
        ({"validFrom": BEGIN, "validUntil": END}, 0.0, "validFrom: 2027-01-15T08:00:00Z"),
        ({"validFrom": BEGIN, "validUntil": END}, END_S, "validUntil: 2027-01-15T10:00:00Z"),
        ({"validFrom": BEGIN}, None, "validFrom: 2027-01-15T08:00:00Z"),
        ({"validUntil": END}, None, "validUntil: 2027-01-15T10:00:00Z"),
        ({"validFrom": "1970-01-01T00:00:00Z"}, None, "validFrom: 1970-01-01T00:00:00Z"),
    ],
)
def test_a_denial_says_when_the_group_was_or_will_be_valid(
    window: dict[str, object], now: float | None, item: str
) -> None:
    rule = at(windowed(window), now).decision.rule
    assert rule is not None
    assert (rule.vhost, rule.group, rule.item) == ("h", "g", item)


def test_a_connector_group_has_its_window_too() -> None:
    rules = ruleset({"hostname": "h", "groups": {"$connector": {"targets": "a", "validUntil": END}}})
    assert decide_connector(rules, "h", None, END_S - 1).settings is not None
    over = decide_connector(rules, "h", None, END_S)
    assert (over.decision.reason, over.settings) == (Reason.GROUP_NOT_VALID, None)
    assert decide_connector(rules, "h", None, None).settings is None


def test_the_boundaries_of_all_groups_are_known() -> None:
    rules = windowed({"validFrom": BEGIN, "validUntil": END})
    assert rules.boundaries == (BEGIN_S, END_S)
    other = {"hostname": "k", "groups": {"x": {"users": "a", "validFrom": "2027-01-15T09:00:00Z", "validUntil": END}}}
    more = rules.with_vhost(other, resolve=lambda _: ())
    assert more.boundaries == (BEGIN_S, BEGIN_S + 3600, END_S)
    assert more.without_vhost("h").boundaries == (BEGIN_S + 3600, END_S)
    assert windowed({}).boundaries == ()


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.none() | st.integers(0, 9), st.none() | st.integers(0, 9)), max_size=3),
    st.floats(-1, 11, allow_nan=False),
    st.floats(-1, 11, allow_nan=False),
)
def test_between_two_boundaries_no_decision_differs(edges: list[Any], one: float, other: float) -> None:
    groups = {}
    for number, (begin, end) in enumerate(edges):
        window = {"validFrom": begin, "validUntil": end}
        if begin is None or end is None or begin < end:
            shown = {key: shown_instant(edge) for key, edge in window.items() if edge is not None}
            groups[f"g{number}"] = {"users": f"u{number}", "remoteHosts": "*", **shown}
    rules = ruleset({"hostname": "h", "groups": groups})
    early, late = sorted((one, other))
    if not any(early < boundary <= late for boundary in rules.boundaries):
        for number in range(3):
            assert at(rules, early, f"u{number}").decision == at(rules, late, f"u{number}").decision


def test_how_an_instant_is_written_does_not_count() -> None:
    one, other = (windowed({"validFrom": text}) for text in (BEGIN, "2027-01-15T08:00:00.000Z"))
    assert one.digest == other.digest != windowed({}).digest
    assert windowed({"validFrom": None}).digest == windowed({}).digest


# Differences


def summary(changes: tuple[Change, ...]) -> list[tuple[str, str, tuple[str, ...]]]:
    return [("+" if each.is_widening else "-", each.subject, each.times) for each in changes]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, {"validUntil": END}, [("-", "connect", ("from 2027-01-15T10:00:00Z",))]),
        ({"validFrom": BEGIN}, {}, [("+", "connect", ("until 2027-01-15T08:00:00Z",))]),
        (
            {"validUntil": "2027-01-15T08:00:00Z"},
            {"validUntil": END},
            [("+", "connect", ("from 2027-01-15T08:00:00Z until 2027-01-15T10:00:00Z",))],
        ),
        (
            {"validUntil": BEGIN},
            {"validFrom": BEGIN},
            [
                ("-", "connect", ("until 2027-01-15T08:00:00Z",)),
                ("+", "connect", ("from 2027-01-15T08:00:00Z",)),
            ],
        ),
        ({"validFrom": BEGIN}, {"validFrom": "2027-01-15T08:00:00Z"}, []),
        (
            {"validFrom": BEGIN, "validUntil": END},
            {"validFrom": BEGIN, "validUntil": END, "targets": "a, b"},
            [("+", "send", ("from 2027-01-15T08:00:00Z until 2027-01-15T10:00:00Z",))],
        ),
    ],
)
def test_a_change_of_a_window_is_a_difference_at_certain_times(
    old: dict[str, object], new: dict[str, object], expected: list[tuple[str, str, tuple[str, ...]]]
) -> None:
    changes = diff_rulesets(windowed(old), windowed(new))
    assert sorted(summary(changes)) == sorted(expected)
    assert all(change.users == ("anna",) for change in changes)
    assert all(change.witness.at is not None for change in changes)


def test_at_an_instant_only_what_holds_then_differs() -> None:
    old, new = windowed({}), windowed({"validUntil": END})
    assert diff_rulesets(old, new, BEGIN_S) == ()
    (change,) = diff_rulesets(old, new, END_S)
    assert (change.times, change.witness.at) == ((), END)


def test_a_window_of_connectors_is_compared() -> None:
    old, new = (
        ruleset({"hostname": "h", "groups": {"$connector": {"targets": "a", **window}}})
        for window in ({}, {"validUntil": END})
    )
    (change,) = (each for each in diff_rulesets(old, new) if each.subject == "connector connect")
    assert (change.is_widening, change.times) == (False, ("from 2027-01-15T10:00:00Z",))


edges = st.none() | st.integers(0, 4)


@st.composite
def random_windowed(draw: st.DrawFn) -> Ruleset:
    def window() -> dict[str, str]:
        begin, end = draw(edges), draw(edges)
        if begin is not None and end is not None and begin >= end:
            end = None
        found = {"validFrom": begin, "validUntil": end}
        return {key: shown_instant(edge) for key, edge in found.items() if edge is not None}

    groups: dict[str, Any] = {
        "g": {"users": draw(st.sampled_from(["anna", "anna, ben"])), "remoteHosts": "10.0.0.1", **window()},
        "all": {"users": draw(st.sampled_from(["*", ""])), "remoteHosts": "*", "targets": "x", **window()},
    }
    groups["g"]["targets"] = draw(st.sampled_from(["x", "x, y"]))
    return ruleset({"hostname": "h", "groups": groups})


@pytest.mark.slow
@given(random_windowed(), random_windowed(), st.sampled_from(["anna", "ben", "carl"]), st.floats(-1, 6))
@settings(max_examples=150, deadline=None)
def test_no_difference_is_missed_at_any_time(old: Ruleset, new: Ruleset, user: str, now: float) -> None:
    changes, here = diff_rulesets(old, new), diff_rulesets(old, new, max(now, 0.0))
    assert all(confirms(old, new, change) for change in (*changes, *here))
    was, is_ = (at(rules, max(now, 0.0), user).decision.is_allowed for rules in (old, new))
    for found in (changes, here):
        if was != is_:
            assert any(each.subject == "connect" and each.is_widening == is_ for each in found)
    if not changes:
        assert not here


def test_stretches_cut_time_where_anything_changes() -> None:
    windows = [Window(begin_s=1, end_s=3), Window(begin_s=3), Window()]
    stretches = stretches_of(windows)
    assert [str(each) for each in stretches] == [
        "until 1970-01-01T00:00:01Z",
        "from 1970-01-01T00:00:01Z until 1970-01-01T00:00:03Z",
        "from 1970-01-01T00:00:03Z",
    ]
    for window in windows:
        for stretch in stretches:
            assert stretch.contains(stretch.some_instant)
            assert window.contains(stretch.some_instant) in (True, False)
    assert joined(stretches) == (Window(),)
    assert joined(stretches[1:]) == (Window(begin_s=1),)
    assert str(Window()) == "always"
    assert joined((stretches[0], stretches[2])) == (stretches[0], stretches[2])
    assert stretches_of([Window()]) == (Window(),)


# Commands


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.json"
    group = {"users": "anna", "remoteHosts": "10.0.0.1", "targets": "a", "validFrom": BEGIN, "validUntil": END}
    path.write_text(json.dumps([["vhost", {"hostname": "h", "groups": {"g": group}}]]))
    return path


@pytest.mark.parametrize(
    ("when", "status", "said"),
    [
        ("2027-01-15T09:59:59Z", 0, "+ window: it is asked at 2027-01-15T09:59:59Z: group 'g' is valid from 2027-"),
        ("2027-01-15T11:00:00+01:00", 1, "- window: it is asked at 2027-01-15T10:00:00Z: group 'g' is valid from"),
    ],
)
def test_explain_at_a_time(file: Path, when: str, status: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["explain", str(file), "--user", "anna", "--host", "10.0.0.1", "--vhost", "h", "--at", when]
    assert main(arguments) == status
    output = capsys.readouterr().out
    assert said in output
    assert ("DENIED: group_not_valid" in output) == bool(status)


def test_a_time_without_an_offset_is_a_wrong_command_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["explain", str(file), "--host", "::1", "--at", "2027-01-15T09:59:59"])
    assert "Its offset from UTC is missing" in capsys.readouterr().err


def test_expectations_at_a_time(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def check(*entries: dict[str, object]) -> int:
        base = {"user": "anna", "host": "10.0.0.1", "vhost": "h"}
        expected = {"policy": "policy.json", "expect": [{**base, **entry} for entry in entries]}
        (file.parent / "expect.json").write_text(json.dumps(expected))
        return main(["test", str(file.parent / "expect.json")])

    assert (
        check(
            {"at": "2027-01-15T08:00:00Z", "send": "a", "is": "allow"},
            {"at": END, "is": "deny", "reason": "group_not_valid"},
            {"is": "deny", "reason": "group_not_valid"},
        )
        == 0
    )
    assert check({"at": END, "is": "allow"}) == 1
    assert "found: denied: group_not_valid, by vhost 'h', group 'g', validUntil: 2027-01-15T10:00:00Z" in (
        capsys.readouterr().out
    )
    assert check({"at": "tomorrow", "is": "allow"}) == 3
    assert "'at' has illegal value 'tomorrow'. It must be an RFC 3339 time" in capsys.readouterr().out


def test_diff_shows_the_times(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.json"
    other.write_text(file.read_text().replace("10:00:00Z", "12:00:00Z"))
    assert main(["diff", str(file), str(other), "--fail-on", "widening"]) == 1
    output = capsys.readouterr().out
    assert "    when:    from 2027-01-15T10:00:00Z until 2027-01-15T12:00:00Z\n" in output
    assert "at vhost 'h', at 2027-01-15T10:00:00Z\n" in output
    assert main(["diff", str(file), str(other), "--fail-on", "any", "--at", BEGIN]) == 0
    assert capsys.readouterr().out == "No difference\n"


@pytest.mark.parametrize(("when", "is_over"), [("2027-01-15T09:59:59Z", False), (END, True)])
def test_lint_says_when_the_time_of_a_group_is_over(
    file: Path, when: str, is_over: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lint", str(file), "--at", when]) == int(is_over)
    assert ("PAL056" in capsys.readouterr().out) == is_over


def test_a_policy_file_with_a_bad_time_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "policy.json"
    file.write_text('[["vhost", {"hostname": "h", "groups": {"g": {"users": "a",\n  "validFrom": "2027-01-15"}}}]]')
    assert main(["lint", str(file)]) == 3
    assert f"{file}:2:3: invalid: 'validFrom' of 'g' of the groups is" in capsys.readouterr().out
