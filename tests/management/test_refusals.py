"""What stops a start, or has no effect, though the schema admits it, as `qdpolicy lint` finds it."""

import pytest

from auth.scram import HASHES, mechanism_names
from policy.configuration.schema import load_schema
from policy.files.conf import conf_sections
from policy.lint import unserved, unserved_mechanisms, without_effect
from policy.lint.findings import PolicyText


def found_by(rule: object, text: str) -> list[tuple[str, int]]:
    policy = PolicyText(entities=tuple(conf_sections(text, "r.conf")))
    return [(finding.rule, finding.line) for finding in rule.check(policy)]  # type: ignore[attr-defined]


def test_lint_knows_every_mechanism_that_a_verifier_answers() -> None:
    assert all(unserved_mechanisms.ANSWERED.fullmatch(name) for each in HASHES for name in mechanism_names(each))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("listener {\n port: 1\n http: yes\n metricsAuth: basic\n}\n", []),
        ("listener {\n port: 1\n httpRoot: /srv\n websockets: no\n}\n", []),
        ("listener {\n port: 1\n websockets: no\n healthz: no\n}\n", [3, 4]),
        ("listener {\n port: 1\n http: no\n metrics: yes\n}\n", [4]),
        ("listener {\n port: 1\n http: yes\n saslPlugin: p\n metricsAuth: basic\n}\n", [5]),
    ],
)
def test_settings_of_http_that_are_not_served_are_found_by_lint(text: str, lines: list[int]) -> None:
    assert set(unserved.OF_WEB) <= load_schema().types["listener"].attributes.keys()
    assert found_by(unserved, text) == [(unserved.ID, line) for line in lines]


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
