"""Two users of one vhost differ only in upper and lower case.

They are two users: names are compared exactly. If one person is meant, the second spelling has rights
nobody looks after.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Confidence, Family, Finding, Level, PolicyText

ID = "PAL050"
TITLE = "user names that differ in case"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    for vhost in policy.vhosts:
        first: dict[str, str] = {}
        for group in vhost.groups:
            for user in group.items("users"):
                other = first.setdefault(user.lower(), user)
                if other != user:
                    text = f"'{user}' and '{other}' are two users, though they differ only in case"
                    about = About(item=user, confidence=Confidence.POSSIBLE)
                    yield group.finding(ID, Level.WARNING, text, "users", about)
