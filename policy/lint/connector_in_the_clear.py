"""A connector sends its password over a connection without TLS.

With `saslPassword` and no `sslProfile` the password crosses the network as it is. Connectors to this machine are left
out.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL037"
TITLE = "password sent in the clear"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("connector"):
        # A connector's host is 127.0.0.1 where none is written.
        is_remote = section.text("host") and not section.is_local
        if is_remote and section.text("saslPassword") and not section.text("sslProfile"):
            text = "its password is sent without TLS"
            yield section.finding(ID, Level.WARNING, text, "saslPassword", About(instead="sslProfile: NAME"))
