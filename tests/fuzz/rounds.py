"""What campaigns over whole connections share: scenarios by number in a child process, which what they look for ends.

A scenario is run by its seed, `seed:number`, and the same seed gives the same scenario. It fails by an exception, by
taking more than MOST_SECONDS, or by the end of the process.
"""

import argparse
import faulthandler
import gc
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

MOST_SECONDS = 300
Run = Callable[[str, bool], None]


class Warnings(dict[Any, Any]):
    """Takes the place of the engine's traced transports: what proton warns of is heard for all of them."""

    def __init__(self, heard: list[str]) -> None:
        self.heard = heard

    def get(self, _transport: Any, _otherwise: Any = None) -> Any:
        return self.heard.append


def hear_warnings() -> list[str]:
    """From now on what proton warns of, on whichever connection."""
    from router.amqp.engine import connection

    heard: list[str] = []
    connection._traced = Warnings(heard)
    return heard


def no_engine_is_silent(warnings: list[str]) -> None:
    silenced = [text for text in warnings if "process error" in text]
    assert not silenced, f"an engine has fallen silent for good: {warnings}"


def stream_from(size: int | None) -> None:
    """From so many bytes on messages stream from now on, which need not be large then; None: as in the daemon."""
    from router.amqp.engine import STREAM_AT_BYTES, links
    from router.connection import inspection

    for module in (links, inspection):
        vars(module)["STREAM_AT_BYTES"] = size or STREAM_AT_BYTES


def summary_of(output: str) -> str:
    """The lines that say what went wrong, of all that a sanitizer prints."""
    lines = output.splitlines()
    telling = ("ERROR: AddressSanitizer", "runtime error", "SUMMARY", "Assertion", "Fatal Python")
    wanted = [line for line in lines if any(text in line for text in telling)]
    return "\n".join(wanted or lines[-5:])


# The child


def work(options: argparse.Namespace, run: Run, totals: Mapping[str, int]) -> int:
    """Scenarios one after the other. `options.progress` always holds the number of the one that runs."""
    ends = time.monotonic() + options.seconds
    number = options.start
    with open(options.progress, "r+b", buffering=0) as progress:
        while time.monotonic() < ends and (not options.count or number < options.start + options.count):
            os.pwrite(progress.fileno(), f"{number:20}".encode(), 0)
            faulthandler.dump_traceback_later(MOST_SECONDS, exit=True)
            run(f"{options.seed}:{number}", options.loud)
            number += 1
            if number % 16 == 0:
                gc.collect()
        os.pwrite(progress.fileno(), f"{number:20}".encode(), 0)
    faulthandler.cancel_dump_traceback_later()
    used_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    done = ", ".join(f"{count:,} {what}" for what, count in totals.items())
    print(f"{number - options.start:,} scenarios without a failure, {used_mb} MB at most; {done}", flush=True)
    if used_mb > options.memory_mb:
        print(f"More than the {options.memory_mb} MB that --memory-mb allows: the router gives something back too late")
        return 1
    return 0


# The parent


def campaign(options: argparse.Namespace, file: str) -> int:
    ends = time.monotonic() + options.seconds
    failures, start = 0, options.start
    with tempfile.TemporaryDirectory() as folder:
        progress = f"{folder}/progress"
        while True:
            Path(progress).write_bytes(b" " * 20)
            left = max(ends - time.monotonic(), 0.0)
            result = subprocess.run(
                [
                    *(sys.executable, "-X", "faulthandler", file, "--work", "--progress", progress),
                    *("--seed", options.seed, "--start", str(start), "--count", str(options.count)),
                    *("--seconds", str(left), "--memory-mb", str(options.memory_mb)),
                    *(["--loud"] if options.loud else []),
                ],
                stdout=None if options.loud else subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                errors="replace", check=False, env=os.environ | {"PYTHONHASHSEED": "0"},
            )  # fmt: skip
            if result.returncode == 0:
                print(result.stdout or "", end="", flush=True)
                return 1 if failures else 0
            number = int(Path(progress).read_bytes().strip() or start)
            failures += 1
            print(f"\nFAILURE {failures} in scenario {options.seed}:{number} (exit status {result.returncode})")
            output = result.stdout or ""
            print(output if options.verbose else summary_of(output), flush=True)
            start = number + 1
            if failures >= options.failures or time.monotonic() > ends or options.count:
                return 1


def main(description: str | None, file: str, run: Run, totals: Mapping[str, int]) -> int:
    """The command line of a campaign.

    file    the module, which the child runs
    run     runs one scenario by its seed, and tells its steps where the second argument is true
    totals  what the scenarios have done so far
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="for how long (default 60)")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--start", type=int, default=0, help="number of the first scenario")
    parser.add_argument("--count", type=int, default=0, help="how many scenarios at most")
    parser.add_argument("--failures", type=int, default=1, help="after how many to stop (default 1)")
    parser.add_argument("--memory-mb", type=int, default=2000, help="what the process may grow to (default 2000)")
    parser.add_argument("--verbose", action="store_true", help="print all that a sanitizer says")
    parser.add_argument("--replay", default="", help="SEED:NUMBER of a scenario to run again, step by step")
    for hidden in ("--work", "--loud"):
        parser.add_argument(hidden, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--progress", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(options, run, totals)
    if options.replay:
        options.seed, number = options.replay.rsplit(":", 1)
        options.start, options.count, options.loud = int(number), 1, True
    else:
        print(f"seed {options.seed}, {options.seconds:g} s", flush=True)
    return campaign(options, file)
