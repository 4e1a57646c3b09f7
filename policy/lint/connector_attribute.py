"""The group `$connector` has settings that are not looked at.

It governs connections the router opens itself: those are neither counted nor held against `remoteHosts`, and frame size
and session window are the connector's own. Mind `remoteHosts`: in qdrouterd 1.20 peers without a name are in the group,
because it lists no users, and it lets them connect.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL023"
TITLE = "setting that does not hold on connectors"
FAMILY = Family.CORRECTNESS


_IGNORED = ("remoteHosts", "maxConnectionsPerUser", "maxConnectionsPerHost", "maxFrameSize", "maxSessionWindow")


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        for key in _IGNORED if group.is_connector else ():
            if group.settings.get(key) not in (None, "", []):
                yield group.finding(ID, Level.NOTE, f"'{key}' has no effect on connectors", key, About(item=key))
