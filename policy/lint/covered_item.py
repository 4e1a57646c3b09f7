"""An item of an address list allows only addresses that the others allow anyway, or denies those they deny.

That is decided exactly, for every user: the addresses of the item are part of those the others have together.
Remove it, or, if it was meant to be the narrower rule, remove the wide one that makes it pointless.
"""

from collections.abc import Iterator
from contextlib import suppress

from policy.analysis.automata import TooComplexError
from policy.analysis.superfluous import superfluous_items
from policy.groups import ADDRESS_KEYS, DENY_KEYS
from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL017"
TITLE = "item that adds nothing"
FAMILY = Family.REACHABILITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        for key in (*ADDRESS_KEYS, *DENY_KEYS):
            items = group.items(key)
            if len(items) < 2:
                continue
            for item, covering in _superfluous(key, items):
                listed = ", ".join(f"'{other}'" for other in covering)
                verb = "denies" if key in DENY_KEYS else "allows"
                text = f"'{item}' {verb} nothing that {listed} does not: remove it"
                yield group.finding(ID, Level.NOTE, text, key, About(item=item))


def _superfluous(key: str, items: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    # A list too hard to decide is not blamed for anything.
    with suppress(TooComplexError):
        yield from superfluous_items(key, items)
