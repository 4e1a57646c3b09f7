"""A vhost's hostname is blank.

It governs clients that ask for no vhost. qdrouterd 1.20 refuses exactly those clients then. Where that router
reads the file as well, let the default vhost govern them: `$default`, or the vhost that `defaultVhost` names.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL048"
TITLE = "vhost without a name"
FAMILY = Family.COMPATIBILITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for vhost in policy.vhosts:
        if not vhost.hostname:
            text = "it governs clients that ask for no vhost, which 1.20 refuses"
            yield vhost.finding(ID, Level.NOTE, text, "hostname", about=About(item="hostname"))
