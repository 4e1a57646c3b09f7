"""A denial denies nothing.

No item of the group allows any of the addresses it names, to any user: that is decided exactly. Mind that `a/b` and
`a.b` are two addresses to a denial, and one to a pattern. Remove it, or write the address that was meant; as a second
line it does no harm.
"""

from collections.abc import Iterator
from typing import Final

from policy.analysis.denials import idle_denials
from policy.analysis.effort import RULE_STEPS, Effort, TooComplexError
from policy.lint.findings import About, Family, Finding, Level, PolicyText

# What an item takes, as measured; see effort.py.
ITEM_STEPS: Final = 6000

ID = "PAL065"
TITLE = "denial of what is not allowed"
FAMILY = Family.REACHABILITY


def check(policy: PolicyText) -> Iterator[Finding]:
    effort = Effort(RULE_STEPS)
    for group in policy.groups:
        for key, items, denied_by, denied in group.denials():
            try:
                with effort.share(ITEM_STEPS * (len(items) + len(denied))) as share:
                    found = idle_denials(key, items, denied, share)
            except TooComplexError as error:
                text = error.about(f"each denial denies something that '{key}' allows")
                yield group.finding(ID, Level.NOTE, text, denied_by)
            else:
                for item in found:
                    text = f"'{item}' denies nothing: no item of '{key}' allows it"
                    yield group.finding(ID, Level.NOTE, text, denied_by, About(item=item))
