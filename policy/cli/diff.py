"""`qdpolicy diff` lists the requests that a change of a policy newly permits, and those it no longer permits."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from policy.analysis.changes import Change
from policy.analysis.difference import diff_rulesets
from policy.analysis.effort import TooComplexError
from policy.analysis.outlines import rulesets_to_compare
from policy.cli.arguments import add_router_option
from policy.cli.collector import without_collector
from policy.cli.instants import add_at_option
from policy.cli.progress import progress
from policy.cli.sources import CLEAN, FINDINGS, UNREADABLE, UnusableError, outline_of, print_lines, usable
from policy.decision import Rule
from policy.printing import printable

DESCRIPTION = """\
Show the exact difference of what two policies permit: as sets, each with one request that shows it.

How the files are written does not matter, only what they mean. maxFrameSize and maxSessionWindow are not compared.
Addresses are compared by what can be reached; of their other spellings, such as amqp:/a for a, those that stand in a
list. Further ones are left out: they reach nothing that is not allowed by its plain text as well.
"""
EPILOG = """\
exit status:
  0  no difference of the kind --fail-on names (without it: compared)
  1  there is one
  2  the command line is wrong
  3  a policy could not be read, would be refused by a router, or is too complex to compare
"""
MAX_SHOWN = 8


def add_parser(verbs: Any) -> None:
    parser: argparse.ArgumentParser = verbs.add_parser(
        "diff",
        help="show what a change permits and what it no longer does",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("old", metavar="OLD", type=Path, help="a policy file, a folder of them, or a router's .conf")
    parser.add_argument("new", metavar="NEW", type=Path, help="likewise")
    parser.add_argument(
        "--fail-on", choices=("widening", "narrowing", "any"), help="such a difference is exit status 1"
    )
    add_at_option(parser, "compare what holds at this instant only (default: at all times)")
    add_router_option(parser)
    parser.add_argument("--resolve", action="store_true", help="look up host names in remoteHosts")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(run=run)


@without_collector
def run(options: argparse.Namespace) -> int:
    try:
        with progress() as watch:
            reading, checking = partial(watch, "reading files"), partial(watch, "vhosts checked")
            loaded = [usable(path, reading) for path in (options.old, options.new)]
            before, after = (
                outline_of(path, each, resolves=options.resolve, watch=checking)
                for path, each in zip((options.old, options.new), loaded, strict=True)
            )
            old, new = rulesets_to_compare(before, after)
            router_id = options.router_id or loaded[1].router_id or loaded[0].router_id
            changes = diff_rulesets(
                old, new, options.at, router_id=router_id, watch=partial(watch, "pairs of vhosts compared")
            )
    except (UnusableError, TooComplexError) as error:
        print_lines(json.dumps({"version": 1, "problem": str(error)}) if options.json else str(error))
        return UNREADABLE
    if options.json:
        report = {"version": 1, "changes": [{"kind": _kind(change), **asdict(change)} for change in changes]}
        print(json.dumps(report, indent=2))
    else:
        print("\n".join(printable(line) for line in change_lines(changes)))
    kinds = {_kind(change) for change in changes}
    return FINDINGS if options.fail_on in kinds or (options.fail_on == "any" and kinds) else CLEAN


def _kind(change: Change) -> str:
    return "widening" if change.is_widening else "narrowing"


def change_lines(changes: tuple[Change, ...]) -> Iterator[str]:
    if not changes:
        yield "No difference"
    for change in changes:
        yield f"{_kind(change)}: {_what(change)}"
        if change.users:
            yield f"    who:     {_listed(change.users)}, from {_listed(change.hosts)}"
            if change.times:
                yield f"    when:    {_listed(change.times)}"
            yield f"    example: {_example(change)}"
        places = [_place(name, rule) for name, rule in zip(("old", "new"), change.rules, strict=True)]
        if any(places):
            yield f"    rules:   {', '.join(place for place in places if place)}"


def _what(change: Change) -> str:
    where = f" in vhost '{change.vhost}'" if change.users else ""
    if change.addresses is not None:
        exceptions = f" except {_listed(tuple(map(repr, change.exceptions)))}" if change.exceptions else ""
        preposition = "to" if change.subject.endswith("send") else "from"
        return f"{change.subject} {preposition} '{change.addresses}'{exceptions}{where}"
    if change.rights:
        return f"{change.subject}: {'; '.join(change.rights)}{where}"
    if change.before is not None:
        return f"{change.subject}: {change.before} -> {change.after}{where}"
    return f"{change.subject}{where}"


def _example(change: Change) -> str:
    witness = change.witness
    who = f"'{witness.user}'" if witness.user is not None else "a peer without a name"
    who += f" in {', '.join(witness.groups)}" if witness.groups else ""
    text = f"{who} from {witness.host} at vhost '{witness.vhost}'"
    if witness.direction is not None:
        text += f" {'sends to' if witness.direction == 'send' else 'receives from'} '{witness.address}'"
    if witness.right is not None:
        text += f", by management: {witness.right}"
    return text if witness.at is None else f"{text}, at {witness.at}"


def _listed(items: tuple[str, ...]) -> str:
    more = f" and {len(items) - MAX_SHOWN} more" if len(items) > MAX_SHOWN else ""
    return ", ".join(items[:MAX_SHOWN]) + more


def _place(name: str, rule: Rule | None) -> str:
    return f"{name} {rule.file}:{rule.line}" if rule is not None and rule.line is not None else ""
