"""`qdaudit recommend` shows what a policy never used, and the narrowest policy that permits everything used."""

import argparse
import json
import sys
from difflib import unified_diff
from pathlib import Path
from typing import Any

from policy.cli.sources import UnusableError, compiled, usable
from policy.files.layout import formatted
from policy.files.validation import load_sections
from policy.lint.rules import check_all
from spark.folders import UnusableError as VerbError
from spark.folders import make_folder
from spark.replaying.recommendation import Use, recommend
from spark.tables import printable
from spark.verbs.replay import add_policy
from spark.verbs.running import DONE, FOUND, add_table, json_text, opened, write_private

# Limit of distinct uses held in memory; each is of an admitted user.
_MAX_USES = 1_000_000
_FILE = "recommended.json"
_EPILOG = (
    "Exit status: 0 done; 1 with --fail-on-unused: something was never used; 2 wrong arguments; 3 TABLE or POLICY "
    "cannot be used, DIR cannot be written, or Spark cannot run."
)


def add_parser(verbs: Any) -> None:
    parser: argparse.ArgumentParser = verbs.add_parser(
        "recommend",
        help="find what a policy permits and nobody used",
        description="List the vhosts, groups, users, hosts and addresses of POLICY that nobody used, and write the "
        "narrowest policy that still permits what was used. Needs a trail with auditAllows.",
        epilog=_EPILOG,
    )
    add_table(parser)
    add_policy(parser)
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help=f"write {_FILE}, recommended.diff and unused.json there"
    )
    parser.add_argument("--fail-on-unused", action="store_true", help="exit status 1 when something was never used")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        loaded = usable(arguments.policy)
        ruleset = compiled(arguments.policy, loaded, resolves=arguments.resolve)
    except UnusableError as error:
        raise VerbError(str(error)) from None
    if arguments.out is not None:
        make_folder(arguments.out, "--out ")
    with opened(arguments) as (_, events):
        from spark.transforms.replay import replayed, used

        rows = used(replayed(events, ruleset)).take(_MAX_USES + 1)
    if len(rows) > _MAX_USES:
        raise VerbError(f"more than {_MAX_USES} distinct uses; narrow them with --since and --until")
    if not rows:
        raise VerbError(
            "nothing that this policy allows is on record: the router records allows where its auditAllows says so; "
            "and POLICY is to be the policy that was in force"
        )
    made = recommend(ruleset, loaded.vhosts, [Use(*row) for row in rows])
    before = formatted(_written([dict(attributes) for attributes, _ in loaded.vhosts]), _FILE)
    after = formatted(_written(list(made.vhosts)), _FILE)
    findings = _checked(after)
    diff = "".join(unified_diff(before.splitlines(True), after.splitlines(True), str(arguments.policy), _FILE))
    if arguments.out is not None:
        write_private(arguments.out / _FILE, after)
        write_private(arguments.out / "recommended.diff", diff)
        write_private(arguments.out / "unused.json", json_text([each._asdict() for each in made.unused]))
    print(f"{len(made.unused)} never used, in {len(rows)} distinct uses")
    for each in made.unused:
        place = f"{printable(each.vhost)}{f', {printable(each.group)}' if each.group is not None else ''}"
        print(f"  {each.kind}: {printable(each.item)} ({place})")
    if made.strangers:
        print(f"WARNING: {made.strangers} uses are of vhosts or groups that this policy does not have")
    for finding in findings:
        print(f"lint: {finding}")
    print()
    sys.stdout.write("".join(f"{printable_line(line)}\n" for line in diff.splitlines()))
    sys.stdout.flush()
    return FOUND if arguments.fail_on_unused and made.unused else DONE


def printable_line(line: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)


def _written(vhosts: list[dict[str, Any]]) -> str:
    return json.dumps([["vhost", vhost] for vhost in vhosts], ensure_ascii=False)


def _checked(text: str) -> list[str]:
    """Returns the lint findings on the recommendation. A router must accept it; otherwise this is our bug."""
    sections = tuple(load_sections(text, _FILE))
    found = check_all(sections, texts={_FILE: text})
    return [f"{each.rule}: line {each.line}: {printable(each.text)}" for each in found]
