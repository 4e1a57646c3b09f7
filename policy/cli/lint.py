"""`qdpolicy lint`: look for mistakes in policy files and configurations."""

import argparse
import gc
import json
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Any

from policy.cli.instants import add_at_option
from policy.cli.sources import CLEAN, FINDINGS, UNREADABLE, WRONG_USE, Loaded, load, printable
from policy.lint.configuration import ConfigurationError, LintConfiguration, read_configuration
from policy.lint.findings import Finding, Level
from policy.lint.ignoring import fingerprints, with_levels, without_known
from policy.lint.places import fixed, without_secrets
from policy.lint.reports import FORMATS, Report
from policy.lint.rules import RULES, check_all
from policy.loader import PolicyFileError
from policy.validation import load_valid_entities

CONFIGURATION = "qdpolicy.toml"

DESCRIPTION = """\
Look for mistakes in policy files, the JSON files of a router's policyDir, and in router configurations (.conf).

A folder stands for its *.json files, which one router loads together; a configuration for itself and its policyDir. No
host name is looked up, and nothing is changed without --fix.
"""
EPILOG = """\
exit status:
  0  nothing at or above --fail-level was found, or nothing is left to fix
  1  something was; with --diff: there is something to fix
  2  the command line or the configuration file is wrong
  3  a file could not be read, or is no policy; what is wrong with it is shown, the other files are still checked

`qdpolicy rules` lists the rules, `qdpolicy rules PAL006` explains one. A comment `# qdpolicy: ignore[PAL010] reason`
answers for what begins on the next line.
"""


def add_parser(verbs: Any) -> None:
    parser: argparse.ArgumentParser = verbs.add_parser(
        "lint",
        help="look for mistakes in policies and configurations",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="a policy file, a folder, a configuration")
    parser.add_argument("--format", choices=tuple(FORMATS), default="text", help="default: text")
    parser.add_argument("--output", metavar="FILE", type=Path, help="write the report there")
    parser.add_argument(
        "--fail-level",
        choices=[level.name.lower() for level in Level],
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
    parser.add_argument("--config", metavar="FILE", type=Path, help=f"default: {CONFIGURATION}, if it is there")
    parser.add_argument("--baseline", metavar="FILE", type=Path, help="leave out the findings recorded there")
    parser.add_argument("--write-baseline", metavar="FILE", type=Path, help="record the findings, and succeed")
    add_at_option(parser, "for rules that ask for the time: as if it were this (default: now)")
    changing = parser.add_mutually_exclusive_group()
    changing.add_argument("--fix", action="store_true", help="make the fixes that keep what the policy permits")
    changing.add_argument("--diff", action="store_true", help="show the fixes, and change nothing")
    parser.add_argument(
        "--unsafe", action="store_true", help="with --fix or --diff: also those that change what it permits"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    # Thousands of vhosts are millions of values without a cycle among them, which the collector goes through again and
    # again: a quarter of the time.
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        return _run(options)
    finally:
        if is_collecting:
            gc.enable()


def _run(options: argparse.Namespace) -> int:
    try:
        configuration = _configuration(options.config)
        known = _baseline(options.baseline or configuration.baseline)
    except ConfigurationError as error:
        print(f"qdpolicy: {printable(str(error))}", file=sys.stderr)
        return WRONG_USE
    if options.fix or options.diff:
        return _mend(options, configuration)
    report, texts = _checked(options, configuration)
    if options.write_baseline is not None:
        marks = sorted(set(fingerprints(report.findings)))
        options.write_baseline.write_text(json.dumps({"version": 1, "findings": marks}, indent=2) + "\n", "utf-8")
        return UNREADABLE if report.problems else CLEAN
    report = Report(findings=without_known(report.findings, known), problems=report.problems, texts=texts)
    output = FORMATS[options.format](report)
    if options.output is not None:
        options.output.write_text(output, "utf-8")
    else:
        print(output, end="")
    if report.problems:
        return UNREADABLE
    fail_level = Level[options.fail_level.upper()] if options.fail_level else configuration.fail_level
    return FINDINGS if any(finding.level >= fail_level for finding in report.findings) else CLEAN


def _checked(options: argparse.Namespace, configuration: LintConfiguration) -> tuple[Report, Mapping[str, str]]:
    """What is found in each of the paths: one path is one router's policy."""
    findings: list[Finding] = []
    whole = Loaded()
    now = time.time() if options.at is None else options.at
    for path in options.paths:
        loaded = load(path)
        ignored = (*options.ignore, *configuration.ignored)
        findings += with_levels(check_all(tuple(loaded.entities), ignored, loaded.texts, now), configuration.levels)
        whole.problems += loaded.problems
        whole.texts.update(loaded.texts)
    unique = tuple(dict.fromkeys(findings))
    return Report(findings=unique, problems=tuple(whole.problems), texts=whole.texts), whole.texts


def _mend(options: argparse.Namespace, configuration: LintConfiguration) -> int:
    report, texts = _checked(options, configuration)
    changed = fixed(report.findings, texts, is_unsafe_allowed=options.unsafe)
    for file, problem in report.problems:
        print(printable(f"{file}:{problem.line}:{problem.column}: invalid: {problem.text}"))
    for file, text in changed.items():
        try:
            # A fix must leave a policy a policy.
            load_valid_entities(text, file)
        except PolicyFileError as error:
            print(printable(f"{file}: not changed, the fixes would break it: {error}"))
            return UNREADABLE
        if options.diff:
            print("\n".join(printable(without_secrets(line)) for line in _difference(file, texts[file], text)))
        else:
            # Line ends stay as they are.
            Path(file).write_bytes(text.encode("utf-8"))
            print(printable(f"{file}: mended"))
    if report.problems:
        return UNREADABLE
    return FINDINGS if options.diff and changed else CLEAN


def _difference(file: str, before: str, after: str) -> Iterator[str]:
    lines = before.splitlines(), after.splitlines()
    yield from unified_diff(*lines, f"a/{file}", f"b/{file}", lineterm="")


def _configuration(path: Path | None) -> LintConfiguration:
    file = Path(CONFIGURATION) if path is None else path
    try:
        return read_configuration(tomllib.loads(file.read_text("utf-8")))
    except FileNotFoundError:
        if path is None:
            return LintConfiguration()
        raise ConfigurationError(f"{file} cannot be read: there is no such file") from None
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, ConfigurationError) as error:
        raise ConfigurationError(f"{file}: {error}") from None


def _baseline(path: Path | str | None) -> Sequence[str]:
    if path is None:
        return ()
    try:
        recorded = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"baseline {path} cannot be read: {error}") from None
    match recorded:
        case {"version": 1, "findings": list() as marks}:
            return [str(mark) for mark in marks]
    raise ConfigurationError(f"baseline {path} is none: write one with --write-baseline")
