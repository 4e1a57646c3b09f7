"""Compares the memory account with real memory: ten thousand of the most expensive things of each kind.

The things are those that a peer can make the router keep.
"""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.processes import ProcessError
from benchmarks.report import Row, row
from benchmarks.subjects import Site

SCRIPT = Path(__file__).parent.parent.parent / "tests" / "attacks" / "kept_things.py"
COUNT, MIB = 10_000, 64
RATIO_BUDGET = 2.0


def account(site: Site, runs: int) -> list[Row]:
    """Memory growth per charged byte, by kind of thing kept: 10,000 each, or as many as 64 MiB pay for."""
    command = [sys.executable, str(SCRIPT), str(COUNT), str(MIB)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise ProcessError(result.stderr.strip())
    found = map(json.loads, result.stdout.splitlines())
    return [
        row("account", each["kind"], "B/B", router=[each["grown"] / each["charged"]], budget=RATIO_BUDGET)
        for each in found
    ]
