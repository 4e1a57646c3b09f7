"""`qdaudit report` writes one page for people, and tables for other programs."""

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spark.folders import UnusableError as VerbError
from spark.folders import make_folder
from spark.session import check_installed
from spark.verbs.running import DONE, MAX_ROWS, add_table, opened, rows_of, text_of, write_private

_FORMATS = ("html", "csv", "json", "parquet", "ocsf")
_LISTS = {"routers": 4, "users": 5, "hosts": 5, "addresses": 5, "evidence": 2}
_FINDING_COLUMNS = ("severity", "detector", "first", "last", "count", "distinct", *_LISTS)


def add_parser(verbs: Any) -> None:
    parser: argparse.ArgumentParser = verbs.add_parser(
        "report",
        help="write a page (HTML), CSV, JSON, Parquet or OCSF",
        description="Write findings and denials to DIR: report.html, one file that needs nothing else and prints well, "
        "and each table in the formats asked for.",
        epilog="Exit status: 0 done; 2 wrong arguments; 3 TABLE cannot be read, DIR cannot be written, or Spark cannot "
        "run.",
    )
    add_table(parser)
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="made where there is none")
    parser.add_argument(
        "--format",
        action="append",
        choices=_FORMATS,
        help="what to write (html); may be given several times",
    )
    parser.add_argument(
        "--findings",
        metavar="FILE",
        type=Path,
        help="show these, which `detect --out` wrote for this table, in place of looking for them; also by thresholds "
        "of your own",
    )
    parser.add_argument("--title", default="Audit report", help="of the page")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    formats = dict.fromkeys(arguments.format or ["html"])
    if "html" in formats:
        _check_jinja()
    kept = None if arguments.findings is None else _kept(arguments)
    make_folder(arguments.out, "--out ")
    with opened(arguments) as (session, events):
        from spark.detectors.kept import frame_of
        from spark.detectors.thresholds import defaults
        from spark.jobs.denials import DENIALS
        from spark.jobs.detection import detect, looked_at
        from spark.jobs.export import write_ocsf, write_table
        from spark.sums.trail import trail_of_table

        since, until = arguments.since, arguments.until
        watch = looked_at(defaults()) if kept is None else None
        trail = trail_of_table(session, arguments.table, since=since, until=until, has_denials=True, watch=watch)
        findings = detect(trail, defaults()) if kept is None else frame_of(session, kept)
        tables = {"findings": ("Findings", findings), **DENIALS.tables(trail)}
        written = []
        for form in formats:
            if form == "ocsf":
                written.append(write_ocsf(events, arguments.out))
            elif form != "html":
                written += [write_table(frame, arguments.out, name, form) for name, (_, frame) in tables.items()]
        if "html" in formats:
            page = arguments.out / "report.html"
            write_private(page, _page(arguments, trail, tables))
            written.append(page)
    for path in written:
        print(path)
    return DONE


def _kept(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns the findings of a file. Raises VerbError, also if a finding has events outside the page's time."""
    path: Path = arguments.findings
    check_installed()  # before any module of the detectors is loaded
    from spark.detectors.kept import MAX_BYTES, KeptFindingsError, parse

    try:
        rows = parse(text_of(path, MAX_BYTES))
    except KeptFindingsError as error:
        raise VerbError(f"--findings {path}: {error}") from None
    since, until = arguments.since, arguments.until
    for number, row in enumerate(rows, 1):
        if (since and row["first"] < since) or (until and row["last"] >= until):
            when = f"{row['first'].isoformat()} to {row['last'].isoformat()}"
            raise VerbError(
                f"--findings {path}: finding {number} is of {when}, which is not all within --since and --until; give "
                "`detect` the same"
            )
    return rows


def _check_jinja() -> None:
    try:
        import jinja2  # noqa: F401
    except ImportError:
        raise VerbError("jinja2 is not installed: install this package with its extra spark") from None


def _finding(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a finding for a screen: whole seconds, and the beginning of each list."""
    shown = {**row, "first": row["first"][:19], "last": row["last"][:19], "detector": row["detector"].replace("_", " ")}
    for name, most in _LISTS.items():
        more = (row["events"] if name == "evidence" else len(row[name])) - most
        shown[name] = [*row[name][:most], f"and {more} more"] if more > 0 else row[name]
    return shown


def _page(arguments: argparse.Namespace, trail: Any, tables: dict[str, tuple[str, Any]]) -> str:
    from pyspark.sql import functions as F

    from spark.jobs.detection import foremost
    from spark.pages.page import Page, bars_plot, columns_plot, render, table
    from spark.transforms.denials import is_denial, total

    pages, rows = [], {}
    for name, (title, frame) in tables.items():
        shown_frame, is_whole = foremost(frame, MAX_ROWS) if name == "findings" else (frame, True)
        rows[name], is_short = rows_of(shown_frame)
        is_whole = is_whole and is_short
        if name == "findings" and arguments.findings is not None:  # `detect` writes no more, and does not say so there
            is_whole = is_whole and len(rows[name]) < MAX_ROWS
        columns = _FINDING_COLUMNS if name == "findings" else tuple(frame.columns)
        shown = [_finding(row) for row in rows[name]] if name == "findings" else rows[name]
        pages.append(table(name, title, columns, shown, is_whole=is_whole))
    ends = (
        trail.facts()
        .agg(
            F.date_format(F.min("first"), "yyyy-MM-dd HH:mm:ss").alias("first"),
            F.date_format(F.max("last"), "yyyy-MM-dd HH:mm:ss").alias("last"),
            F.coalesce(F.sum("events"), F.lit(0)).alias("events"),
            total(is_denial()).alias("denials"),
            F.count_distinct("router").alias("routers"),
        )
        .first()
    )
    when = f"{ends.first} to {ends.last} UTC" if ends is not None and ends.first is not None else "no events"
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    numbers = [(name, getattr(ends, name)) for name in ("events", "denials", "routers")] if ends is not None else []
    hours = [(row["hour"], row["denials"]) for row in rows["by_hour"]]
    reasons = [(row["reason"], row["denials"]) for row in rows["by_reason"]]
    remarks = [] if rows["findings"] else ["No detector found anything."]
    if arguments.findings is not None:
        remarks.append(f"The findings are those of {arguments.findings}; they were not looked for again.")
    return render(
        Page(
            title=arguments.title,
            about=f"{arguments.table}: {when}. Made {made_at} by qdaudit.",
            numbers=[*numbers, ("findings", len(rows["findings"]))],
            remarks=remarks,
            plots=[columns_plot("Denials by hour (UTC)", hours), bars_plot("Denials by reason", reasons)],
            tables=pages,
        )
    )
