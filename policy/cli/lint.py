"""`qdpolicy lint`: look for mistakes in policy files."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from policy.cli.sources import CLEAN, FINDINGS, UNREADABLE, load, printable
from policy.lint.findings import Finding, Level
from policy.lint.rules import RULES, check_all
from policy.positioned_json import Problem

DESCRIPTION = """\
Look for mistakes in policy files: the JSON files of a router's policyDir.

A folder stands for its *.json files, which one router loads together; a file stands for itself. Vhosts in .conf files
are not read. No host name is looked up and nothing is changed.
"""
EPILOG = """\
exit status:
  0  nothing at or above --fail-level was found
  1  something was
  2  the command line is wrong
  3  a file could not be read, or is no policy; what is wrong with it is shown, the other files are still checked

`qdpolicy rules` lists the rules, `qdpolicy rules PAL006` explains one.
"""


def add_parser(verbs: Any) -> None:
    parser: argparse.ArgumentParser = verbs.add_parser(
        "lint",
        help="look for mistakes in policy files",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="a policy file, or a folder of them")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument(
        "--fail-level",
        choices=[level.name.lower() for level in Level],
        default="warning",
        help="the least level that makes the exit status 1 (default: warning)",
    )
    parser.add_argument(
        "--ignore",
        metavar="ID",
        action="append",
        default=[],
        choices=[rule.ID for rule in RULES],
        help="leave out a rule; may be given several times",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    findings: list[Finding] = []
    problems: list[tuple[str, Problem]] = []
    for path in options.paths:
        loaded = load(path)
        problems += loaded.problems
        findings += check_all(tuple(loaded.entities), options.ignore)
    _show(options.format, findings, problems)
    if problems:
        return UNREADABLE
    fail_level = Level[options.fail_level.upper()]
    return FINDINGS if any(finding.level >= fail_level for finding in findings) else CLEAN


def _show(form: str, findings: list[Finding], problems: list[tuple[str, Problem]]) -> None:
    if form == "json":
        report = {
            "findings": [{**asdict(finding), "level": finding.level.name.lower()} for finding in findings],
            "problems": [{"file": file, **asdict(problem)} for file, problem in problems],
        }
        print(json.dumps(report, indent=2))
        return
    for line in _lines(findings, problems):
        print(printable(line))
    if not findings and not problems:
        print("No findings")


def _lines(findings: list[Finding], problems: list[tuple[str, Problem]]) -> Iterator[str]:
    for file, problem in problems:
        yield f"{file}:{problem.line}:{problem.column}: invalid: {problem.text}"
    for finding in findings:
        yield f"{finding.file}:{finding.line}: {finding.level.name.lower()} {finding.rule}: {finding.text}"
