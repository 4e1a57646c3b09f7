"""Every word that a rule says of every case of all rules: tests/lint_texts/findings.json has them.

`PYTHONPATH=. python tests/policy/test_lint_texts.py` writes it anew: read what git then shows as changed messages.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from policy.cli.sasl import sasl_text
from policy.files.sections import Section
from policy.files.validation import load_sections
from policy.lint.findings import Finding, LintRule, PolicyText
from policy.lint.rules import FLEET_RULES, RULES, check_all, check_fleet

TESTS = Path(__file__).resolve().parent.parent
FINDINGS = TESTS / "lint_texts" / "findings.json"
NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z


def inputs() -> list[str]:
    """Files of policies, and folders of configurations of a fleet."""
    files = [*(TESTS / "lint_cases").iterdir(), *(TESTS / "fleet_cases").iterdir()]
    files += [path for path in FINDINGS.parent.iterdir() if path != FINDINGS]
    return sorted(str(path.relative_to(TESTS)) for path in files)


@cache
def read(name: str) -> Mapping[str, tuple[str, tuple[Section, ...]]]:
    """File name -> text and sections. Findings name files, and whole paths differ between machines."""
    path = TESTS / name
    files = sorted(path.glob("*.conf")) if path.is_dir() else [path]
    texts = {file.name: file.read_text("utf-8") for file in files}
    return {file: (text, load_sections(text, file)) for file, text in texts.items()}


def found_by(rule: LintRule, name: str) -> list[str]:
    """What one rule says of one input."""
    given = read(name)
    texts = {file: text for file, (text, _) in given.items()}
    if not (TESTS / name).is_dir():
        entities = given[Path(name).name][1]
        sasl = sasl_text(entities, str(TESTS / name))
        found = check_all(entities, texts=texts, now=NOW, watch=lambda _: [rule], sasl=sasl)
    elif rule in FLEET_RULES:
        others = [each.ID for each in FLEET_RULES if each is not rule]
        routers = tuple(PolicyText(entities=entities) for _, entities in given.values())
        found = check_fleet(routers, others, texts)
    else:
        found = ()
    return [told(finding) for finding in found if finding.rule == rule.ID]


def found_in_all(rule: LintRule) -> dict[str, list[str]]:
    found = {name: found_by(rule, name) for name in inputs()}
    return {name: lines for name, lines in found.items() if lines}


def told(finding: Finding) -> str:
    """All of its members, in one line."""
    parts = [
        f"{finding.file}:{finding.line}:{finding.column} {finding.rule} {finding.level.name} {finding.confidence}",
        finding.text.replace(f"{TESTS}/", ""),
        *(f"{name}={getattr(finding, name)!r}" for name in ("item", "instead", "within") if getattr(finding, name)),
    ]
    if finding.fix is not None:
        parts.append(
            f"{ {True: 'safe', False: 'unsafe'}[finding.fix.is_safe] } fix: {finding.fix.old!r} -> {finding.fix.new!r}"
        )
    return " | ".join(parts)


@pytest.fixture(scope="module")
def expected() -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = json.loads(FINDINGS.read_text("utf-8"))
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.ID)
def test_every_word_of_the_findings(rule: LintRule, expected: dict[str, dict[str, list[str]]]) -> None:
    assert found_in_all(rule) == expected[rule.ID]
    assert expected[rule.ID]


if __name__ == "__main__":
    everything = {rule.ID: found_in_all(rule) for rule in RULES}
    FINDINGS.write_text(json.dumps(everything, indent=1, ensure_ascii=False) + "\n", "utf-8")
