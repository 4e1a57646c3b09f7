"""An item of an address list is denied altogether.

`denySources` and `denyTargets` hold against whatever the group allows, so that the item has no effect. That is decided
exactly, for every user. Remove the item, or deny less.
"""

from collections.abc import Iterator
from contextlib import suppress

from policy.addressing.lists import denied_items
from policy.analysis.automata import TooComplexError
from policy.analysis.denials import resolve_denials
from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL064"
TITLE = "item that is denied altogether"
FAMILY = Family.REACHABILITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        for key, items, denied_by, denied in group.denials():
            # A list too hard to decide is not blamed for anything.
            with suppress(TooComplexError):
                for item in resolve_denials(key, items, denied_items(denied)).denied:
                    text = f"'{item}' is denied altogether by '{denied_by}': remove it, or deny less"
                    yield group.finding(ID, Level.WARNING, text, key, About(item=item))
