"""Decides whether policy lets a peer take the links of every address that a pattern matches.

Source: docs/spec/routing.md §16.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

from policy.addressing.address import Address, Unclear
from policy.addressing.patterns import ANY_NUMBER, ONE, split_tokens
from router.admission.connection_gate import ConnectionGate, Direction

# Limits: the words `#` in a pattern, the number of address words that one `#` is tried with, and all words of a
# pattern. Attack: patterns that take long to judge, 65 ms with two words `#` among two hundred others.
MAX_WIDE: Final = 1
MAX_WORDS: Final = 16
MAX_PATTERN_WORDS: Final = 32

_SEPARATOR: Final = re.compile(r"([./])")
# A placeholder for each word that no rule names.
_ANY_WORD: Final = "any-word-Tq8Zr3"


def may_route_links(gate: ConnectionGate) -> bool:
    """Returns True if the client may make link routes for its connection."""
    return not gate.is_denied and (gate.settings is None or gate.settings.allow_dynamic_link_routes)


def may_serve(gate: ConnectionGate, address: Address, direction: Direction) -> bool:
    """Returns True if links to the address may go to the client. It gets what they send, or gives what they receive.

    direction  of the other clients' links
    """
    settings = gate.settings
    if gate.is_denied or settings is None:
        return not gate.is_denied
    mine = settings.sources if direction == "send" else settings.targets
    return mine.judge(address).item is not None


def may_route(
    gate: ConnectionGate, resolve: Callable[[str], Address | Unclear], pattern: str, direction: Direction
) -> bool:
    """Returns True if the present settings permit the pattern. Denials are not checked here, but at each attach."""
    if not may_route_links(gate):
        return False
    if gate.settings is None:
        return True
    tokens = split_tokens(pattern)
    if tokens.count(ANY_NUMBER) > MAX_WIDE or len(tokens) > MAX_PATTERN_WORDS:
        return False
    for text in matching(pattern):
        address = resolve(text)
        if not isinstance(address, Address) or not may_serve(gate, address, direction):
            return False
    return True


def matching(pattern: str) -> Iterator[str]:
    """Returns texts that match a pattern with at most one `#`: one for each number of words that a rule can
    distinguish.
    """
    parts = _SEPARATOR.split(pattern.strip("./"))
    for count in range(MAX_WORDS + 1 if ANY_NUMBER in parts else 1):
        made = [_ANY_WORD if part == ONE else part for part in parts]
        for at, part in enumerate(parts):
            if part == ANY_NUMBER:
                made[at] = (parts[at - 1] if at else "/").join([_ANY_WORD] * count)
        if text := re.sub(r"([./])[./]+", r"\1", "".join(made)).strip("./"):
            yield from {text, text.replace("/", "."), text.replace(".", "/")}
