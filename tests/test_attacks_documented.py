"""docs/security.md names every attack file, and every attack file that it names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "security.md").read_text()
ATTACKS = {path.name for path in (ROOT / "tests" / "attacks").glob("test_*.py")}


def named() -> set[str]:
    """Files named without a folder: those of tests/attacks."""
    return set(re.findall(r"`(test_\w+\.py)`", PAGE))


def test_every_attack_is_in_the_threat_model() -> None:
    assert sorted(ATTACKS - named()) == []


def test_every_attack_of_the_threat_model_is_tested() -> None:
    assert sorted(named() - ATTACKS) == []


def test_other_files_that_it_names_are_there() -> None:
    others = re.findall(r"`((?:tests|router|docs)/[\w/.]+)`", PAGE)
    assert others
    assert [name for name in others if not (ROOT / name).exists()] == []
