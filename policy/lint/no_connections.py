"""A limit of connections is 0.

0 admits nobody; it does not stand for "no limit". Leave the attribute out for no limit. To keep users out, take them
out of the group: a limit is easily taken for a mistake.
"""

from collections.abc import Iterator

from policy.lint.findings import Family, Finding, Level, PolicyText

ID = "PAL024"
TITLE = "limit that keeps everybody out"
FAMILY = Family.CORRECTNESS


_LIMITS = ("maxConnections", "maxConnectionsPerUser", "maxConnectionsPerHost")


def check(policy: PolicyText) -> Iterator[Finding]:
    for vhost in policy.vhosts:
        for key in _LIMITS:
            if str(vhost.attributes.get(key)).strip() == "0":
                yield vhost.finding(ID, Level.WARNING, f"'{key}' 0 admits nobody", key)
    for group in policy.groups:
        for key in _LIMITS[1:]:
            if str(group.settings.get(key)).strip() == "0" and not group.is_connector:
                yield group.finding(ID, Level.WARNING, f"'{key}' 0 admits none of its members", key)
