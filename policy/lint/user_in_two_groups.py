"""A user, or a group of the authenticator, is in two groups of one vhost.

The router refuses the vhost, because it could not say which group's settings hold. Keep the user in one group, or make
a group for those who need the settings of both.
"""

from collections.abc import Iterator

from policy.groups import AUTHENTICATOR_KEY
from policy.lint.findings import About, Family, Finding, GroupText, Level, PolicyText

ID = "PAL003"
TITLE = "user in two groups"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    for vhost in policy.vhosts:
        for key, kind in (("users", "user"), (AUTHENTICATOR_KEY, "authenticator group")):
            first: dict[str, GroupText] = {}
            for group in vhost.groups:
                for name in group.items(key):
                    other = first.setdefault(name, group)
                    if other.name != group.name:
                        text = f"{kind} '{name}' is in group '{other.name}' as well: keep it in one of them"
                        yield group.finding(ID, Level.ERROR, text, key, About(item=name))
