"""A group's members may connect, but open no link.

There are no sources, no targets and no dynamic source. List the addresses they need, or, if they are to be kept out, do
not admit them: every member that may connect uses up connections.
"""

from collections.abc import Iterator

from policy.groups import ADDRESS_KEYS
from policy.lint.findings import Family, Finding, Level, PolicyText
from policy.vhosts import CONNECTOR_GROUP

ID = "PAL022"
TITLE = "members may connect and do nothing"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        if group.name == CONNECTOR_GROUP or not group.items("remoteHosts"):
            continue
        has_use = any(group.items(key) for key in ADDRESS_KEYS)
        if not has_use and not group.is_true("allowDynamicSource") and not group.is_true("allowAnonymousSender"):
            yield group.finding(ID, Level.NOTE, "its members may connect, but neither send nor receive anything")
