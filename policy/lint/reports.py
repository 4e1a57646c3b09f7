"""Writes findings as text, concise text, JSON, SARIF 2.1.0, GitHub annotations and JUnit.

Pure. The policy's texts may come from an attacker: none of them reaches a terminal or a pipeline as a command.
Sources: SARIF 2.1.0 (OASIS); workflow commands of GitHub Actions.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from xml.sax.saxutils import escape, quoteattr

from policy.files.positioned_json import Problem
from policy.lint.findings import Finding, Level, LintRule
from policy.lint.ignoring import fingerprints
from policy.lint.pages import HOME, RULES_URL, url_of
from policy.lint.places import excerpt
from policy.lint.rules import RULES
from policy.printing import printable

JSON_VERSION: Final = 1
SARIF_SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_SARIF_LEVELS: Final = {Level.NOTE: "note", Level.WARNING: "warning", Level.ERROR: "error"}
_GITHUB_LEVELS: Final = {Level.NOTE: "notice", Level.WARNING: "warning", Level.ERROR: "error"}
_COLORS: Final = {Level.NOTE: "36", Level.WARNING: "33", Level.ERROR: "31"}
_BOLD: Final = "1"
_BY_ID: Final = {rule.ID: rule for rule in RULES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The content of a report, and how to write it.

    findings      sorted, with their places
    problems      (file, why it is unreadable)
    texts         file -> text, for the excerpts
    explains_all  explain every finding, not only the first one of its rule
    is_colored    with escape sequences for a terminal
    rules_url     of the pages of the rules, with a final slash
    version       of this program, "" if it is not known
    """

    findings: Sequence[Finding]
    problems: Sequence[tuple[str, Problem]] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    explains_all: bool = False
    is_colored: bool = False
    rules_url: str = RULES_URL
    version: str = ""


def as_text(report: Report) -> str:
    """Returns a report for people: the line, the reason, the remedy, and the number of findings at the end."""
    style = _Style(report)
    lines = [style.problem(file, problem) for file, problem in report.problems]
    explained: set[str] = set()
    for finding in report.findings:
        is_first = report.explains_all or finding.rule not in explained
        explained.add(finding.rule)
        lines += _text_lines(finding, report, style, is_explained=is_first)
    lines.append(summary(report) if lines else "No findings")
    return "".join(f"{line}\n" for line in lines)


def as_concise(report: Report) -> str:
    """Returns a report with one line for each finding."""
    style = _Style(report)
    lines = [style.problem(file, problem) for file, problem in report.problems]
    lines += [style.head(finding) for finding in report.findings]
    return "".join(f"{line}\n" for line in lines)


def summary(report: Report) -> str:
    """Returns the number of findings of each level, and the number of files."""
    counts = [
        (sum(finding.level is level for finding in report.findings), level.name.lower())
        for level in sorted(Level, reverse=True)
    ]
    counts.append((len({file for file, _ in report.problems}), "unreadable file"))
    shown = ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for count, name in counts if count)
    files = len({finding.file for finding in report.findings})
    where = f" in {files} file{'' if files == 1 else 's'}" if files else ""
    return f"{shown or 'No findings'}{where}{fixable(report)}"


def fixable(report: Report) -> str:
    """Returns the number of findings that `--fix` would fix."""
    safe = sum(finding.fix is not None and finding.fix.is_safe for finding in report.findings)
    unsafe = sum(finding.fix is not None for finding in report.findings) - safe
    if not safe and not unsafe:
        return ""
    more = f"{', ' if safe else ''}{unsafe}{' more' if safe else ''} with --fix --unsafe" if unsafe else ""
    return f" ({f'{safe} fixable with --fix' if safe else ''}{more})"


