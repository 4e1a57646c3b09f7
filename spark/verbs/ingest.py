"""`qdaudit ingest` reads audit files and logs of the C router into the event table."""

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from spark.folders import audit_files
from spark.lines import files
from spark.verbs.sessions import add_session, opened

if TYPE_CHECKING:
    from spark.lines.commit import Sums

DONE, INCOMPLETE = 0, 1
_MOST_SECONDS = 86_400


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verb = verbs.add_parser(
        "ingest",
        help="take audit files into an event table, which the reports read",
        description="Read what is new in the *.jsonl files of FOLDER, plain or compressed (.gz, .zst), judge each line "
        "once, and add the events to TABLE: Parquet by day and router. What is no valid event is set aside with the "
        "reason. Run it again at any time: what is in the table already is not taken twice.",
        epilog="Exit status: 0 done; 1 with --strict: lines were set aside; 2 wrong arguments; 3 FOLDER cannot be "
        "read, TABLE cannot be written, or Spark cannot run.",
    )
    verb.add_argument("folder", metavar="FOLDER", type=Path, help="a router's audit directory, or files of several")
    verb.add_argument("table", metavar="TABLE", type=Path, help="an event table; made where there is none")
    verb.add_argument(
        "--every",
        metavar="SECONDS",
        type=_seconds,
        help="go on, and look for more each so many seconds, until interrupted",
    )
    verb.add_argument(
        "--qdrouterd",
        metavar="ROUTER",
        type=_router,
        help="FOLDER has logs of a qdrouterd written in C (*.log, *.log.1, ...) as well; ROUTER is its id",
    )
    verb.add_argument("--strict", action="store_true", help="exit status 1 when a line was set aside")
    add_session(verb)
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Ingests a folder. Errors: UnusableError, SparkUnavailableError, and those of Spark."""
    kinds = (files.LINES,) if arguments.qdrouterd is None else (files.LINES, files.LOGS)
    found, others = audit_files(arguments.folder, kinds)
    tell_others(others)
    bad = 0

    def tell(sums: "Sums") -> None:
        nonlocal bad
        bad += sums.quarantined
        print(
            f"{sums.events} events of {sums.lines} lines of {len(sums.files)} files; {sums.duplicates} duplicates; "
            f"{sums.quarantined} quarantined",
            flush=True,
        )

    with opened(arguments, sum(file.size for file in found), is_by_arrow=True) as (session, _):
        from spark import ingest  # here: importing pyspark takes a second, which --help must not take

        ingest.stream(
            session,
            arguments.folder.resolve(),
            arguments.table.resolve(),
            router=arguments.qdrouterd,
            every_s=arguments.every,
            told=tell,
        )
    return INCOMPLETE if arguments.strict and bad else DONE


def tell_others(others: list[str]) -> None:
    """Prints how many entries were skipped, so that no file is skipped silently."""
    if others:
        print(f"qdaudit: {len(others)} other entries passed over, the first {others[0]!r}", file=sys.stderr)


def _seconds(text: str) -> int:
    if re.fullmatch("[0-9]{1,5}", text) is None or not 1 <= int(text) <= _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 1 to {_MOST_SECONDS}")
    return int(text)


def _router(text: str) -> str:
    if not 1 <= len(text) <= 256:
        raise argparse.ArgumentTypeError("a router's id has 1 to 256 characters")
    return text
