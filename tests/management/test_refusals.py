"""What stops a start though the schema admits it; `qdpolicy lint` finds the same."""

import pytest
from agent_bench import configured

from auth.scram import HASHES, mechanism_names
from policy.configuration.refusals import UNSERVED_ATTRIBUTES, refusal
from policy.configuration.schema import load_schema
from policy.files.conf import conf_sections
from policy.lint import unserved, unserved_mechanisms, without_effect
from policy.lint.findings import PolicyText


def found_by(rule: object, text: str) -> list[tuple[str, int]]:
    policy = PolicyText(entities=tuple(conf_sections(text, "r.conf")))
    return [(finding.rule, finding.line) for finding in rule.check(policy)]  # type: ignore[attr-defined]


def test_lint_and_the_router_refuse_the_same() -> None:
    assert {type_: set(keys) for type_, keys in unserved.ATTRIBUTES.items()} == {
        type_: set(keys) for type_, keys in UNSERVED_ATTRIBUTES.items()
    }
    assert all(unserved_mechanisms.ANSWERED.fullmatch(name) for each in HASHES for name in mechanism_names(each))
    schema = load_schema()
    for type_, keys in unserved.ATTRIBUTES.items():
        assert keys.keys() <= schema.types[type_].attributes.keys()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("binding {\n exchangeName: e\n nextHopAddress: b\n}\nexchange {\n name: e\n address: a\n}\n", []),
        ("listener {\n port: 1\n http: yes\n}\n", [3]),
        ("listener {\n port: 1\n http: no\n httpRoot: /srv\n}\n", [4]),
        ("address {\n prefix: a\n enableFallback: on\n}\n", []),
        ("autoLink {\n address: a\n direction: in\n fallback: yes\n}\n", []),
        ("router {\n mode: edge\n}\n", []),
        ("router {\n mode: interior\n}\n", []),
        ("router {\n mode: standalone\n}\naddress {\n prefix: a\n}\nlistener {\n http: no\n}\n", []),
    ],
)
def test_what_cannot_be_served_is_found_by_lint_and_refused_by_the_router(text: str, lines: list[int]) -> None:
    assert found_by(unserved, text) == [(unserved.ID, line) for line in lines]
    refused = [each for each in configured(text).entities if refusal(each.type, each.attributes) is not None]
    assert len(refused) == len(lines)


@pytest.mark.parametrize(
    ("attributes", "is_found"),
    [
        ("saslMechanisms: GSSAPI", True),
        ("saslMechanisms: gssapi, plain", False),
        ("saslMechanisms: SCRAM-SHA-256-PLUS", False),
        ("saslMechanisms: ANONYMOUS\n authenticatePeer: yes", True),
        ("saslMechanisms: ANONYMOUS", False),
        ("saslMechanisms: EXTERNAL", True),
        ("saslMechanisms: EXTERNAL\n sslProfile: p", False),
        ("authenticatePeer: yes", False),
    ],
)
def test_a_listener_none_of_whose_mechanisms_can_be_served_is_found_by_lint(attributes: str, is_found: bool) -> None:
    found = found_by(unserved_mechanisms, f"listener {{\n port: 1\n {attributes}\n}}\n")
    assert [rule for rule, _ in found] == [unserved_mechanisms.ID] * is_found


def test_settings_without_effect_are_found_by_lint() -> None:
    text = (
        "router {\n workerThreads: 4\n}\nconnector {\n allowRedirect: no\n}\nconsole {\n listener: x\n}\n"
        "listener {\n trustedCerts: x\n}\n"
    )
    assert sorted(line for _, line in found_by(without_effect, text)) == [2, 5, 7, 11]
