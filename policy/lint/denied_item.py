"""An item of an address list is denied altogether.

`denySources` and `denyTargets` hold against whatever the group allows, so that the item has no effect. That is decided
exactly, for every user. Remove the item, or deny less.
"""

from collections.abc import Iterator
from typing import Final

from policy.addressing.lists import denied_items
from policy.analysis.denials import resolve_denials
from policy.analysis.effort import RULE_STEPS, Effort, TooComplexError
from policy.lint.findings import About, Family, Finding, Level, PolicyText

# What an item takes, as measured; see effort.py.
ITEM_STEPS: Final = 6000

ID = "PAL064"
TITLE = "item that is denied altogether"
FAMILY = Family.REACHABILITY


def check(policy: PolicyText) -> Iterator[Finding]:
    effort = Effort(RULE_STEPS)
    for group in policy.groups:
        for key, items, denied_by, denied in group.denials():
            try:
                with effort.share(ITEM_STEPS * (len(items) + len(denied))) as share:
                    found = resolve_denials(key, items, denied_items(denied), share).denied
            except TooComplexError as error:
                text = error.about(f"'{denied_by}' leaves something of each item")
                yield group.finding(ID, Level.NOTE, text, key)
            else:
                for item in found:
                    text = f"'{item}' is denied altogether by '{denied_by}': remove it, or deny less"
                    yield group.finding(ID, Level.WARNING, text, key, About(item=item))
