"""Ingests a synthetic trail and reports on it, and runs DuckDB on the same lines.

    python -m benchmarks.audits --events 10000000
    python -m benchmarks.audits --events 1000000 --twice --keep /var/tmp/trail

Prints events a second of ingest, seconds of each report on the table, and the peak memory of all its processes together
(RSS; pages that they share count for each). Also prints how long DuckDB takes to count the same denials from the same
lines: the comparison, which does not validate or keep any line. --twice repeats everything with twice the events.

Beside the seconds of the clock are the processor seconds of all processes together. They can be compared even on a
machine with other work. On 2 cores, N processor seconds take at least N / 2 seconds of the clock.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

ROOT = Path(__file__).resolve().parents[1]
REPORTS: Sequence[Sequence[str]] = (["denials"], ["detect"], ["report"])
_LOOK_S = 0.25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--twice", action="store_true", help="once more with twice the events")
    parser.add_argument("--keep", type=Path, help="make everything in this folder, and leave it there")
    arguments = parser.parse_args()
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="audits-"))
    try:
        first = measured(folder / "once", arguments.events)
        if arguments.twice:
            second = measured(folder / "twice", 2 * arguments.events)
            print(
                "\ntwice the events take so many times the processor time: "
                + ", ".join(f"{name} {second[name] / first[name]:.2f}" for name in first)
            )
    finally:
        if arguments.keep is None:
            shutil.rmtree(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of a run: seconds of the clock, cpu_s of the processor, peak bytes held at once."""

    seconds: float
    cpu_s: float
    peak: int

    def __str__(self) -> str:
        return f"{self.seconds:8.1f} s  {self.cpu_s:8.1f} CPU s  {self.peak / 1e9:.2f} GB"


def measured(folder: Path, events: int) -> dict[str, float]:
    """Returns the CPU seconds of each step, and prints them."""
    folder.mkdir(parents=True)
    trail, table = folder / "trail", folder / "table"
    seconds = {"generate": run("generate", str(trail), "--events", str(events)).cpu_s}
    audit = trail / "audit"
    size = sum(path.stat().st_size for path in audit.iterdir())
    load = f"load average {os.getloadavg()[0]:.1f}"
    print(f"{events} events, {size / 1e9:.2f} GB, {os.cpu_count()} processors, {load}", flush=True)
    cost = run("ingest", str(audit), str(table))
    seconds["ingest"] = cost.cpu_s
    rates = f"{events / cost.seconds:9.0f} events/s, {2 * events / cost.cpu_s:9.0f} on 2 cores of its own"
    print(f"ingest    {cost}  {rates}", flush=True)
    stored = sum(path.stat().st_size for path in table.rglob("*.parquet"))
    print(f"table     {stored / 1e9:8.2f} GB")
    for verb in REPORTS:
        if not is_there(verb[0]):
            continue
        out = ["--out", str(folder / verb[0])] if verb[0] != "denials" else []
        cost = run(*verb, str(table), *out)
        seconds[verb[0]] = cost.cpu_s
        print(f"{verb[0]:9} {cost}", flush=True)
    known = ["--findings", str(folder / "detect" / "findings.jsonl"), "--out", str(folder / "report")]
    cost = run("report", str(table), *known)
    seconds["report of known findings"] = cost.cpu_s
    print(f"report    {cost}  of the findings of detect", flush=True)
    begun = time.process_time()
    counted_by_duckdb(audit)
    seconds["duckdb"] = time.process_time() - begun
    ours = seconds["ingest"] + seconds["denials"]
    print(
        f"DuckDB    {seconds['duckdb']:8.1f} CPU s  counts lines; ingest and denials: {ours / seconds['duckdb']:.2f} x"
    )
    begun = time.process_time()
    counted_by_duckdb_in(table)
    seconds["duckdb on the table"] = time.process_time() - begun
    ratio = seconds["denials"] / seconds["duckdb on the table"]
    print(f"DuckDB    {seconds['duckdb on the table']:8.1f} CPU s  on the same table; denials takes {ratio:.2f} x")
    return seconds


def is_there(verb: str) -> bool:
    asked = [sys.executable, "-m", "spark.cli", verb, "--help"]
    return subprocess.run(asked, cwd=ROOT, capture_output=True).returncode == 0


def run(*arguments: str) -> Cost:
    """Returns the cost of a qdaudit and its children."""
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "spark.cli", *arguments], cwd=ROOT, stdout=subprocess.PIPE)
    peak = 0
    cpu_s: dict[int, float] = {}

    def look() -> None:
        nonlocal peak
        while process.poll() is None:
            found = list(family(process.pid))
            peak = max(peak, sum(held(pid) for pid in found))
            cpu_s.update((pid, max(cpu_s.get(pid, 0.0), spent_s(pid))) for pid in found)
            time.sleep(_LOOK_S)

    watcher = threading.Thread(target=look)
    watcher.start()
    said, _ = process.communicate()
    watcher.join()
    if process.returncode not in (0, 1):
        raise SystemExit(f"qdaudit {' '.join(arguments)} ended with {process.returncode}: {said.decode()[-500:]}")
    return Cost(seconds=time.perf_counter() - begun, cpu_s=sum(cpu_s.values()), peak=peak)


def spent_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def family(pid: int) -> Iterator[int]:
    """Yields a process and all its descendants."""
    yield pid
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = tasks.read_text("ascii").split()
        except OSError:
            continue
        for child in children:
            yield from family(int(child))


def held(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


_COUNTS = (
    "reason",
    '"user"',
    "remote_host",
    "vhost",
    '"group"',
    "router",
    "direction, address",
    "date_trunc('hour', time)",
)
_DENIED = "decision = 'deny' AND reason NOT IN ('events_lost', 'log_closed', 'file_deleted')"


def counted_by_duckdb(audit: Path) -> None:
    """Counts the denials by the same keys. The lines are read once, and the needed parts kept in memory."""
    with duckdb.connect() as db:
        db.execute(
            'CREATE TABLE denials AS SELECT reason, "user", remote_host, vhost, "group", router, direction, address, '
            "time::TIMESTAMP AS time, rule FROM read_json(?, format = 'newline_delimited', sample_size = 1000) "
            f"WHERE {_DENIED}",
            [str(audit / "*.jsonl")],
        )
        count(db, "denials")


def counted_by_duckdb_in(table: Path) -> None:
    with duckdb.connect() as db:
        files = str(table / "events" / "*" / "*" / "*.parquet").replace("'", "''")
        db.execute(f"CREATE VIEW denials AS SELECT * FROM read_parquet('{files}') WHERE {_DENIED}")
        count(db, "denials")


def count(db: "duckdb.DuckDBPyConnection", table: str) -> None:
    for keys in (*_COUNTS, "rule"):
        db.execute(
            f"SELECT {keys}, count(*) AS n, min(time), max(time) FROM {table} GROUP BY ALL ORDER BY n DESC LIMIT 1000"
        )
        db.fetchall()


if __name__ == "__main__":
    main()
