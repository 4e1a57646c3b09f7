"""An LDAP authenticator sends users' passwords over a connection without TLS.

With `startTls: no` every password that is checked at an `ldap:` server crosses the network as it is, and whoever is in
between may answer that it was right. Servers on this machine are left out. Leave `startTls` out, or use `ldaps:`.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL089"
TITLE = "directory asked in the clear"
FAMILY = Family.SECURITY

_LOCAL = ("ldap://127.", "ldap://localhost", "ldap://[::1]")


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("ldapAuthenticator"):
        urls = [url.lower() for url in section.text("urls").split()]
        is_clear = any(url.startswith("ldap://") and not url.startswith(_LOCAL) for url in urls)
        if is_clear and section.is_off("startTls"):
            text = "users' passwords are sent to the directory without TLS"
            yield section.finding(ID, Level.WARNING, text, "startTls", About(instead="startTls: yes"))
