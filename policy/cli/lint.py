"""`qdpolicy lint` finds mistakes in policy files and configurations."""

import argparse
import json
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import unified_diff
from functools import partial
from pathlib import Path
from typing import Any

from policy.cli.arguments import rule_id, rule_or_family
from policy.cli.collector import without_collector
from policy.cli.files import written
from policy.cli.instants import add_at_option
from policy.cli.progress import progress
from policy.cli.sasl import sasl_text
from policy.cli.sources import (
    CLEAN,
    FINDINGS,
    SASL_TEXT,
    STDIN,
    UNREADABLE,
    WRONG_USE,
    Loaded,
    UnreadableError,
    cannot_be_read,
    load,
    load_files,
    read_text,
)
from policy.cli.style import is_colored
from policy.cli.trees import TreeError, is_sasl_file, policy_files_of, policy_folders_below, routers_below
from policy.files.positioned_json import NotJson, parse
from policy.files.redaction import lines_without_secrets, without_secrets
from policy.lint.configuration import ConfigurationError, LintConfiguration, read_configuration
from policy.lint.findings import Finding, Level, PolicyText
from policy.lint.ignoring import fingerprints, with_levels, without_known
from policy.lint.mending import harm
from policy.lint.places import mended
from policy.lint.reports import FOR_PEOPLE, FORMATS, Report, fixable
from policy.lint.rules import RULES, check_all, check_fleet
from policy.printing import printable
from schemas.versions import product_version

CONFIGURATION = "qdpolicy.toml"

