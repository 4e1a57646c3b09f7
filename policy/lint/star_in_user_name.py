"""A group lists a user with a `*` in the name.

Names are compared exactly, and only an item that is `*` and nothing else stands for every user: `ann*` is one user of
that name. In qdrouterd 1.20 the `*` of such a name is a wildcard wherever `${user}` puts it at the end of an address.
If all whose names begin alike are meant, let the authenticator put them into a group (`authenticatorGroups`).
"""

from collections.abc import Iterator

from policy.lint.findings import About, Confidence, Family, Finding, Level, PolicyText
from policy.vhosts import ANY_USER

ID = "PAL059"
TITLE = "wildcard in a user's name"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        for user in group.items("users"):
            if ANY_USER in user and user != ANY_USER:
                text = f"'{user}' is one user of exactly that name, not all whose names begin so"
                about = About(item=user, confidence=Confidence.LIKELY)
                yield group.finding(ID, Level.WARNING, text, "users", about)
