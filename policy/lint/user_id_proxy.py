"""allowUserIdProxy is on.

A message's user-id says who sent it, and receivers rely on that. With this switch members may put anybody's name there.
Only those who pass on other people's messages need it: a gateway, or an edge router.
"""

from collections.abc import Iterator

from policy.lint.findings import Family, Finding, Level, PolicyText

ID = "PAL010"
TITLE = "members may send in other people's names"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        if group.is_true("allowUserIdProxy"):
            text = "members may send messages under any user-id: leave it off for all but gateways and edge routers"
            yield group.finding(ID, Level.WARNING, text, "allowUserIdProxy")
