"""Makes untrusted text safe to print: a terminal, a log or a reviewer sees it, but it has no effect.

Pure. qdstat, qdmanage and qdpolicy pass every text of a peer or a policy file through `printable` before they print it.
"""

import re
from typing import Final

# Characters that Unicode counts as printable but that are invisible: fillers, joiners, variation selectors. Two names
# that differ only in one of them look the same. Directional marks and zero-width spaces do not count as printable.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def printable(text: str, kept: str = "") -> str:
    """Returns `text` with control characters, directional marks and invisible characters as escapes.

    For example `\\x1b`, `\\u202e`.

    kept  characters that stay, such as line ends in a text of several lines
    """
    if text.isprintable() and not _INVISIBLE.search(text):
        return text
    return "".join(
        character if character in kept or _is_visible(character) else ascii(character)[1:-1] for character in text
    )


def _is_visible(character: str) -> bool:
    return character.isprintable() and not _INVISIBLE.match(character)
