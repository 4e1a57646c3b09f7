"""More than one group of a vhost lists no users.

That is how `$default` and `$connector` stand side by side. qdrouterd 1.20 refuses it: give one of them a user that does
not exist.
"""

from collections.abc import Iterator

from policy.lint.findings import Family, Finding, Level, PolicyText

ID = "PAL047"
TITLE = "several groups without users"
FAMILY = Family.COMPATIBILITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for vhost in policy.vhosts:
        without = [group for group in vhost.groups if not group.items("users")]
        if len(without) > 1:
            names = ", ".join(f"'{group.name}'" for group in without)
            text = f"the groups {names} list no users: 1.20 refuses such a vhost"
            yield vhost.finding(ID, Level.NOTE, text, "groups", without[1].name)
