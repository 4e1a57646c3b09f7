"""Where exactly in a file a finding points to, the line to show for it, and what its fix changes.

Pure. A rule knows the attribute; here the item is looked up in the text behind it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from policy.lint.findings import Finding

# How far behind the beginning of an attribute its value is looked through.
_MAX_VALUE_CHARACTERS = 100_000
MAX_SHOWN_CHARACTERS = 160
_SECRET = re.compile(r"(?i)([\"']?\w*(?:password|secret|passphrase)\w*[\"']?\s*:\s*).*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """The line a finding is about. start, length  what to underline, 0-based, in characters of `text`"""

    text: str
    start: int
    length: int


def placed(findings: Iterable[Finding], texts: Mapping[str, str]) -> tuple[Finding, ...]:
    """The findings, those about an item with the place of the item."""
    return tuple(_placed(finding, texts.get(finding.file)) for finding in findings)


def _placed(finding: Finding, text: str | None) -> Finding:
    if text is None or not finding.item:
        return finding
    begin = _offset(text, finding.line, finding.column)
    pattern = rf"(?<![^\s\",:\[]){re.escape(finding.item)}(?![^\s\",:\]}}])"
    found = re.compile(pattern).search(text, begin, begin + _MAX_VALUE_CHARACTERS)
    if found is None:
        return finding
    line = text.count("\n", 0, found.start()) + 1
    column = found.start() - text.rfind("\n", 0, found.start())
    return replace(finding, line=line, column=column)


def excerpt(finding: Finding, text: str | None) -> Excerpt | None:
    """The line of a finding; what looks like a password in it is left out."""
    if text is None:
        return None
    lines = text.split("\n")
    if not 1 <= finding.line <= len(lines):
        return None
    line = lines[finding.line - 1].rstrip("\r")
    start = min(finding.column - 1, len(line))
    rest = re.match(r'"[^"]*"|[^\s:,{]+', line[start:])
    length = len(finding.item) if finding.item and line.startswith(finding.item, start) else len(rest[0]) if rest else 1
    shown = without_secrets(line)
    cut = max(0, start - MAX_SHOWN_CHARACTERS // 2) if len(shown) > MAX_SHOWN_CHARACTERS else 0
    shown = shown[cut : cut + MAX_SHOWN_CHARACTERS].replace("\t", " ")
    return Excerpt(text=shown, start=start - cut, length=max(1, min(length, len(shown) - start + cut)))


def without_secrets(line: str) -> str:
    """The line, without what looks like a password."""
    return _SECRET.sub(r"\1…", line)


def fixed(findings: Iterable[Finding], texts: Mapping[str, str], *, is_unsafe_allowed: bool) -> dict[str, str]:
    """The texts that change when the findings' fixes are made. Fixes that would meet each other are made once."""
    edits: dict[str, list[tuple[int, str, str]]] = {}
    for finding in findings:
        fix, text = finding.fix, texts.get(finding.file)
        if fix is None or text is None or not (fix.is_safe or is_unsafe_allowed):
            continue
        at = _offset(text, finding.line, finding.column)
        at += text.startswith('"', at) and not fix.old.startswith('"')
        if text.startswith(fix.old, at):
            edits.setdefault(finding.file, []).append((at, fix.old, fix.new))
    changed = {}
    for file, found in edits.items():
        text = texts[file]
        end = len(text)
        for at, old, new in sorted(set(found), reverse=True):
            if at + len(old) <= end:
                text = f"{text[:at]}{new}{text[at + len(old) :]}"
                end = at
        changed[file] = text
    return changed


def _offset(text: str, line: int, column: int) -> int:
    at = 0
    for _ in range(line - 1):
        at = text.find("\n", at) + 1
        if at == 0:
            return len(text)
    return at + column - 1
