"""Lint findings for a project with open files, as plain values for the editor.

A request and its answer are plain values, because two processes exchange them:

request   {"file": name, "buffers": {name: text}, "encoding": "utf-16", "roots": [folder], "now": seconds}
answer    {"files": {name: [diagnostic]}, "policy": {...}, "names": {...}, "problem": text or ""}
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from policy.cli.sasl import sasl_text
from policy.cli.sources import Loaded, load_file
from policy.editor.positions import Positions, with_plain_line_ends
from policy.editor.projects import lint_configuration, load_project
from policy.files.positioned_json import Problem
from policy.lint.findings import Finding, Level, PolicyText
from policy.lint.ignoring import with_levels, without_known
from policy.lint.places import fix_offset
from policy.lint.rules import check_all

# Limits of what an editor can show for one file, and of the names that it offers.
MAX_DIAGNOSTICS: Final = 500
MAX_NAMES: Final = 1_000
_MAX_WORD_CHARACTERS: Final = 200
_WORD: Final = re.compile(r'"[^"\n]*"|[^\s:,{]+')


class Checker:
    """Checks one project after another. Remembers the last readable text of each open file."""

    def __init__(self) -> None:
        self._readable: dict[str, str] = {}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answer to a request, in the forms above."""
        file, buffers, encoding = str(request["file"]), request["buffers"], str(request["encoding"])
        loaded = load_project(file, buffers)
        unreadable = {name for name, _ in loaded.problems}
        self._remember(loaded, buffers)
        for name in sorted(unreadable & self._readable.keys()):
            # So that other files get no errors because this one is incomplete at the moment.
            earlier = Loaded(buffers={name: self._readable[name]})
            load_file(Path(name), earlier)
            loaded.entities += earlier.entities
        configuration, known, problem = lint_configuration(file, request["roots"])
        found = check_all(
            tuple(loaded.entities),
            configuration.ignored,
            loaded.texts,
            float(request["now"]),
            sasl=sasl_text(loaded.entities, next(iter(loaded.texts), "")),
        )
        found = configuration.without_ignored_paths(found)
        found = without_known(with_levels(found, configuration.levels), known)
        files = {
            name: _diagnostics(name, loaded, found, encoding, is_readable=name not in unreadable)
            for name in dict.fromkeys((file, *loaded.texts, *unreadable))
        }
        return {
            "files": files,
            "policy": _policy(loaded),
            "names": _names(loaded),
            "problem": problem.text if problem is not None else "",
        }

    def _remember(self, loaded: Loaded, buffers: Mapping[str, str]) -> None:
        self._readable = {name: text for name, text in self._readable.items() if name in buffers}
        self._readable |= {name: text for name, text in loaded.texts.items() if name in buffers}


def _diagnostics(
    name: str, loaded: Loaded, found: Sequence[Finding], encoding: str, *, is_readable: bool
) -> list[dict[str, Any]]:
    text = with_plain_line_ends(loaded.texts.get(name, loaded.buffers.get(name, "")))
    positions = Positions(text, encoding)
    problems = (_of_problem(problem, positions) for file, problem in loaded.problems if file == name)
    # Findings in an earlier text are at other places now.
    findings = (_of_finding(each, positions) for each in found if each.file == name and is_readable)
    return [*islice(problems, MAX_DIAGNOSTICS), *islice(findings, MAX_DIAGNOSTICS)]


def _of_problem(problem: Problem, positions: Positions) -> dict[str, Any]:
    start = positions.place(problem.line, problem.column)
    span = _span(positions, start, _word_length(positions.text, start))
    return {"rule": "", "level": Level.ERROR.name, "text": problem.text, "instead": "", "span": span, "fix": None}


def _of_finding(finding: Finding, positions: Positions) -> dict[str, Any]:
    text = positions.text
    start = positions.place(finding.line, finding.column)
    has_item = bool(finding.item) and text.startswith(finding.item, start)
    fix = None
    if finding.fix is not None and (at := fix_offset(finding, text)) is not None:
        span = _span(positions, at, len(finding.fix.old))
        fix = {"span": span, "old": finding.fix.old, "new": finding.fix.new, "isSafe": finding.fix.is_safe}
    return {
        "rule": finding.rule,
        "level": finding.level.name,
        "text": finding.text,
        "instead": finding.instead,
        "span": _span(positions, start, len(finding.item) if has_item else _word_length(text, start)),
        "fix": fix,
    }


def _word_length(text: str, start: int) -> int:
    word = _WORD.match(text, start, start + _MAX_WORD_CHARACTERS)
    return len(word[0]) if word is not None else 1


def _span(positions: Positions, start: int, length: int) -> list[tuple[int, int]]:
    return [positions.of(start), positions.of(start + length)]


def _policy(loaded: Loaded) -> dict[str, Any]:
    """Returns the settings, beside the vhost, on which a user's rights depend.

    Empty if the configuration is not known.
    """
    if not loaded.is_configuration:
        return {}
    written = {"enableVhostPolicy": "no", **loaded.policy}
    return {key: str(written[key]) for key in ("enableVhostPolicy", "maxMessageSize") if key in written}


def _names(loaded: Loaded) -> dict[str, Any]:
    policy = PolicyText(entities=tuple(loaded.entities))
    sections: dict[str, dict[str, None]] = {}
    for entity in loaded.entities:
        if name := entity.attributes.get("hostname" if entity.type == "vhost" else "name"):
            sections.setdefault(entity.type, {})[str(name)] = None
    return {
        "groups": _first(group.name for group in policy.groups),
        "users": _first(user for group in policy.groups for user in group.items("users")),
        "sections": {type_: _first(iter(names)) for type_, names in sections.items()},
    }


def _first(names: Iterator[str]) -> list[str]:
    return list(islice(dict.fromkeys(islice(names, 100 * MAX_NAMES)), MAX_NAMES))