DESCRIPTION = """\
Look for mistakes in policy files, the JSON files of a router's policyDir, and in router configurations (.conf).

A configuration (.conf or .json) stands for itself and its policyDir. A folder stands for the configurations in it and
below it, and for the *.json files of each folder that none of them names, which one router loads together. No host name
is looked up, and nothing is changed without --fix. With --fleet the configurations are those of the routers of one
network.
"""
EPILOG = """\
exit status:
  0  nothing at or above --fail-level was found; with --fix: nothing is left of it; with --diff: nothing to fix
  1  something was, or is left; with --diff: there is something to fix
  2  the command line or the configuration file is wrong
  3  a file could not be read or written, or is no policy; what is wrong with it is shown, the others are still checked

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
    paths_help = "a policy file, a router's configuration, or a folder of them; - is standard input"
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help=paths_help)
    parser.add_argument("--format", choices=tuple(FORMATS), default="text", help="default: text")
    explain_help = "say with every finding why, not only with the first one of its rule"
    parser.add_argument("--explain", action="store_true", help=explain_help)
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
        type=rule_id,
        help="leave out a rule; may be given several times",
    )
    select_help = "only these rules: an id, or a family such as security; may be given several times"
    parser.add_argument("--select", metavar="ID", action="append", default=[], type=rule_or_family, help=select_help)
    parser.add_argument("--config", metavar="FILE", type=Path, help=f"default: {CONFIGURATION}, if it is there")
    parser.add_argument("--baseline", metavar="FILE", type=Path, help="leave out the findings recorded there")
    parser.add_argument("--write-baseline", metavar="FILE", type=Path, help="record the findings, and succeed")
    fleet_help = "the configurations are those of one network: also look at them beside each other"
    parser.add_argument("--fleet", action="store_true", help=fleet_help)
    add_at_option(parser, "for rules that ask for the time: as if it were this (default: now)")
    changing = parser.add_mutually_exclusive_group()
    changing.add_argument(
        "--fix",
        action="store_true",
        help="make the fixes that keep what the policy permits; the report is about what is left",
    )
    changing.add_argument("--diff", action="store_true", help="show the fixes, and change nothing")
    parser.add_argument(
        "--unsafe", action="store_true", help="with --fix or --diff: also those that change what it permits"
    )
    parser.set_defaults(run=run)


@without_collector
def run(options: argparse.Namespace) -> int:
    if options.fix and STDIN in map(str, options.paths):
        print("qdpolicy: standard input cannot be mended: --diff shows the fixes", file=sys.stderr)
        return WRONG_USE
    try:
        configuration = _configuration(options.config)
        known = _baseline(options.baseline or configuration.baseline)
    except ConfigurationError as error:
        print(f"qdpolicy: {printable(str(error))}", file=sys.stderr)
        return WRONG_USE
    report = _checked(options, configuration)
    if options.diff:
        return _show_fixes(report, options)
    status = CLEAN
    if options.fix:
        status = _mend(report, options)
        report = _checked(options, configuration)
    if options.write_baseline is not None:
        marks = sorted(set(fingerprints(report.findings)))
        text = json.dumps({"version": 1, "findings": marks}, indent=2) + "\n"
        status = max(status, written(options.write_baseline, text))
        _show_problems(report)
        return UNREADABLE if report.problems else status
    stale = set(known) - set(fingerprints(report.findings))
    if stale and not report.problems:
        text = f"{len(stale)} of {len(known)} findings in the baseline are gone: write it anew with --write-baseline"
        print(f"qdpolicy: {text}", file=sys.stderr)
    report = replace(report, findings=without_known(report.findings, known))
    output = FORMATS[options.format](report)
    if options.output is not None:
        status = max(status, written(options.output, output))
    else:
        print(output, end="")
    if report.problems or status != CLEAN:
        return UNREADABLE
    fail_level = Level[options.fail_level.upper()] if options.fail_level else configuration.fail_level
    return FINDINGS if any(finding.level >= fail_level for finding in report.findings) else CLEAN


def _checked(options: argparse.Namespace, configuration: LintConfiguration) -> Report:
    """Returns the findings of all paths. One path is the policy of one router."""
    findings: list[Finding] = []
    whole = Loaded()
    now = time.time() if options.at is None else options.at
    selected = {id_ for ids in options.select for id_ in ids} or {rule.ID for rule in RULES}
    ignored = (*options.ignore, *configuration.ignored, *(rule.ID for rule in RULES if rule.ID not in selected))
    routers: list[PolicyText] = []
    with progress() as watch:
        for loaded in _units(options, whole, partial(watch, "reading files")):
            sasl = sasl_text(loaded.entities, next(iter(loaded.texts), ""))
            watched = partial(watch, "rules checked")
            found = check_all(tuple(loaded.entities), ignored, loaded.texts, now, watched, sasl)
            findings += with_levels(found, configuration.levels)
            whole.problems += loaded.problems
            whole.texts.update(loaded.texts)
            routers.append(PolicyText(entities=tuple(loaded.entities)))
        if options.fleet:
            findings += with_levels(check_fleet(tuple(routers), ignored, whole.texts), configuration.levels)
    return Report(
        findings=configuration.without_ignored_paths(dict.fromkeys(findings)),
        problems=tuple(whole.problems),
        texts=whole.texts,
        explains_all=options.explain,
        is_colored=options.output is None and is_colored(sys.stdout),
        rules_url=configuration.rules_url,
        version=product_version(),
    )


Watch = Callable[[Sequence[Path]], Iterable[Path]]


def _units(options: argparse.Namespace, whole: Loaded, watch: Watch) -> Iterator[Loaded]:
    """Yields the files that each router, or each folder of policy files, reads together.

    A fault is added to `whole`.
    """
    for path in options.paths:
        try:
            if path.is_dir():
                yield from _units_below(path, whole, watch, is_fleet=options.fleet)
            elif is_sasl_file(path):
                print(printable(f"{path}: {SASL_TEXT}"), file=sys.stderr)
            else:
                yield load(path, watch)
        except TreeError as error:
            whole.problems.append((str(path), cannot_be_read(str(error))))


def _units_below(folder: Path, whole: Loaded, watch: Watch, *, is_fleet: bool) -> Iterator[Loaded]:
    """Yields the same for the routers and folders below a folder. Raises TreeError."""
    read: set[str] = set()
    routers = routers_below(folder)
    for file in routers:
        loaded = load(file, watch)
        read.update(loaded.texts)
        yield loaded
    if is_fleet:
        if not routers:
            why = "there is no configuration of a router in this folder or below it"
            whole.problems.append((str(folder), cannot_be_read(why)))
        return
    folders = policy_folders_below(folder)
    if not routers and folders in ([], [folder]):
        yield load(folder, watch)  # every *.json file in it must be a policy
        return
    for each in folders:
        files = [file for file in policy_files_of(each) if str(file) not in read]
        loaded = Loaded()
        load_files(watch(files), loaded, are_policy=True)
        if files:
            yield loaded


def _show_fixes(report: Report, options: argparse.Namespace) -> int:
    changed = mended(report.findings, report.texts, is_unsafe_allowed=options.unsafe)
    _show_problems(report)
    if not changed and (left := fixable(report)):
        print(f"qdpolicy: no fix is safe{left}", file=sys.stderr)
    status = UNREADABLE if report.problems else CLEAN
    for file, after in changed.items():
        if (problem := harm(file, report.texts[file], after.text, is_unsafe=options.unsafe)) is not None:
            print(printable(f"{file}: not changed, {problem}"))
            status = UNREADABLE
        else:
            print("\n".join(map(printable, _difference(file, report.texts[file], after.text))))
    return status or (FINDINGS if changed else CLEAN)


def _mend(report: Report, options: argparse.Namespace) -> int:
    """Makes the fixes, and prints which. Returns the exit status, apart from the remaining findings."""
    status = CLEAN
    # Programs that read standard output get only the report.
    told = sys.stdout if options.format in FOR_PEOPLE and options.output is None else sys.stderr
    for file, after in mended(report.findings, report.texts, is_unsafe_allowed=options.unsafe).items():
        if (problem := harm(file, report.texts[file], after.text, is_unsafe=options.unsafe)) is not None:
            print(printable(f"{file}: not changed, {problem}"), file=told)
            status = UNREADABLE
        elif (failed := written(Path(file), after.text)) != CLEAN:
            status = failed
        else:
            for finding in after.findings:
                print(printable(f"{file}:{finding.line}:{finding.column}: {_deed(finding)}"), file=told)
    return status


def _deed(finding: Finding) -> str:
    fix = finding.fix
    assert fix is not None
    old, new = (without_secrets(text) for text in (fix.old, fix.new))
    return f"mended {finding.rule}: {old!r} is {new!r} now"


def _show_problems(report: Report) -> None:
    for file, problem in report.problems:
        print(printable(f"{file}:{problem.line}:{problem.column}: invalid: {problem.text}"))


def _difference(file: str, before: str, after: str) -> Iterator[str]:
    was, is_ = lines_without_secrets(before), lines_without_secrets(after)
    yield from unified_diff(was, is_, f"a/{file}", f"b/{file}", lineterm="")


def _configuration(path: Path | None) -> LintConfiguration:
    file = Path(CONFIGURATION) if path is None else path
    try:
        return read_configuration(tomllib.loads(file.read_bytes().decode("utf-8-sig")))
    except FileNotFoundError:
        if path is None:
            return LintConfiguration()
        raise ConfigurationError(f"{file} cannot be read: there is no such file") from None
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise ConfigurationError(f"{file}: it is nested too deeply") from None
    except (ValueError, ConfigurationError) as error:
        raise ConfigurationError(f"{file}: {error}") from None


def _baseline(path: Path | str | None) -> Sequence[str]:
    if path is None:
        return ()
    try:
        recorded = parse(read_text(Path(path)))
    except UnreadableError as error:
        raise ConfigurationError(f"baseline {path} cannot be read: {error}") from None
    except NotJson:
        raise ConfigurationError(f"baseline {path} is none: write one with --write-baseline") from None
    if recorded.problems:
        problem = recorded.problems[0]
        raise ConfigurationError(f"baseline {path}:{problem.line}:{problem.column}: {problem.text}")
    match recorded.value:
        case {"version": 1, "findings": list() as marks}:
            return [str(mark) for mark in marks]
        case _:
            raise ConfigurationError(f"baseline {path} is none: write one with --write-baseline")
