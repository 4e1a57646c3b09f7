"""`qdaudit replay` shows how a candidate policy would decide the recorded requests."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from policy.cli.sources import UnusableError, ruleset_of
from policy.ruleset import Ruleset
from spark.folders import UnusableError as VerbError
from spark.folders import make_folder
from spark.tables import printable
from spark.verbs.running import DONE, FOUND, add_table, json_line, json_text, opened, rows_of, write_private

_KINDS = ("newly_allowed", "newly_denied")
_EPILOG = (
    "Exit status: 0 no change of the kind --fail-on names (without it: replayed); 1 there is one, or with --strict: an "
    "event could not be replayed; 2 wrong arguments; 3 TABLE or POLICY cannot be used, DIR cannot be written, or Spark "
    "cannot run."
)


def add_parser(verbs: Any) -> None:
    parser: argparse.ArgumentParser = verbs.add_parser(
        "replay",
        help="decide history again, by a candidate policy",
        description="Ask the router's own decision function, under a candidate policy, about every recorded decision: "
        "which denials become allows, which allows become denials, and who is hit.",
        epilog=_EPILOG,
    )
    add_table(parser)
    add_policy(parser)
    parser.add_argument("--digest", metavar="DIGEST", help="only what a ruleset decided whose digest begins so")
    parser.add_argument("--fail-on", choices=("newly-allowed", "newly-denied", "any"), help="such a change is status 1")
    parser.add_argument("--strict", action="store_true", help="an event that cannot be replayed is exit status 1")
    parser.add_argument("--out", metavar="DIR", type=Path, help="write changes.jsonl there")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="of what is printed (table)")
    parser.set_defaults(run=run)


def add_policy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "policy", metavar="POLICY", type=Path, help="a policy file, a folder of them, or a router's .conf"
    )
    parser.add_argument("--resolve", action="store_true", help="look up host names in remoteHosts")


def ruleset(arguments: argparse.Namespace) -> Ruleset:
    try:
        return ruleset_of(arguments.policy, resolves=arguments.resolve)
    except UnusableError as error:
        raise VerbError(str(error)) from None


def run(arguments: argparse.Namespace) -> int:
    candidate = ruleset(arguments)
    if arguments.out is not None:
        make_folder(arguments.out, "--out ")
    with opened(arguments) as (_, events):
        from pyspark.sql import functions as F

        from spark.transforms.replay import changed, replayed, totals

        if arguments.digest is not None:
            events = events.where(F.col("ruleset_digest").startswith(arguments.digest))
        replays = replayed(events, candidate).persist()
        counts, _ = rows_of(totals(replays))
        changes, is_complete = rows_of(changed(replays))
    if arguments.out is not None:
        write_private(arguments.out / "changes.jsonl", "".join(f"{json_line(row)}\n" for row in changes))
    if arguments.format == "json":
        whole = {"candidate": candidate.digest, "totals": counts, "changes": changes, "is_complete": is_complete}
        sys.stdout.write(json_text(whole))
    else:
        _print(candidate.digest, counts, changes, is_complete)
    sys.stdout.flush()
    found = {row["outcome"] for row in counts}
    wanted = set(_KINDS) if arguments.fail_on == "any" else {str(arguments.fail_on).replace("-", "_")}
    is_unknown = arguments.strict and "not_replayed" in found
    return FOUND if found & wanted or is_unknown else DONE


def _print(
    digest: str, counts: Sequence[Mapping[str, Any]], changes: Sequence[Mapping[str, Any]], is_complete: bool
) -> None:
    print(f"candidate {digest[:16]}")
    for row in counts:
        why = f": {printable(row['why'])}" if row["why"] else ""
        print(f"  {row['outcome']}: {row['requests']} requests in {row['events']} events{why}")
    for row in changes:
        what = {"send": " to send to ", "receive": " to receive from "}.get(row["direction"], "")
        address = f"{what}{printable(row['address'])}" if row["direction"] else ""
        whose = f"{printable(row['user'])} from {printable(row['remote_host'])}"
        print(f"\n{row['outcome']}: {whose}, {row['stage']}{address}")
        print(f"    {row['was_reason']} -> {row['reason']}; {row['requests']} requests, such as event {row['example']}")
        if row["file"] is not None:
            print(f"    rule: {printable(row['file'])}:{row['line']}: {printable(row['item'])}")
    if not is_complete:
        print("\n... and more; narrow it with --since, --until or --digest")
