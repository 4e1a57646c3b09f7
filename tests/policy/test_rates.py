"""maxMessageRate and maxByteRate in a policy: of the vhost, and of a group before it (policy extension)."""

import json
from pathlib import Path

import pytest
from rulesets import at, connect, present, ruleset, settings

from policy.analysis.difference import diff_rulesets
from policy.analysis.explain import explain_link
from policy.cli.main import main
from policy.facts import LinkFacts
from policy.ruleset import PolicyError, Ruleset

RATES = ("maxMessageRate", "maxByteRate")


def rated(of_vhost: dict[str, object], of_group: dict[str, object]) -> Ruleset:
    group = {"users": "*", "remoteHosts": "*", **present(of_group)}
    return ruleset({"hostname": "h", **present(of_vhost), "groups": {"g": group}})


@pytest.mark.parametrize("key", RATES)
@pytest.mark.parametrize(
    ("of_vhost", "of_group", "found"),
    [(None, None, None), (100, None, 100), (None, 5, 5), (100, 5, 5), (5, 100, 100), (100, 0, 0), (0, None, 0)],
)
def test_a_groups_rate_comes_before_the_vhosts(
    key: str, of_vhost: int | None, of_group: int | None, found: int | None
) -> None:
    granted = connect(rated({key: of_vhost}, {key: of_group})).settings
    assert granted is not None
    rates = {"maxMessageRate": granted.max_message_rate, "maxByteRate": granted.max_byte_rate}
    assert rates == {**dict.fromkeys(RATES), key: found}


@pytest.mark.parametrize("key", RATES)
@pytest.mark.parametrize(
    ("value", "said"), [(-1, "is below minimum '0'"), ("fast", "does not resolve to an integer"), (2**63, "is above")]
)
def test_a_rate_is_a_number_from_0_on(key: str, value: object, said: str) -> None:
    for of_vhost, of_group in (({key: value}, {}), ({}, {key: value})):
        with pytest.raises(PolicyError, match=f"option '{key}' has error 'Value '{value}' {said}"):
            rated(of_vhost, of_group)


@pytest.mark.parametrize("key", RATES)
def test_a_rate_changes_the_digest_and_its_absence_does_not(key: str) -> None:
    plain = rated({}, {}).digest
    assert rated({key: None}, {key: None}).digest == plain
    assert len({plain, rated({key: 1}, {}).digest, rated({key: 2}, {}).digest, rated({}, {key: 1}).digest}) == 4


@pytest.mark.parametrize("key", RATES)
@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (None, 10, (False, "no limit", "10")),
        (10, None, (True, "10", "no limit")),
        (10, 20, (True, "10", "20")),
        (10, 0, (False, "10", "0")),
        (0, None, (True, "0", "no limit")),
    ],
)
def test_a_change_of_a_rate_is_a_difference(
    key: str, before: int | None, after: int | None, shown: tuple[bool, str, str]
) -> None:
    (change,) = diff_rulesets(rated({key: before}, {}), rated({}, {key: after}))
    assert (change.subject, change.is_widening, change.before, change.after) == (key, *shown)


def test_an_explanation_of_a_sender_tells_its_rates() -> None:
    granted = settings(targets="a", maxMessageRate=10, maxByteRate=2000)
    texts = [step.text for step in explain_link(granted, LinkFacts(direction="send", address=at("a"))).steps]
    assert "the connection may send 10 messages a second and 2000 bytes a second, held back by credit" in texts
    texts = [
        step.text for step in explain_link(settings(targets="a"), LinkFacts(direction="send", address=at("a"))).steps
    ]
    assert not any("held back" in text for text in texts)


@pytest.mark.parametrize("is_of_vhost", [True, False])
def test_lint_lists_rates_as_an_extension(
    is_of_vhost: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = dict.fromkeys(RATES, 10)
    group = {"users": "a", "remoteHosts": "10.0.0.1", "targets": "a", **({} if is_of_vhost else rates)}
    vhost = {"hostname": "h", **(rates if is_of_vhost else {}), "groups": {"g": group}}
    file = tmp_path / "policy.json"
    file.write_text(json.dumps([["vhost", vhost]]))
    assert main(["lint", str(file)]) == 0
    output, what = capsys.readouterr().out, "does not start with it" if is_of_vhost else "passes over it"
    assert f"'{RATES[0]}' is unknown to 1.20, which {what}; 1 more in this file" in output


def test_lint_says_when_the_rate_of_the_vhost_lets_nothing_through(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = {
        name: {"users": name, "remoteHosts": "10.0.0.1", "targets": "a", **more}
        for name, more in (("without", {}), ("own", {"maxByteRate": 5}))
    }
    file = tmp_path / "policy.json"
    file.write_text(json.dumps([["vhost", {"hostname": "h", "maxByteRate": 0, "groups": groups}]]))
    assert main(["lint", str(file)]) == 1
    output = capsys.readouterr().out
    assert output.count("warning PAL058") == 1
    assert "group 'without': 'maxByteRate' 0 lets no message through" in output
