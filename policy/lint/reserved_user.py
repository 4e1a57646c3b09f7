"""A group lists a user whose name the router refuses, since addresses of its own begin with it.

A user called `$management`, `_local` or `temp` may not log in, whoever vouches for the name: put in the place of
`${user}` it would make an address of the router, or reach the dynamic addresses of others. Give the user another name.
"""

from collections.abc import Iterator

from policy.addressing.lists import is_reserved
from policy.lint.findings import About, Confidence, Family, Finding, Level, PolicyText

ID = "PAL169"
TITLE = "user name that is reserved"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        for user in group.items("users"):
            if is_reserved(user):
                text = f"the user '{user}' may not log in: addresses of the router begin with the name"
                about = About(item=user, confidence=Confidence.CERTAIN)
                yield group.finding(ID, Level.WARNING, text, "users", about)
