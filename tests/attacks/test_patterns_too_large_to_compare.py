"""Attack: patterns whose comparison takes gigabytes, from a user whose policy a pipeline lints and compares.

`qdpolicy` runs here under limits that end unbounded work. It must answer, name the patterns, and call nothing equal.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
MEMORY_BYTES = 400 << 20  # of addresses, of which an idle qdpolicy has 120 MiB
CPU_S = 30  # on a machine that has other things to do


def stars(head: str, count: int) -> list[str]:
    return [head + "/*" * number for number in range(1, count)]


BOMBS = {
    "stars": stars("#/x", 105),
    "one long pattern": ["#/x" + "/*" * 104],
    "many anything": ["/".join(["#", "a"] * 120) + f"/{number}" for number in range(50)],
    "names of users": stars("${user}/#/x", 100),
}


def write(place: Path, patterns: Sequence[str]) -> str:
    group = {"users": "*", "remoteHosts": "10.0.0.0/8", "targetPattern": list(patterns)}
    place.write_text(json.dumps([["vhost", {"hostname": "v", "groups": {"$default": group}}]]))
    return str(place)


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))


def qdpolicy(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "policy.cli.main", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, preexec_fn=limited, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_difference_that_cannot_be_told_is_not_called_none(bomb: str, tmp_path: Path) -> None:
    patterns = BOMBS[bomb]
    old = write(tmp_path / "old.json", patterns)
    new = write(tmp_path / "new.json", [pattern.replace("x", "y").replace("a", "b") for pattern in patterns])
    status, shown = qdpolicy("diff", old, new)
    assert (status, shown.startswith("cannot tell: too large to compare: '")) == (3, True), shown


@pytest.mark.parametrize("bomb", BOMBS)
def test_lint_says_of_which_patterns_it_cannot_tell(bomb: str, tmp_path: Path) -> None:
    status, shown = qdpolicy("lint", write(tmp_path / "policy.json", BOMBS[bomb]))
    assert status == 1
    assert "cannot tell whether users who are not named may send to management: too large to compare: '" in shown
