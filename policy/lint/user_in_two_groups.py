"""A user is in two groups of one vhost.

The router refuses the vhost, because it could not say which group's settings hold. Keep the user in one group, or make
a group for those who need the settings of both.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, GroupText, Level, PolicyText

ID = "PAL003"
TITLE = "user in two groups"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    for vhost in policy.vhosts:
        first: dict[str, GroupText] = {}
        for group in vhost.groups:
            for user in group.items("users"):
                other = first.setdefault(user, group)
                if other.name != group.name:
                    text = f"user '{user}' is in group '{other.name}' as well: keep it in one of them"
                    yield group.finding(ID, Level.ERROR, text, "users", About(item=user))
