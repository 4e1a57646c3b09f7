"""`qdpolicy test` compares a policy's decisions with the expected ones."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from policy.analysis.expectations import Coverage, Outcome, check_expectations, coverage_of, read_expectations
from policy.cli.arguments import add_router_option, percent
from policy.cli.files import written
from policy.cli.sources import (
    CLEAN,
    FINDINGS,
    UNREADABLE,
    UnreadableError,
    UnusableError,
    compiled,
    print_lines,
    read_text,
    usable,
)
from policy.decision import Rule
from policy.files.loader import PolicyFileError
from policy.printing import printable

DESCRIPTION = """\
Hold policies against expectations, and say which rules no expectation has put to use.

A file of expectations is JSON; lines that begin with # are comments:

  {"policy": "policy.json",
   "expect": [
     {"user": "alice", "host": "10.0.0.1", "is": "allow"},
     {"user": "alice", "host": "10.0.0.1", "send": "orders.new", "is": "allow"},
     {"user": "alice", "host": "10.0.0.1", "receive": "$management", "is": "deny", "reason": "source_not_allowed"}]}

`policy` is a file, a folder or a router's .conf, as seen from the file. Keep expectations out of a policyDir: routers
read every *.json file there. Further members: name, vhost, mechanism, groups, tls, and instead of send and receive,
which may be lists, dynamic, anonymous, or manage, a management request or several ("update vhost"); beside send,
replyAge: so many seconds ago the connection received a message with that reply-to; multiTenant where the listener is;
and at, a time: without it no group that has validFrom or validUntil is valid.
"""
EPILOG = """\
exit status:
  0  every expectation is met, and coverage is at least --min-coverage
  1  not so
  2  the command line is wrong
  3  a file could not be read or written, or the policy would be refused by a router
"""


def add_parser(verbs: Any) -> None:
    parser: argparse.ArgumentParser = verbs.add_parser(
        "test",
        help="hold a policy against expectations",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="expectations")
    parser.add_argument("--junit", metavar="FILE", type=Path, help="write a report for pipelines there")
    parser.add_argument("--min-coverage", metavar="PERCENT", type=percent, default=0, help="of the rules (default: 0)")
    add_router_option(parser)
    parser.add_argument("--resolve", action="store_true", help="look up host names in remoteHosts")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    outcomes: list[tuple[Path, Outcome]] = []
    coverages: list[Coverage] = []
    is_unusable = False
    for file in options.files:
        try:
            found = read_expectations(read_text(file), str(file))
            path = file.parent / found.policy
            loaded = usable(path)
            ruleset = compiled(path, loaded, resolves=options.resolve)
        except (PolicyFileError, UnusableError, UnreadableError) as error:
            text = f"{file}: cannot be read: {error}" if isinstance(error, UnreadableError) else str(error)
            print_lines(text)
            is_unusable = True
            continue
        router_id = options.router_id or loaded.router_id
        checked = check_expectations(ruleset, found.expectations, router_id=router_id)
        outcomes += [(file, outcome) for outcome in checked]
        coverages.append(coverage_of(ruleset, checked))
    for line in _lines(outcomes, coverages):
        print(printable(line))
    if options.junit is not None and written(options.junit, _junit(outcomes)) != CLEAN:
        is_unusable = True
    if is_unusable:
        return UNREADABLE
    is_met = all(outcome.is_met for _, outcome in outcomes)
    is_covered = all(coverage.percent >= options.min_coverage for coverage in coverages)
    return CLEAN if is_met and is_covered else FINDINGS


def _lines(outcomes: list[tuple[Path, Outcome]], coverages: list[Coverage]) -> Iterator[str]:
    failed = [(file, outcome) for file, outcome in outcomes if not outcome.is_met]
    for file, outcome in failed:
        yield f"{file}:{outcome.expectation.line}: {outcome.expectation.name}"
        yield f"    {_found(outcome)}"
    yield f"{len(outcomes) - len(failed)} of {len(outcomes)} expectations met"
    for coverage in coverages:
        count = len(coverage.used) + len(coverage.unused)
        yield f"{len(coverage.used)} of {count} rules put to use ({coverage.percent} %)"
        for rule in coverage.unused:
            yield f"    never: {_place(rule)}"


def _found(outcome: Outcome) -> str:
    verdict = "allowed" if outcome.decision.is_allowed else f"denied: {outcome.decision.reason}"
    rule = outcome.decision.rule
    return f"found: {verdict}{f', by {_place(rule)}' if rule is not None else ''}"


def _place(rule: Rule) -> str:
    parts = [f"{kind} '{name}'" for kind, name in (("vhost", rule.vhost), ("group", rule.group)) if name]
    parts += [rule.item] if rule.item and ":" in rule.item else []
    place = f" [{rule.file}:{rule.line}]" if rule.line is not None else ""
    return f"{', '.join(parts)}{place}"


def _junit(outcomes: list[tuple[Path, Outcome]]) -> str:
    failures = sum(not outcome.is_met for _, outcome in outcomes)
    counts = f'tests="{len(outcomes)}" failures="{failures}"'
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites {counts}>"]
    lines.append(f'  <testsuite name="qdpolicy test" {counts}>')
    for file, outcome in outcomes:
        name, group = (quoteattr(printable(text)) for text in (outcome.expectation.name, str(file)))
        body = "" if outcome.is_met else f"<failure message={quoteattr(printable(_found(outcome)))}/>"
        lines.append(f"    <testcase classname={group} name={name}>{body}</testcase>")
    return "\n".join([*lines, "  </testsuite>", "</testsuites>", ""])
