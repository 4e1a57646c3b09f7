"""`qdaudit comply` writes evidence for auditors, by control."""

import argparse
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spark.compliance.controls import CONTROLS, STANDARDS
from spark.compliance.pack import Answer, Chain, answers, apart, sha256_of
from spark.folders import UnusableError as VerbError
from spark.folders import UsageError, make_folder
from spark.tables import printable
from spark.verbs.running import DONE, FOUND, add_table, json_text, opened, rows_of, write_private
from spark.verify import PublicKeyError, read_key, verify

_MOST_DETAILS = 5


def add_parser(verbs: Any) -> None:
    parser: argparse.ArgumentParser = verbs.add_parser(
        "comply",
        help="put together evidence for PCI DSS, NIST 800-53, SOC 2 and ISO 27001",
        description="For each control: the queries, their result, the rows, and the hashes of all that went in. What "
        "the trail does not show is said as a gap.",
        epilog="Exit status: 0 done; 1 with --fail-on-gap: there is a gap; 2 wrong arguments; 3 TABLE cannot be read, "
        "DIR cannot be written, or Spark cannot run.",
    )
    add_table(parser)
    parser.add_argument(
        "--standard", action="append", choices=STANDARDS, help="which (all); may be given several times"
    )
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="made where there is none")
    parser.add_argument(
        "--trail", metavar="FOLDER", type=Path, help="the audit files that TABLE was made of, to verify"
    )
    parser.add_argument(
        "--key", metavar="PUBLIC", type=Path, action="append", default=[], help="public key of the routers, in PEM"
    )
    parser.add_argument("--fail-on-gap", action="store_true", help="exit status 1 when there is a gap")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.key and arguments.trail is None:
        raise UsageError("--key is for --trail")
    chain, trail = None, {}
    verified: dict[str, int] = {}
    if arguments.trail is not None:
        # Before verification: a file that is changed meanwhile has another hash.
        trail = _hashes(arguments.trail)
        chain, verified = _verified(arguments.trail, arguments.key)
    make_folder(arguments.out, "--out ")
    wanted = arguments.standard or STANDARDS
    controls = [control for control in CONTROLS if control.standard in wanted]
    asked = {name for control in controls for name in (*control.queries, *control.needs)}
    counts: dict[str, int] = {}
    written: list[str] = []
    with opened(arguments) as (session, events):
        from pyspark.sql import functions as F

        from spark.compliance.queries import FINDINGS, QUERIES, findings
        from spark.detectors.thresholds import defaults
        from spark.event_table import read_events
        from spark.jobs.detection import looked_at
        from spark.jobs.export import write_table
        from spark.lines.commit import totals
        from spark.sums.trail import trail_of_table
        from spark.transforms.continuity import continuity
        from spark.transforms.events import lost

        # Before they are read: files that are added meanwhile are not part of the evidence.
        inputs = {str(path.relative_to(arguments.table)): sha256_of(path) for path in _files(arguments.table)}
        summed = trail_of_table(
            session,
            arguments.table,
            since=arguments.since,
            until=arguments.until,
            watch=looked_at(defaults()) if FINDINGS in asked else None,
        )
        for name in [name for name in (*QUERIES, FINDINGS) if name in asked]:
            frame = (findings(summed) if name == FINDINGS else QUERIES[name](events)).persist()
            counts[name] = frame.count()
            written += [write_table(frame, arguments.out, name, form).name for form in ("json", "csv")]
            frame.unpersist()
        numbers, _ = rows_of(continuity(summed))
        ends = (F.min("first").alias("first"), F.max("last").alias("last"))
        if chain is not None:
            taken = totals(arguments.table)
            there = read_events(session, arguments.table).count()
            chain = replace(chain, apart=apart(verified, taken.files, told=taken.events, there=there))
        told, _ = rows_of(summed.facts().agg(lost().alias("lost"), *ends))
    found = answers(controls, counts, chain, lost=told[0]["lost"], missing=numbers[0]["missing"])
    pack = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "events": {"first": told[0]["first"], "last": told[0]["last"], "lost": told[0]["lost"], **numbers[0]},
        "chain": None if chain is None else {name: getattr(chain, name) for name in Chain.__dataclass_fields__},
        "controls": [answer.as_json() for answer in found],
        "inputs": {"table": inputs, "trail": trail},
        "outputs": {name: sha256_of(arguments.out / name) for name in written},
    }
    write_private(arguments.out / "pack.json", json_text(pack))
    digest = sha256_of(arguments.out / "pack.json")
    _print(found)
    print(f"\n{arguments.out / 'pack.json'}: sha256 {digest}")
    return FOUND if arguments.fail_on_gap and any(answer.result == "gap" for answer in found) else DONE


def _print(found: list[Answer]) -> None:
    for answer in found:
        print(f"{answer.result:5}  {answer.control.standard} {answer.control.id}: {answer.control.asks}")
        for gap in answer.gaps:
            print(f"       - {printable_text(gap)}")


def printable_text(text: str) -> str:
    return " ".join(printable(word) for word in text.split(" "))


def _files(table: Path) -> list[Path]:
    return sorted((table / "events").rglob("*.parquet"))


def _hashes(folder: Path) -> dict[str, str]:
    try:
        return {path.name: sha256_of(path) for path in sorted(folder.iterdir()) if path.is_file()}
    except OSError as error:
        raise VerbError(f"--trail {folder}: cannot be read: {error.strerror}") from None


def _verified(folder: Path, keys: list[Path]) -> tuple[Chain, dict[str, int]]:
    """Returns the result of `qdaudit verify` for the folder, and the number of lines of each file. Raises VerbError."""
    try:
        verdict = verify(folder, dict(read_key(path) for path in keys))
    except PublicKeyError as error:
        raise VerbError(f"--key {error}") from None
    except OSError as error:
        raise VerbError(f"--trail {folder}: cannot be read: {error.strerror}") from None
    chain = Chain(
        is_whole=not verdict.findings,
        is_signed=bool(keys) and verdict.signed > 0,
        lines=verdict.events,
        signed=verdict.signed,
        details=tuple(str(each) for each in verdict.findings[:_MOST_DETAILS]),
    )
    return chain, verdict.lines
