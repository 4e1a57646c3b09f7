"""Whoever is not named may send to management.

Requests to `$management` read and change the router's configuration, close connections and delete vhosts. That holds
for the same address with `_local/` or `_topo/` before it too. Give it to a group that lists its members.
"""

from collections.abc import Iterator

from policy.lint.findings import Family, Finding, GroupText, Level, PolicyText

ID = "PAL012"
TITLE = "management for unnamed users"
FAMILY = Family.SECURITY

MANAGEMENT_ADDRESSES = ("$management", "_local/$management", "_topo/0/router/$management", "_edge/router/$management")


def check(policy: PolicyText) -> Iterator[Finding]:
    for vhost in policy.vhosts:
        for group in vhost.open_groups:
            if reaches_management(group):
                key = "targets" if "targets" in group.settings else "targetPattern"
                text = "users who are not named may send to management: give it to a group that lists its members"
                yield group.finding(ID, Level.WARNING, text, key)


def reaches_management(group: GroupText) -> bool:
    """May members send management requests to this router or another?"""
    return any(group.may_send(address) for address in MANAGEMENT_ADDRESSES)