class _Style:
    """The head lines of findings.

    Texts are made printable before they are coloured, so they contain no escape sequences.
    """

    def __init__(self, report: Report) -> None:
        self._is_colored = report.is_colored

    def head(self, finding: Finding) -> str:
        place = self._in(_BOLD, printable(f"{finding.file}:{finding.line}:{finding.column}:"))
        level = self._in(_COLORS[finding.level], f"{finding.level.name.lower()} {finding.rule}:")
        return f"{place} {level} {printable(finding.text)}"

    def problem(self, file: str, problem: Problem) -> str:
        place = self._in(_BOLD, printable(f"{file}:{problem.line}:{problem.column}:"))
        return f"{place} {self._in(_COLORS[Level.ERROR], 'invalid:')} {printable(problem.text)}"

    def mark(self, finding: Finding, text: str) -> str:
        return self._in(_COLORS[finding.level], text)

    def _in(self, color: str, text: str) -> str:
        return f"\x1b[{color}m{text}\x1b[0m" if self._is_colored else text


def _text_lines(finding: Finding, report: Report, style: _Style, *, is_explained: bool) -> Iterator[str]:
    yield style.head(finding)
    if (shown := excerpt(finding, report.texts.get(finding.file))) is not None:
        number = str(finding.line)
        yield printable(f"    {number} | {shown.text}")
        yield f"    {' ' * len(number)} | {' ' * shown.start}{style.mark(finding, '^' * shown.length)}"
    if is_explained:
        yield f"    why: {printable(why(_BY_ID[finding.rule]))}"
        yield f"    see: {printable(url_of(finding.rule, report.rules_url)) or f'qdpolicy rule {finding.rule}'}"
    if finding.instead:
        yield printable(f"    instead: {finding.instead}")
    if finding.confidence != "certain":
        yield f"    confidence: {finding.confidence}"


def why(rule: LintRule) -> str:
    """Returns the explanation on the rule's page, in one line."""
    _, _, explanation = (rule.__doc__ or "").strip().partition("\n\n")
    return " ".join(explanation.split())


def as_json(report: Report) -> str:
    findings = [
        {
            "rule": finding.rule,
            "family": _BY_ID[finding.rule].FAMILY.value,
            "level": finding.level.name.lower(),
            "confidence": finding.confidence.value,
            "file": finding.file,
            "line": finding.line,
            "column": finding.column,
            "text": finding.text,
            "why": why(_BY_ID[finding.rule]),
            "url": url_of(finding.rule, report.rules_url),
            "instead": finding.instead,
            "excerpt": shown.text if (shown := excerpt(finding, report.texts.get(finding.file))) else "",
            "fix": None if finding.fix is None else {"safe": finding.fix.is_safe, "new": finding.fix.new},
            "fingerprint": mark,
        }
        for finding, mark in zip(report.findings, fingerprints(report.findings), strict=True)
    ]
    problems = [
        {"file": file, "line": problem.line, "column": problem.column, "text": problem.text}
        for file, problem in report.problems
    ]
    return json.dumps({"version": JSON_VERSION, "findings": findings, "problems": problems}, indent=2) + "\n"


def as_sarif(report: Report) -> str:
    rules = [
        {
            "id": rule.ID,
            "name": rule.TITLE,
            "shortDescription": {"text": rule.TITLE},
            "fullDescription": {"text": " ".join((rule.__doc__ or "").split())},
            # Code scanning shows it beside a result.
            "help": {"text": (rule.__doc__ or "").strip()},
            **({"helpUri": url} if (url := url_of(rule.ID, report.rules_url)) else {}),
            "properties": {"tags": [rule.FAMILY.value]},
        }
        for rule in RULES
    ]
    index = {rule.ID: number for number, rule in enumerate(RULES)}
    results: list[dict[str, Any]] = []
    for finding, mark in zip(report.findings, fingerprints(report.findings), strict=True):
        shown = excerpt(finding, report.texts.get(finding.file))
        region: dict[str, Any] = {"startLine": finding.line, "startColumn": finding.column}
        if shown is not None:
            region |= {"endColumn": finding.column + shown.length, "snippet": {"text": shown.text}}
        advice = f" Instead: {finding.instead}" if finding.instead else ""
        results.append(
            {
                "ruleId": finding.rule,
                "ruleIndex": index[finding.rule],
                "level": _SARIF_LEVELS[finding.level],
                "message": {"text": f"{finding.text}.{advice}"},
                "locations": [_location(finding.file, region)],
                "partialFingerprints": {"qdpolicy/v1": mark},
                "properties": {"confidence": finding.confidence.value},
            }
        )
    notifications = [
        {
            "level": "error",
            "message": {"text": problem.text},
            "locations": [_location(file, {"startLine": problem.line, "startColumn": problem.column})],
        }
        for file, problem in report.problems
    ]
    driver: dict[str, Any] = {"name": "qdpolicy", "rules": rules}
    if HOME:
        driver["informationUri"] = HOME
    if report.version:
        driver["version"] = report.version
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {"executionSuccessful": not notifications, "toolExecutionNotifications": notifications},
        ],
        "results": results,
    }
    return json.dumps({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _location(file: str, region: Mapping[str, Any]) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(file)}, "region": dict(region)}}


