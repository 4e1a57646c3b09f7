"""`qdaudit` writes reports from a folder of audit files.

Exit status: 0 done, 1 with --strict: lines in quarantine or events missing, 2 wrong arguments, 3 unreadable input,
unwritable output or no Spark, 130 interrupted. pyspark is imported only when there is something to read.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from schemas.versions import add_version_option
from spark import verify
from spark.folders import MARK, UnusableError, UsageError, audit_files, check_version, is_table, make_folder
from spark.session import SparkUnavailableError, check_installed
from spark.tables import render
from spark.verbs import comply, detect, generate, ingest, recommend, replay, report
from spark.verbs.ingest import tell_others
from spark.verbs.sessions import add_session, is_on_cluster, opened

_EXIT_STATUS = (
    "Exit status: 0 done; 1 with --strict: quarantined lines or missing events; 2 wrong arguments; "
    "3 FOLDER cannot be read, DIR cannot be written, or Spark cannot run."
)
# Each has `add_parser`, which stores `run` in the arguments.
VERBS = (ingest, generate, detect, replay, recommend, report, comply)
# Limit of the rows of a table that are shown, the same as spark.jobs.reports.MAX_SHOWN_ROWS.
MOST_ROWS = 1000
# Lines take about this many times the bytes of their table.
_TABLE_FACTOR = 20
# Precedes Python's text of an exception in a Spark worker. The message is on the next line that is not indented.
_OF_A_WORKER = "Traceback (most recent call last):\n"
_SAID = re.compile(r"^\S.*", re.MULTILINE)
DONE, INCOMPLETE, USAGE, UNREADABLE, INTERRUPTED = 0, 1, 2, 3, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs qdaudit with `argv`, by default the process's.

    Returns the exit status; argparse's own exits have status 2.
    """
    arguments = parser().parse_args(argv)
    try:
        with _terminated_like_interrupted():
            return _run(arguments) if hasattr(arguments, "run") else _report(arguments)
    except (UnusableError, SparkUnavailableError) as error:
        print(f"qdaudit: {error}", file=sys.stderr)
        return USAGE if isinstance(error, UsageError) else UNREADABLE
    except KeyboardInterrupt:
        print("qdaudit: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # `qdaudit ... | head`: the reader closed the output. Keeps the interpreter from reporting that at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        print(f"qdaudit: {error.filename or 'standard output'}: {error.strerror}", file=sys.stderr)
        return UNREADABLE


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="qdaudit", description="Reports from the audit files of Palisade routers.")
    add_version_option(parser)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    denials = verbs.add_parser(
        "denials",
        help="count denials by reason, user, host, vhost and hour",
        description="Read an event table, or the *.jsonl files of FOLDER (.gz, .zst), set aside what is no valid "
        "event, and count denials "
        "by reason, user, host, vhost and hour.",
        epilog=_EXIT_STATUS,
    )
    _add_common(denials)
    shadow = verbs.add_parser(
        "shadow",
        help="count where a candidate policy (shadowPolicyDir) would have decided otherwise",
        description="Read an event table, or the *.jsonl files of FOLDER (.gz, .zst), set aside what is no valid "
        "event, and count what "
        "candidate policies would have denied or allowed by reason, rule, vhost, user, host and address.",
        epilog=_EXIT_STATUS,
    )
    _add_common(shadow)
    shadow.add_argument(
        "--candidate", metavar="DIGEST", type=_digest, help="only of candidates whose digest begins so, in hexadecimal"
    )
    changes = verbs.add_parser(
        "changes",
        help="count what was changed by management, and what was refused, by user, host, type and entity",
        description="Read an event table, or the *.jsonl files of FOLDER (.gz, .zst), set aside what is no valid "
        "event, and count the "
        "management requests that changed something, or would have, by user, host, type and entity.",
        epilog=_EXIT_STATUS,
    )
    _add_common(changes)
    checked = verbs.add_parser(
        "verify",
        help="find out whether anybody changed, removed, moved or cut lines; needs no Spark",
        description="Check the hash chain and the signatures of every audit file of FOLDER, compressed or not.",
        epilog="Exit status: 0 whole; 1 something was found; 2 wrong arguments; 3 FOLDER or PUBLIC cannot be read.",
    )
    verify.add_arguments(checked)
    checked.set_defaults(run=verify.run)
    for verb in VERBS:
        verb.add_parser(verbs)
    return parser


