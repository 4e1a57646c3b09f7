"""Each item of the checklists at the ends of the specifications is named by a test, or waits for what is not built yet.

A test names items in its docstring, or in a comment beside the claim: `routing 83`, `policy 12, 13`. Module docstrings
and ranges such as 24-37 count for nothing: whoever changes an item must find the test that proves it.
"""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# What tests call a checklist -> the specification that it ends.
CHECKLISTS = {"management": "management", "network": "network", "policy": "policy-and-auth", "routing": "routing"}

# Items of what is not built yet. Whoever builds it takes them out: none that a test names may stand here.
LATER: dict[str, set[int]] = {
    "management": set(),
    "network": set(),
    "policy": set(),
    "routing": set(),
}

NUMBER = r"(?: |\n +)\d+(?![\d.-]*\d)"
REFERENCE = re.compile(rf"\b({'|'.join(CHECKLISTS)})({NUMBER}(?:,{NUMBER})*)", re.IGNORECASE)
# A top-level definition, or what decorates it: parameters are no claims.
DEFINITION = re.compile(r"^(?=(?:async )?def |class |@)", re.MULTILINE)


def items(name: str) -> set[int]:
    """The numbers of a checklist's items."""
    _, _, checklist = (ROOT / "docs" / "spec" / f"{CHECKLISTS[name]}.md").read_text().rpartition("Checklist")
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", checklist, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    return set(numbers)


@cache
def named() -> dict[str, set[int]]:
    """The items that tests name, of every checklist."""
    found: dict[str, set[int]] = {name: set() for name in CHECKLISTS}
    for path in (ROOT / "tests").rglob("test_*.py"):
        for definition in DEFINITION.split(path.read_text()):
            if definition.startswith(("def test_", "async def test_")):
                for name, numbers in REFERENCE.findall(definition):
                    found[name.lower()].update(map(int, re.findall(r"\d+", numbers)))
    return found


@pytest.mark.parametrize("name", CHECKLISTS)
def test_every_item_is_named_by_a_test(name: str) -> None:
    assert sorted(items(name) - LATER[name] - named()[name]) == []


@pytest.mark.parametrize("name", CHECKLISTS)
def test_tests_name_items_that_there_are(name: str) -> None:
    assert sorted(named()[name] - items(name)) == []


@pytest.mark.parametrize("name", CHECKLISTS)
def test_what_is_named_by_a_test_does_not_wait(name: str) -> None:
    assert sorted(LATER[name] & named()[name]) == []
    assert sorted(LATER[name] - items(name)) == []
