"""A listener for routers, or a connector to one, does without TLS.

Routers pass on the messages of all their clients, with the addresses and everything in them. Without TLS everyone who
sees the network between two routers reads them, and changes them. Write an `sslProfile` and, for a listener,
`requireSsl: yes`. Listeners and connectors that stay on this machine are left out.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText
from policy.lint.network_roles import network_sections

ID = "PAL100"
TITLE = "routers speak in the clear"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in network_sections(policy, "listener"):
        is_within_tls = section.is_on("requireSsl") or section.is_on("requireEncryption")
        if not section.is_local and not (section.text("sslProfile") and is_within_tls):
            text = "routers may join without TLS: all messages between them cross the network in the clear"
            yield section.finding(ID, Level.WARNING, text, "role", About(instead="requireSsl: yes, with an sslProfile"))
    for section in network_sections(policy, "connector"):
        # A connector's host is 127.0.0.1 where none is written.
        if section.text("host") and not section.is_local and not section.text("sslProfile"):
            text = "no TLS: all messages to the other router cross the network in the clear"
            yield section.finding(ID, Level.WARNING, text, "role", About(instead="sslProfile: NAME"))