def _add_common(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "folder",
        metavar="FOLDER",
        type=Path,
        help="an event table, made by `qdaudit ingest`, or a router's audit directory",
    )
    verb.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        help="write each report and the quarantine there, as Parquet and CSV, and a summary; replaces earlier ones",
    )
    verb.add_argument("--format", choices=("table", "json"), default="table", help="of what is printed (table)")
    verb.add_argument("--since", metavar="T", type=_moment, help="only events from T on, e.g. 2026-01-31T08:00:00Z")
    verb.add_argument("--until", metavar="T", type=_moment, help="only events before T; without a zone T is UTC")
    verb.add_argument(
        "--top", metavar="N", type=_count, default=MOST_ROWS, help=f"only so many rows of each table, 1 to {MOST_ROWS}"
    )
    add_session(verb)
    verb.add_argument(
        "--strict", action="store_true", help="exit status 1 when a line was quarantined or an event is missing"
    )


def _count(text: str) -> int:
    if re.fullmatch("[0-9]{1,4}", text) is None or not 1 <= int(text) <= MOST_ROWS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {MOST_ROWS}")
    return int(text)


def _digest(text: str) -> str:
    if re.fullmatch("[0-9a-f]{1,64}", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not the beginning of a digest: 1 to 64 of 0-9 and a-f")
    return text


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time; write it as 2026-01-31 or 2026-01-31T08:00:00Z"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _run(arguments: argparse.Namespace) -> int:
    """Runs a verb with its own module. Whatever Spark raises, the user reads one sentence."""
    try:
        status: int = arguments.run(arguments)
    except (SparkUnavailableError, UnusableError, OSError):
        raise
    except Exception as error:  # the exceptions of Spark and of the bridge to Java have no common base class
        raise UnusableError(f"{arguments.verb} failed: {_cause(error)}") from error
    return status


def _report(arguments: argparse.Namespace) -> int:
    if arguments.since and arguments.until and arguments.since >= arguments.until:
        raise UsageError(f"--since {arguments.since} must be before --until {arguments.until}")
    has_table = is_table(arguments.folder)
    if has_table:
        if any(arguments.folder.glob("*.jsonl*")):
            # Attack: a mark put among audit files would make the folder look like a table without events.
            raise UnusableError(f"{arguments.folder}: holds a table's mark ({MARK}) and audit files; keep them apart")
        check_version(arguments.folder)
        size = _TABLE_FACTOR * sum(path.stat().st_size for path in arguments.folder.rglob("*.parquet"))
    else:
        if is_on_cluster(arguments):
            raise UnusableError(f"{arguments.folder}: on a cluster give an event table, made by `qdaudit ingest`")
        files, others = audit_files(arguments.folder)
        size = sum(file.size for file in files)
        tell_others(others)
    check_installed()
    if arguments.out is not None:
        make_folder(arguments.out, "--out ")
    with opened(arguments, size, is_by_arrow=arguments.verb == "denials") as (session, work):
        # Not at the top: importing pyspark takes a second, which --help and a wrong argument must not take.
        from spark import ingest as tables
        from spark.jobs import changes, denials, reports, shadow

        kinds = {"denials": denials.DENIALS, "changes": changes.CHANGES}
        kind = shadow.kind(arguments.candidate) if arguments.verb == "shadow" else kinds[arguments.verb]
        try:
            table = arguments.folder
            if not has_table:
                table = work / "table"
                tables.once(session, arguments.folder.resolve(), table)
            report = reports.report(
                session, table, kind, since=arguments.since, until=arguments.until, out=arguments.out, top=arguments.top
            )
        except Exception as error:  # the exceptions of Spark and of the bridge to Java have no common base class
            raise UnusableError(f"the report failed: {_cause(error)}") from error
    if arguments.format == "json":
        print(json.dumps(report.as_json(), indent=2))
    else:
        render(report, sys.stdout)
    sys.stdout.flush()
    return INCOMPLETE if arguments.strict and (report.quarantined or report.continuity.missing) else DONE


def _cause(error: Exception) -> str:
    """Returns a readable sentence from an error, which may be a Java stack trace of a hundred lines."""
    _, is_of_a_worker, trace = str(error).rpartition(_OF_A_WORKER)
    if is_of_a_worker and (said := _SAID.search(trace)):
        return re.sub(r"\A(?:\w+\.)*\w+: ", "", said[0])[:500]
    lines = [line.strip(": ") for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    if causes:
        line = causes[-1]
    elif len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        line = lines[1]
    else:
        line = lines[0] if lines else type(error).__name__
    return re.split(r"(?:[\w$]+\.)+[\w$]*(?:Exception|Error): ", line)[-1][:500]


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Makes SIGTERM act like an interrupt, so that the working folder is removed."""

    def interrupt(_signal: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    earlier = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)


if __name__ == "__main__":
    sys.exit(main())
