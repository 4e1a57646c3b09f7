"""Finds the exact place of a finding in a file, the line to show for it, and the text that its fix changes.

Pure. A rule knows the attribute. The item is looked up here, in the text after it.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from policy.files.redaction import without_secrets
from policy.lint.findings import Finding

# Characters after the beginning of an attribute that are searched for an item.
_MAX_VALUE_CHARACTERS = 100_000
MAX_SHOWN_CHARACTERS = 160
_WORD = re.compile(r'"[^"]*"|[^\s:,{]+')


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """The line of a finding.

    start, length  the part to underline, 0-based, in characters of `text`
    """

    text: str
    start: int
    length: int


def placed(findings: Iterable[Finding], texts: Mapping[str, str]) -> tuple[Finding, ...]:
    """Returns the findings. Findings about an item get the place of the item."""
    return tuple(_placed(finding, texts.get(finding.file)) for finding in findings)


def _placed(finding: Finding, text: str | None) -> Finding:
    if text is None or not finding.item:
        return finding
    begin = _offset(text, finding.line, finding.column)
    pattern = rf"(?<![^\s\",:\[]){re.escape(finding.item)}(?![^\s\",:\]}}])"
    found = re.compile(pattern).search(text, begin, begin + _MAX_VALUE_CHARACTERS)
    if found is None:
        return finding
    starts = _line_starts(text)
    line = bisect_right(starts, found.start())
    return replace(finding, line=line, column=found.start() - starts[line - 1] + 1)


def excerpt(finding: Finding, text: str | None) -> Excerpt | None:
    """Returns the line of a finding, without text that may be a password."""
    if text is None or not 1 <= finding.line <= len(_line_starts(text)):
        return None
    line, shown = _line(text, finding.line)
    start = min(finding.column - 1, len(line))
    rest = _WORD.match(line, start)
    length = len(finding.item) if finding.item and line.startswith(finding.item, start) else len(rest[0]) if rest else 1
    cut = max(0, start - MAX_SHOWN_CHARACTERS // 2) if len(shown) > MAX_SHOWN_CHARACTERS else 0
    shown = shown[cut : cut + MAX_SHOWN_CHARACTERS].replace("\t", " ")
    return Excerpt(text=shown, start=start - cut, length=max(1, min(length, len(shown) - start + cut)))


# A policy of thousands of vhosts may be one line, which must not be scanned for each of its findings.
@lru_cache(maxsize=64)
def _line(text: str, number: int) -> tuple[str, str]:
    """Returns a line as it is, and as it may be shown."""
    starts = _line_starts(text)
    end = starts[number] if number < len(starts) else len(text)
    line = text[starts[number - 1] : end].rstrip("\r\n")
    return line, without_secrets(line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """A text after fixes, and the findings that they fix."""

    text: str
    findings: tuple[Finding, ...]


def mended(findings: Iterable[Finding], texts: Mapping[str, str], *, is_unsafe_allowed: bool) -> dict[str, Mended]:
    """Returns the texts that change when the findings' fixes are made. Of fixes that overlap, only one is made."""
    edits: dict[str, dict[tuple[int, str, str], Finding]] = {}
    for finding in findings:
        fix, text = finding.fix, texts.get(finding.file)
        if fix is None or text is None or not (fix.is_safe or is_unsafe_allowed):
            continue
        if (at := fix_offset(finding, text)) is not None:
            edits.setdefault(finding.file, {}).setdefault((at, fix.old, fix.new), finding)
    changed = {}
    for file, found in edits.items():
        text = texts[file]
        pieces: list[str] = []
        made: list[Finding] = []
        end = len(text)
        for (at, old, new), finding in sorted(found.items(), key=lambda edit: edit[0], reverse=True):
            if at + len(old) <= end:
                pieces += [text[at + len(old) : end], new]
                made.append(finding)
                end = at
        changed[file] = Mended(text="".join([text[:end], *reversed(pieces)]), findings=tuple(reversed(made)))
    return changed


def fix_offset(finding: Finding, text: str) -> int | None:
    """Returns the place of the `old` text of the finding's fix. None if the text is not there."""
    if finding.fix is None:
        return None
    old, at = finding.fix.old, _offset(text, finding.line, finding.column)
    at += text.startswith('"', at) and not old.startswith('"')
    return at if text.startswith(old, at) else None


@lru_cache(maxsize=16)
def _line_starts(text: str) -> tuple[int, ...]:
    """Returns the offsets at which lines begin. They are computed once per file, however many findings it has."""
    return (0, *(match.end() for match in re.finditer("\n", text)))


def _offset(text: str, line: int, column: int) -> int:
    starts = _line_starts(text)
    return starts[line - 1] + column - 1 if line <= len(starts) else len(text)
