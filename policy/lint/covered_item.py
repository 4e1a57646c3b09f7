"""An item of an address list allows only what the others allow anyway.

That is decided exactly, for every user: the set of addresses the item allows is part of what the others allow together.
Remove it, or, if it was meant to be the narrower rule, remove the wide one that makes it pointless.
"""

from collections.abc import Iterator

from policy.analysis import covering_items
from policy.automata import TooComplexError
from policy.groups import ADDRESS_KEYS
from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL017"
TITLE = "item that adds nothing"
FAMILY = Family.REACHABILITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        for key in ADDRESS_KEYS:
            remaining = list(group.items(key))
            if len(remaining) < 2:
                continue
            for item in group.items(key):
                others = [other for other in remaining if other != item]
                if (covering := _covering(key, item, others)) is None:
                    continue
                # Of two items that mean the same only one is too many.
                remaining = others
                listed = ", ".join(f"'{other}'" for other in covering)
                text = f"'{item}' allows nothing that {listed} does not: remove it"
                yield group.finding(ID, Level.NOTE, text, key, About(item=item))


def _covering(key: str, item: str, others: list[str]) -> tuple[str, ...] | None:
    try:
        return covering_items(key, item, others)
    except TooComplexError:
        return None
