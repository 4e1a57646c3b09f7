"""`remoteHosts` is there and blank.

It means nobody. qdrouterd 1.20 refuses such a vhost: leave the attribute out, which means the same to both.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL044"
TITLE = "blank remoteHosts"
FAMILY = Family.COMPATIBILITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        if "remoteHosts" in group.settings and not group.items("remoteHosts"):
            text = "a blank 'remoteHosts' is refused by 1.20: leave it out"
            yield group.finding(ID, Level.NOTE, text, "remoteHosts", About(item="remoteHosts"))