def _uri(file: str) -> str:
    """Returns the path as a URI reference. Characters that are not plain are written as %XX."""
    plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/"
    return "".join(
        character if character in plain else "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "replace"))
        for character in file.replace("\\", "/")
    )


def as_github(report: Report) -> str:
    lines = [
        _command("error", file, problem.line, problem.column, "qdpolicy", problem.text)
        for file, problem in report.problems
    ]
    for finding in report.findings:
        title = f"{finding.rule} {_BY_ID[finding.rule].TITLE}"
        text = f"{finding.text}\nInstead: {finding.instead}" if finding.instead else finding.text
        level = _GITHUB_LEVELS[finding.level]
        lines.append(_command(level, finding.file, finding.line, finding.column, title, text))
    return "".join(f"{line}\n" for line in lines)


def _command(level: str, file: str, line: int, column: int, title: str, text: str) -> str:
    """Returns a workflow command. The inserted texts cannot end it and begin another."""

    def escaped(value: str) -> str:
        return printable(value, "\n").replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def property_(value: str) -> str:
        return escaped(value).replace(":", "%3A").replace(",", "%2C")

    places = f"file={property_(file)},line={line},col={column},title={property_(title)}"
    return f"::{level} {places}::{escaped(text)}"


def as_junit(report: Report) -> str:
    """Returns one test case for each rule and file with findings, and one for each rule without."""
    cases: list[str] = []
    failures = 0
    for file, problem in report.problems:
        text = f"{problem.line}:{problem.column}: {problem.text}"
        cases.append(_case("qdpolicy", file, f"<error message={_attribute(text)}/>"))
    for rule in RULES:
        found = [finding for finding in report.findings if finding.rule == rule.ID]
        for finding in found:
            failures += 1
            message = f"{finding.file}:{finding.line}:{finding.column}: {finding.text}"
            kind = finding.level.name.lower()
            body = f'<failure type="{kind}" message={_attribute(message)}>{_xml(finding.instead)}</failure>'
            cases.append(_case(rule.ID, f"{finding.file}:{finding.line}", body))
        if not found:
            cases.append(_case(rule.ID, rule.TITLE, ""))
    counts = f'tests="{len(cases)}" failures="{failures}" errors="{len(report.problems)}"'
    body = "\n".join(f"    {case}" for case in cases)
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites {counts}>\n  <testsuite name="qdpolicy lint" {counts}>\n'
        f"{body}\n  </testsuite>\n</testsuites>\n"
    )


def _case(group: str, name: str, body: str) -> str:
    return f"<testcase classname={_attribute(group)} name={_attribute(name)}>{body}</testcase>"


def _attribute(text: str) -> str:
    return quoteattr(printable(text))


def _xml(text: str) -> str:
    return escape(printable(text))


FORMATS: Final[Mapping[str, Callable[[Report], str]]] = {
    "text": as_text,
    "concise": as_concise,
    "json": as_json,
    "sarif": as_sarif,
    "github": as_github,
    "junit": as_junit,
}
FOR_PEOPLE: Final = ("text", "concise")
