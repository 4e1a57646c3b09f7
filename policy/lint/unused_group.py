"""Nobody is ever in this group, or nobody of it may connect.

A group holds for the users it lists, for all with the user `*`, and `$default` for unknown users if the vhost has
allowUnknownUser and no group lists `*`. Without `remoteHosts` its members may connect from nowhere. `$connector` needs
neither: it governs connections the router opens. In qdrouterd 1.20 peers without a name, which do not authenticate at
all, are in a group that lists no users: they were admitted there if it has `remoteHosts`.
"""

from collections.abc import Iterator

from policy.lint.findings import Family, Finding, GroupText, Level, PolicyText, VhostText
from policy.vhosts import DEFAULT_GROUP

ID = "PAL008"
TITLE = "group without effect"
FAMILY = Family.REACHABILITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for vhost in policy.vhosts:
        for group in vhost.groups:
            if group.is_connector:
                continue
            if (problem := _problem(vhost, group)) is not None:
                yield group.finding(ID, Level.WARNING, problem)
            elif not group.items("remoteHosts"):
                text = "its members may connect from nowhere: 'remoteHosts' is missing or empty"
                yield group.finding(ID, Level.WARNING, text)


def _problem(vhost: VhostText, group: GroupText) -> str | None:
    if group.items("users") or group.items("authenticatorGroups"):
        return None
    if group.name != DEFAULT_GROUP:
        return "it lists no users, so nobody is ever in it"
    if vhost.attributes.get("allowUnknownUser") is not True:
        return "it is for unknown users, which are refused: set allowUnknownUser, or remove the group"
    if group not in vhost.open_groups:
        return "a group with the user '*' comes before it, so nobody is ever in it"
    return None
