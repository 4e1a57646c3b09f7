"""An item of an address list allows only addresses that the others allow anyway, or denies those they deny.

That is decided exactly, for every user: the addresses of the item are part of those the others have together.
Remove it, or, if it was meant to be the narrower rule, remove the wide one that makes it pointless.
"""

from collections.abc import Iterator
from typing import Final

from policy.analysis.effort import RULE_STEPS, Effort, TooComplexError
from policy.analysis.superfluous import superfluous_items
from policy.groups import ADDRESS_KEYS, DENY_KEYS
from policy.lint.findings import About, Family, Finding, Level, PolicyText

# What an item takes, as measured; see effort.py.
ITEM_STEPS: Final = 3000

ID = "PAL017"
TITLE = "item that adds nothing"
FAMILY = Family.REACHABILITY


def check(policy: PolicyText) -> Iterator[Finding]:
    effort = Effort(RULE_STEPS)
    for group in policy.groups:
        for key in (*ADDRESS_KEYS, *DENY_KEYS):
            items = group.items(key)
            if len(items) < 2:
                continue
            try:
                with effort.share(ITEM_STEPS * len(items)) as share:
                    for item, covering in superfluous_items(key, items, share):
                        listed = ", ".join(f"'{other}'" for other in covering)
                        verb = "denies" if key in DENY_KEYS else "allows"
                        text = f"'{item}' {verb} nothing that {listed} does not: remove it"
                        yield group.finding(ID, Level.NOTE, text, key, About(item=item))
            except TooComplexError as error:
                yield group.finding(ID, Level.NOTE, error.about("each item adds something"), key)
