"""Measures precision and recall of each detector of `qdaudit detect`, over seeded trails with planted incidents.

    python -m benchmarks.detection [--seeds 20] [--events 10000] [--incidents 2]

A finding is right if an incident of its kind was planted with the same subjects at an overlapping time. An incident is
found if there is such a finding. Prints the table of docs/detections.md. Exit status 1 if a value is under 0.95.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LEAST = 0.95
_NAMES = ("router", "user", "remote_host")
_UNCOMPILED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--events", type=int, default=10_000, help="quiet ones, of each trail")
    parser.add_argument("--incidents", type=int, default=2, help="of each kind, in each trail")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work, local_session(Path(work), input_bytes=1 << 25) as session:
        for name, value in _UNCOMPILED.items():
            session.conf.set(name, value)
        counts = judged(session, Path(work), arguments.seeds, arguments.events, arguments.incidents)
    rows = list(_rows(counts))
    print("| detector | planted | found | findings | right | precision | recall |\n|---|---|---|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")
    return int(any(number < LEAST for row in rows for number in row[-2:]))


def judged(session: "SparkSession", work: Path, seeds: int, events: int, incidents: int) -> "Counter[tuple[str, str]]":
    """Returns (detector, what) -> number; what is planted, found, findings or right.

    The trails of all seeds are processed together, because starting Spark costs more than a trail. Each seed has its
    own routers, users and hosts, by which every detector separates them.
    """
    from spark.detectors.thresholds import defaults
    from spark.jobs.detection import detect, looked_at
    from spark.jobs.reports import with_text_times
    from spark.sums.trail import trail_of_events
    from spark.trails.generate import Wanted, generate

    planted: list[dict[str, Any]] = []
    trails = []
    for seed in range(seeds):
        folder = work / f"trail-{seed}"
        generate(folder, Wanted(events=events, seed=seed, incidents=incidents))
        trails.append(_of_seed(read(session, folder / "audit"), seed))
        for line in (folder / "truth.jsonl").read_text().splitlines():
            one = json.loads(line)
            subjects = {name: f"{seed}/{value}" if name in _NAMES else value for name, value in one["subjects"].items()}
            planted.append({**one, "subjects": subjects})
    events_of_all = reduce(type(trails[0]).unionByName, trails).coalesce(2).persist()
    trail = trail_of_events(events_of_all, watch=looked_at(defaults()))
    findings = [row.asDict(recursive=True) for row in with_text_times(detect(trail, defaults())).collect()]
    counts: Counter[tuple[str, str]] = Counter()
    for one in planted:
        counts[one["detector"], "planted"] += 1
        counts[one["detector"], "found"] += any(fits(finding, one) for finding in findings)
    for finding in findings:
        is_right = any(fits(finding, one) for one in planted)
        counts[finding["detector"], "findings"] += 1
        counts[finding["detector"], "right"] += is_right
        if not is_right:
            print(f"wrong: {finding}", file=sys.stderr)
    return counts


def _of_seed(trail: "DataFrame", seed: int) -> "DataFrame":
    from pyspark.sql import functions as F

    return trail.withColumns({name: F.concat(F.lit(f"{seed}/"), name) for name in _NAMES})


def read(session: "SparkSession", audit: Path) -> "DataFrame":
    """Returns the lines, which are valid by construction."""
    from pyspark.sql import functions as F

    from spark.schemas import audit_event

    lines = session.read.schema(audit_event()).json(str(audit))
    return lines.withColumn("time", F.to_timestamp("time", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX"))


def fits(finding: Mapping[str, Any], planted: Mapping[str, Any]) -> bool:
    return (
        finding["detector"] == planted["detector"]
        and all(finding[name] == value for name, value in planted["subjects"].items())
        and finding["first"] <= planted["last"]
        and finding["last"] >= planted["first"]
    )


def _rows(counts: Mapping[tuple[str, str], int]) -> Iterable[tuple[Any, ...]]:
    from spark.detectors import DETECTORS

    for detector in DETECTORS:
        planted, found, findings, right = (
            counts.get((detector.name, what), 0) for what in ("planted", "found", "findings", "right")
        )
        precision, recall = (
            round(part / whole, 3) if whole else 0.0 for part, whole in ((right, findings), (found, planted))
        )
        yield (detector.name, planted, found, findings, right, precision, recall)


if __name__ == "__main__":
    sys.exit(main())
