"""`qdpolicy lint`: look for mistakes in policy files."""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from policy.lint.findings import Finding, Level
from policy.lint.rules import RULES, check_all
from policy.loader import Entity, PolicyFileError
from policy.positioned_json import Problem
from policy.validation import load_valid_entities

CLEAN, FINDINGS, UNREADABLE = 0, 1, 3

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
        entities, unreadable = _load(path)
        problems += unreadable
        findings += check_all(entities, options.ignore)
    _show(options.format, findings, problems)
    if problems:
        return UNREADABLE
    fail_level = Level[options.fail_level.upper()]
    return FINDINGS if any(finding.level >= fail_level for finding in findings) else CLEAN


def _load(path: Path) -> tuple[tuple[Entity, ...], list[tuple[str, Problem]]]:
    """What is in a file or a folder, and what is wrong with it."""
    entities: list[Entity] = []
    problems: list[tuple[str, Problem]] = []
    try:
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    except OSError as error:
        return (), [(str(path), _cannot_be_read(error.strerror))]
    if not files:
        return (), [(str(path), _cannot_be_read("there is no *.json file in this folder"))]
    for file in files:
        if file.exists() and file.suffix != ".json":
            problems.append((str(file), _cannot_be_read("policy files are JSON and end in .json")))
            continue
        try:
            entities += load_valid_entities(file.read_text("utf-8"), str(file))
        except PolicyFileError as error:
            problems += [(str(file), problem) for problem in error.problems]
        except OSError as error:
            problems.append((str(file), _cannot_be_read(error.strerror)))
        except UnicodeDecodeError as error:
            problems.append((str(file), _cannot_be_read(f"not UTF-8, beginning with byte {error.start + 1}")))
    return tuple(entities), problems


def _cannot_be_read(why: str | None) -> Problem:
    return Problem(line=1, column=1, text=f"cannot be read: {why or 'unknown error'}")


def _show(form: str, findings: list[Finding], problems: list[tuple[str, Problem]]) -> None:
    if form == "json":
        report = {
            "findings": [{**asdict(finding), "level": finding.level.name.lower()} for finding in findings],
            "problems": [{"file": file, **asdict(problem)} for file, problem in problems],
        }
        print(json.dumps(report, indent=2))
        return
    for line in _lines(findings, problems):
        print(_printable(line), file=sys.stdout)
    if not findings and not problems:
        print("No findings")


def _lines(findings: list[Finding], problems: list[tuple[str, Problem]]) -> Iterator[str]:
    for file, problem in problems:
        yield f"{file}:{problem.line}:{problem.column}: invalid: {problem.text}"
    for finding in findings:
        yield f"{finding.file}:{finding.line}: {finding.level.name.lower()} {finding.rule}: {finding.text}"


def _printable(text: str) -> str:
    """Without control characters: a policy from somebody else must not be able to steer the terminal."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
