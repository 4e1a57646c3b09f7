"""`qdaudit detect` finds attacks and faults in the event table."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from spark.folders import UnusableError as VerbError
from spark.folders import UsageError, make_folder
from spark.session import check_installed
from spark.tables import printable
from spark.verbs.running import (
    DONE,
    FOUND,
    MAX_ROWS,
    UNREADABLE,
    add_table,
    json_line,
    json_text,
    opened,
    rows_of,
    text_of,
    write_private,
)

_SEVERITIES = ("low", "medium", "high", "critical")
_MAX_TOKEN_BYTES = 4096
_HISTORY_DAYS = 120
_EPILOG = (
    "Exit status: 0 done; 1 with --fail-on: there is a finding so severe; 2 wrong arguments; 3 TABLE cannot be read, "
    "DIR cannot be written, the webhook did not take an alert, or Spark cannot run."
)


def add_parser(verbs: Any) -> None:
    parser: argparse.ArgumentParser = verbs.add_parser(
        "detect",
        help="find attacks and faults",
        description="Look for guessed passwords, probing, outages and the like in an event table. With --follow, tell "
        "of each finding as the table grows.",
        epilog=_EPILOG,
    )
    add_table(parser)
    parser.add_argument(
        "--thresholds", metavar="FILE", type=Path, help="JSON; schemas/detect_thresholds.json says what"
    )
    parser.add_argument("--out", metavar="DIR", type=Path, help="write findings.jsonl there")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="of what is printed (table)")
    parser.add_argument("--fail-on", choices=_SEVERITIES, help="exit status 1 when there is a finding so severe")
    follow = parser.add_argument_group("alerts")
    either = follow.add_mutually_exclusive_group()
    either.add_argument("--follow", action="store_true", help="go on, and print a JSON line for each new finding")
    either.add_argument("--once", action="store_true", help="likewise, of what is new since the last time; then end")
    follow.add_argument("--checkpoint", metavar="DIR", type=Path, help="what was read and told; needed for both")
    follow.add_argument("--interval", metavar="S", type=_seconds, default=60, help="seconds between two looks (60)")
    follow.add_argument("--webhook", metavar="URL", help="POST alerts there as well, as JSON over https")
    follow.add_argument("--webhook-token-file", metavar="FILE", type=Path, help="sent as a bearer token")
    follow.add_argument("--webhook-in-the-clear", action="store_true", help="allow http")
    parser.set_defaults(run=run)


def _seconds(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:6]) <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 1 to 86400")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    check_installed()  # before any module of the detectors is loaded
    from spark.detectors.thresholds import MAX_BYTES, ThresholdsError, defaults, parse

    thresholds = defaults()
    if arguments.thresholds is not None:
        try:
            thresholds = parse(text_of(arguments.thresholds, MAX_BYTES))
        except ThresholdsError as error:
            raise VerbError(f"{arguments.thresholds}: {error}") from None
    if not any(of["enabled"] for of in thresholds.values()):
        raise VerbError(f"{arguments.thresholds}: no detector is enabled")
    if arguments.follow or arguments.once:
        return _follow(arguments, thresholds)
    if arguments.webhook is not None or arguments.checkpoint is not None:
        raise UsageError("--webhook and --checkpoint are for --follow and --once")
    if arguments.out is not None:
        make_folder(arguments.out, "--out ")
    with opened(arguments, is_by_arrow=True) as (session, _):
        from spark.jobs.detection import SEVERITIES, detect, foremost, looked_at
        from spark.sums.trail import trail_of_table

        since, until = arguments.since, arguments.until
        trail = trail_of_table(session, arguments.table, since=since, until=until, watch=looked_at(thresholds))
        shown, is_complete = foremost(detect(trail, thresholds), MAX_ROWS)
        rows, _ = rows_of(shown)
    if arguments.out is not None:
        write_private(arguments.out / "findings.jsonl", "".join(f"{json_line(row)}\n" for row in rows))
    if arguments.format == "json":
        sys.stdout.write(json_text({"findings": rows, "is_complete": is_complete}))
    else:
        _print(rows, is_complete)
    sys.stdout.flush()
    is_severe = arguments.fail_on is not None and any(
        SEVERITIES.index(row["severity"]) >= SEVERITIES.index(arguments.fail_on) for row in rows
    )
    return FOUND if is_severe or (arguments.fail_on is not None and not is_complete) else DONE


def _print(rows: Sequence[Mapping[str, Any]], is_complete: bool) -> None:
    print(f"{len(rows)}{'' if is_complete else ' or more'} finding{'' if len(rows) == 1 else 's'}")
    for row in rows:
        subjects = (("user", row["user"]), ("host", row["remote_host"]), ("router", row["router"]))
        whose = ", ".join(f"{name} {printable(value)}" for name, value in subjects if value is not None)
        print(f"\n{row['severity']}: {row['detector']}: {whose or 'several'}")
        print(f"    {row['first']} to {row['last']}: {row['count']} requests, {row['distinct']} distinct")
        more = f" and {row['events'] - 3} more" if row["events"] > 3 else ""
        print(f"    evidence: {', '.join(row['evidence'][:3])}{more}")


def _follow(arguments: argparse.Namespace, thresholds: Mapping[str, Mapping[str, Any]]) -> int:
    if arguments.checkpoint is None:
        raise UsageError("--follow and --once need --checkpoint DIR, to go on where they ended")
    if arguments.since is not None or arguments.until is not None:
        raise UsageError("--since and --until are not for --follow and --once, which tell of what is new")
    token = None
    if arguments.webhook_token_file is not None:
        token = text_of(arguments.webhook_token_file, _MAX_TOKEN_BYTES).strip()
        if not token.isascii() or not token.isprintable():
            raise VerbError(f"{arguments.webhook_token_file}: a token is one line of printable ASCII")
    make_folder(arguments.checkpoint, "--checkpoint ")
    failed: list[str] = []
    webhook = None
    if arguments.webhook is not None:
        from spark.jobs.alerts import Webhook, webhook_fault

        fault = webhook_fault(arguments.webhook, allows_http=arguments.webhook_in_the_clear)
        if fault is not None:
            raise UsageError(f"--webhook: {fault}")
        webhook = Webhook(url=arguments.webhook, token=token)
    with opened(arguments) as (session, _):
        from spark.jobs.alerts import follow

        tell = partial(_tell, webhook.post if webhook is not None else None, failed)
        follow(
            session,
            arguments.table,
            thresholds,
            checkpoint=arguments.checkpoint,
            history_days=_HISTORY_DAYS,
            tell=tell,
            is_once=arguments.once,
            interval_s=arguments.interval,
        )
    return UNREADABLE if failed else DONE


def _tell(
    post: Callable[[Sequence[Mapping[str, Any]]], None] | None,
    failed: list[str],
    alerts: Sequence[Mapping[str, Any]],
) -> None:
    """Prints the alerts before posting them. So a failed webhook loses none, and later alerts are still posted."""
    from spark.jobs.alerts import WebhookError

    for alert in alerts:
        print(json_line(alert))
    sys.stdout.flush()
    if post is None:
        return
    try:
        post(alerts)
    except WebhookError as error:
        failed.append(str(error))
        print(f"qdaudit: the webhook did not take {len(alerts)} alerts: {error}", file=sys.stderr)
