"""Findings that a reviewer has accepted: comments in the policy, and baselines.

Pure. A comment applies to the value that begins on the next line without a comment, and to everything inside it. In a
`.conf` file a comment after a value applies to its own line.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from policy.lint.findings import Finding, Level

UNUSED_ID = "PAL054"
_COMMENT = re.compile(r"#\s*qdpolicy:\s*(.*)$")
_IGNORE = re.compile(r"ignore\[([^\]]*)\]\s*(.*)")
_ID = re.compile(r"PAL\d{3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoreComment:
    """One ignore comment.

    line    of the comment, 1-based
    target  the line to which it applies
    problem why it cannot be used, "" if it can
    """

    line: int
    target: int
    ids: tuple[str, ...] = ()
    problem: str = ""


def comments_in(text: str) -> Iterator[IgnoreComment]:
    """Yields the ignore comments of a file."""
    if "qdpolicy:" not in text:
        return
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        found = _COMMENT.search(line)
        if found is None:
            continue
        target = number
        if line.lstrip().startswith("#"):
            target += 1
            while target <= len(lines) and (not lines[target - 1].strip() or lines[target - 1].lstrip()[0] == "#"):
                target += 1
        ignored = _IGNORE.fullmatch(found[1].strip())
        ids = tuple(part.strip() for part in ignored[1].split(",")) if ignored is not None else ()
        if ignored is None:
            problem = f"'{found[1].strip()}' is not understood"
        elif wrong := [id_ for id_ in ids if _ID.fullmatch(id_) is None]:
            problem = f"'{wrong[0]}' is no id of a rule"
        else:
            problem = "" if ignored[2].strip() else "the reason is missing"
        yield IgnoreComment(line=number, target=target, ids=ids, problem=problem)


def without_ignored(
    findings: Iterable[Finding], texts: Mapping[str, str], sought: Collection[str]
) -> tuple[Finding, ...]:
    """Returns the findings that no comment ignores, and a finding for every comment that ignores none.

    sought  ids of the rules that ran: comments about other rules are not reported
    """
    comments = {file: [each for each in comments_in(text) if not each.problem] for file, text in texts.items()}
    used: set[tuple[str, int, str]] = set()
    kept: list[Finding] = []
    for finding in findings:
        answers = [
            comment
            for comment in comments.get(finding.file, ())
            if finding.rule in comment.ids and (finding.line == comment.target or comment.target in finding.within)
        ]
        used.update((finding.file, comment.line, finding.rule) for comment in answers)
        if not answers:
            kept.append(finding)
    for file, found in comments.items():
        for comment in found:
            for id_ in comment.ids:
                if (file, comment.line, id_) not in used and {id_, UNUSED_ID} <= set(sought):
                    text = f"there is no finding of {id_} to ignore here: remove the comment"
                    kept.append(Finding(rule=UNUSED_ID, level=Level.NOTE, file=file, line=comment.line, text=text))
    return tuple(kept)


def fingerprints(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Returns the identity of each finding across runs: its rule and words, not its place in the file."""
    counts: dict[str, int] = {}
    found = []
    for finding in findings:
        text = f"{finding.rule}\0{finding.text}"
        counts[text] = counts.get(text, 0) + 1
        found.append(hashlib.sha256(f"{text}\0{counts[text]}".encode()).hexdigest()[:32])
    return tuple(found)


def without_known(findings: Sequence[Finding], baseline: Collection[str]) -> tuple[Finding, ...]:
    """Returns the findings whose fingerprint is not in the baseline."""
    known = frozenset(baseline)
    return tuple(finding for finding, mark in zip(findings, fingerprints(findings), strict=True) if mark not in known)


def with_levels(findings: Iterable[Finding], levels: Mapping[str, Level]) -> tuple[Finding, ...]:
    """Returns the findings with the levels that the project has chosen for their rules."""
    return tuple(replace(finding, level=levels.get(finding.rule, finding.level)) for finding in findings)
