"""A denial denies nothing.

No item of the group allows any of the addresses it names, to any user: that is decided exactly. Mind that `a/b` and
`a.b` are two addresses to a denial, and one to a pattern. Remove it, or write the address that was meant; as a second
line it does no harm.
"""

from collections.abc import Iterator
from contextlib import suppress

from policy.analysis.automata import TooComplexError
from policy.analysis.denials import idle_denials
from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL065"
TITLE = "denial of what is not allowed"
FAMILY = Family.REACHABILITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        for key, items, denied_by, denied in group.denials():
            with suppress(TooComplexError):
                for item in idle_denials(key, items, denied):
                    text = f"'{item}' denies nothing: no item of '{key}' allows it"
                    yield group.finding(ID, Level.NOTE, text, denied_by, About(item=item))
