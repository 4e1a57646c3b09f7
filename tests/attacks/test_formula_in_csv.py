"""Attack: a client names its container, an address or itself so that `qdstat --csv` prints a formula.

In a spreadsheet, `=cmd|' /C calc'!A0` starts a program if the operator confirms once, and `=HYPERLINK(...)` sends other
cells away. A cell that a spreadsheet takes for a formula gets a `'` in front. Numbers stay numbers, also negative ones.
"""

import csv
import io
import re
from collections.abc import Iterator

import pytest
from hostile_router import hostile_router, run

FORMULAS = [
    "=1+1",
    "+1+1",
    "-1+1",
    "@SUM(1)",
    "\t=1+1",
    "\r=1+1",
    "\n=1+1",
    "  =1+1",
    "-1+cmd|' /C calc'!A0",
    '"=1+1',
    "'=1+1",
    "\uff1d1+1",
    "a;=1+1;",
    'a";=1+1;"',
    "a,=1+1",
]
_BEGINS_FORMULA = re.compile("[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[-+]?[\d,]+(\.\d+)?|-")


def cells(text: str) -> Iterator[str]:
    """As spreadsheets read them: separated by commas, or, in half of the world, by semicolons."""
    for separator in ",;":
        for line in text.split("\n"):
            for row in csv.reader(io.StringIO(line), delimiter=separator):
                yield from (cell.lstrip() for cell in row)


def formulas(text: str) -> list[str]:
    return [cell for cell in cells(text) if _BEGINS_FORMULA.match(cell) and not _NUMBER.fullmatch(cell)]


@pytest.mark.parametrize("display", ["-c", "-a", "-l", "-g", "--vhostgroups", "--log", "--bans", "--autolinks"])
def test_no_cell_is_a_formula(display: str) -> None:
    entities = {
        "router": [{"id": FORMULAS[0], "area": FORMULAS[1]}],
        "connection": [{"identity": "1", "host": name, "container": name, "user": name} for name in FORMULAS],
        "router.address": [{"key": "M0" + name, "distribution": name} for name in FORMULAS],
        "router.link": [{"linkType": "endpoint", "owningAddr": "M0" + name, "peer": name} for name in FORMULAS],
        "vhost": [{"hostname": name, "groups": {name: {"users": name}}} for name in FORMULAS],
        "ban": [{"name": name, "host": name, "reason": name} for name in FORMULAS],
        "router.config.autoLink": [{"address": name, "lastError": name} for name in FORMULAS],
    }
    log = [["ROUTER", "info", f"from {name}", None, None, 1] for name in FORMULAS]
    log += [[name, "info", name, None, None, 1] for name in FORMULAS]
    with hostile_router(entities, {"GET-LOG": log, "GET-SCHEMA": {}}) as router:
        ran = run("qdstat", router, display, "--csv")
    assert ran.status == 0, ran.out
    assert formulas(ran.out) == []
    assert "1+1" in ran.out


def test_numbers_and_plain_names_are_as_they_were() -> None:
    numbers = {"priority": -1, "subscriberCount": 1234567, "remoteCount": -5, "deliveriesIngress": 0}
    entities = {
        "router": [{"id": "R"}],
        "router.address": [{"key": "M0a-b=c", "distribution": "balanced", **numbers}],
        "vhost": [{"hostname": "h", "maxConnections": -3}],
    }
    with hostile_router(entities) as router:
        addresses = run("qdstat", router, "-a", "--csv").out.splitlines()
    assert addresses[1] == "R"
    assert addresses[-1] == '"mobile","a-b=c","0","balanced","-","1,234,567","-5","0","None","None","None"'
    with hostile_router(entities) as router:
        assert '"h","-3",' in run("qdstat", router, "--vhosts", "--csv").out


def test_without_csv_nothing_is_put_in_front() -> None:
    with hostile_router({"router": [{"id": "R"}], "connection": [{"identity": "1", "container": "=1+1"}]}) as router:
        ran = run("qdstat", router, "-c")
    assert " =1+1 " in ran.out
    assert "'" not in ran.out
