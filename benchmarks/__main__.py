"""Compares the router with the floor: `python -m benchmarks [--case NAME,NAME | --all]`."""

import argparse
import datetime
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import load
from benchmarks.cases import CASES, DEFAULT
from benchmarks.crowd import raise_file_limit
from benchmarks.load import LoadError
from benchmarks.processes import ProcessError
from benchmarks.report import Row, store, table
from benchmarks.subjects import Site
from benchmarks.wire import RefusedError

RESULTS = Path(__file__).parent / "results"


def circumstances(runs: int) -> dict[str, Any]:
    """Returns the circumstances, besides the code, on which figures depend."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=RESULTS.parent, capture_output=True, text=True, check=False
    )
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": described.stdout.strip(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "load_average_before": os.getloadavg()[0],
        "runs": runs,
    }


def main() -> int:
    names = "\n".join(f"  {name:18} {(case.__doc__ or '').partition(chr(10))[0]}" for name, case in CASES.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog=f"Cases; without --case and --all the first {len(DEFAULT)}:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--case", metavar="NAMES", help="comma list of cases")
    parser.add_argument("--all", action="store_true", help="every case; some minutes")
    parser.add_argument("--runs", type=int, default=3, help="the median of so many runs is taken (default 3)")
    parser.add_argument("--check", action="store_true", help="exit status 1 when a budget is not kept")
    router_help = "how to start the router to measure (default: that of this checkout)"
    parser.add_argument("--qdrouterd", metavar="COMMAND", default="", help=router_help)
    parser.add_argument("--floor-on-uvloop", action="store_true", help="the floor on uvloop, not on asyncio's own loop")
    options = parser.parse_args()
    chosen = options.case.split(",") if options.case else list(CASES if options.all else DEFAULT)
    if unknown := [name for name in chosen if name not in CASES]:
        parser.error(f"no case {', '.join(unknown)}: choose from {', '.join(CASES)}")
    if options.runs < 1:
        parser.error("--runs must be at least 1")
    raise_file_limit()
    found = circumstances(options.runs)
    rows: list[Row] = []
    failed: list[str] = []
    try:
        load.build()
    except LoadError as error:
        print(error, file=sys.stderr)
        return 1
    for name in chosen:
        print(f"{name} ...", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="palisade-bench-") as folder:
            try:
                site = Site.make(
                    Path(folder), router_command=options.qdrouterd, is_floor_on_uvloop=options.floor_on_uvloop
                )
                rows += CASES[name](site, options.runs)
            except (LoadError, ProcessError, RefusedError, OSError) as error:
                failed.append(name)
                print(f"{name}: {error}", file=sys.stderr)
    print(table(rows))
    path = RESULTS / f"{found['time'].replace(':', '').replace('+0000', 'Z')}.json"
    store(path, rows, found | {"failed": failed})
    print(f"\nStored in {path}")
    return 1 if failed or (options.check and any(row.is_over for row in rows)) else 0


if __name__ == "__main__":
    sys.exit(main())
