"""The account is what the memory is: ten thousand of the costliest of each kind of thing that a peer can have kept."""

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
    """Memory that grows for each byte charged, by kind of thing kept: 10,000, or as many as 64 MiB pay for."""
    command = [sys.executable, str(SCRIPT), str(COUNT), str(MIB)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise ProcessError(result.stderr.strip())
    found = map(json.loads, result.stdout.splitlines())
    return [
        row("account", each["kind"], "B/B", router=[each["grown"] / each["charged"]], budget=RATIO_BUDGET)
        for each in found
    ]
