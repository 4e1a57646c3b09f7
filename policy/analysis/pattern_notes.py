"""The C router's log lines on loading patterns: patterns that it rewrites, and patterns that occur twice.

Pure. Source: docs/spec/policy-and-auth.md §2.6.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from policy.addressing.lists import PatternRules
from policy.addressing.patterns import normal_form, normalise_tokens, split_tokens
from policy.ruleset import Ruleset
from policy.vhosts import Vhost


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A line for the log."""

    module: Literal["DEFAULT", "ERROR"]
    level: Literal["notice", "error"]
    text: str


def pattern_notes(ruleset: Ruleset, vhosts: Iterable[Vhost]) -> Iterator[Note]:
    """Yields the notes on these vhosts of the ruleset."""
    for vhost in vhosts:
        if ruleset.uses_name_patterns:
            yield from _rewritten((vhost.name, *vhost.aliases))
        for group in vhost.groups.values():
            for rules in (group.sources, group.targets):
                if isinstance(rules, PatternRules):
                    yield from _rewritten(rules.items)
                    yield from _repeated(rules.items)


def _rewritten(patterns: Iterable[str]) -> Iterator[Note]:
    for pattern in patterns:
        tokens = split_tokens(pattern)
        plain = normalise_tokens(tokens)
        if plain != tuple(tokens):
            separator = "." if "." in pattern else "/"
            text = f"configured pattern '{pattern}' optimized and re-written to '{separator.join(plain)}'"
            yield Note(module="DEFAULT", level="notice", text=text)


def _repeated(patterns: Iterable[str]) -> Iterator[Note]:
    seen: set[str] = set()
    for pattern in patterns:
        form = normal_form(split_tokens(pattern))
        if form in seen:
            text = f"Already exists: Duplicate pattern '{pattern}' not added to parse tree"
            yield Note(module="ERROR", level="error", text=text)
        seen.add(form)
