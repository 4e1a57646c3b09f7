"""Attack: objects with few bytes on the wire and many in memory, within every budget.

8 MB of outcomes with a list of 1,900 nulls took 1.1 GB and were charged 8 MiB. 16 MB of Attaches with equal lists in
their filters took 2.2 GB. The account counted encoded bytes; the engine had a node for each value, on both sides. Now
resident memory grows by at most twice the charge, for every kind of object in the table (router.core.kept).
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from router.core.kept import KEPT

SCRIPT = Path(__file__).parent / "kept_things.py"
COUNT, MIB = 1_000, 8  # `make bench` makes ten thousand
NOISE_BYTES = 1024 * 1024
MADE = [kind for kind, row in KEPT.items() if not row.shown]
Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def found() -> Found:
    command = [sys.executable, str(SCRIPT), str(COUNT), str(MIB), *MADE]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    return {row["kind"]: row for row in map(json.loads, result.stdout.splitlines())}


@pytest.mark.parametrize("kind", MADE)
def test_memory_grows_by_at_most_twice_what_is_charged(kind: str, found: Found) -> None:
    row = found[kind]
    assert row["count"] >= 5
    assert row["grown"] <= 2 * row["charged"] + NOISE_BYTES, row


@pytest.mark.parametrize("row", [row for row in KEPT.values() if row.shown], ids=lambda row: row.what)
def test_rows_that_are_shown_elsewhere_name_a_test(row: Any) -> None:
    assert (SCRIPT.parent.parent.parent / row.shown).is_file()
