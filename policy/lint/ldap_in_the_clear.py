"""An LDAP authenticator sends users' passwords over a connection without TLS.

With `startTls: no` every password that is checked at an `ldap:` server crosses the network as it is, and whoever is in
between may answer that it was right. Servers on this machine are left out. Leave `startTls` out, or use `ldaps:`.
"""

import re
from collections.abc import Iterator

from policy.hosts import is_loopback
from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL089"
TITLE = "directory asked in the clear"
FAMILY = Family.SECURITY

# A user before the host is no part of it.
_IN_THE_CLEAR = re.compile(r"(?i)ldap://(?:[^/?#]*@)?(?P<host>\[[^\]]*\]|[^/?#:]*)")


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("ldapAuthenticator"):
        if section.is_off("startTls") and any(_is_clear(url) for url in section.text("urls").split()):
            text = "users' passwords are sent to the directory without TLS"
            yield section.finding(ID, Level.WARNING, text, "startTls", About(instead="startTls: yes"))


def _is_clear(url: str) -> bool:
    """Does the url name a server of another machine, without TLS?"""
    found = _IN_THE_CLEAR.match(url)
    return found is not None and not is_loopback(found["host"].strip("[]"))
