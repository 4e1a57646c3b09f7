"""A listener on the network lets clients in that do not authenticate at all.

`authenticatePeer` is off by default: a client that leaves SASL out is a user without a name. Write
`authenticatePeer: yes`.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL032"
TITLE = "clients need not authenticate"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("listener"):
        if not section.is_local and section.text("role") in ("", "normal") and not section.is_on("authenticatePeer"):
            text = "clients that leave SASL out are let in: authenticatePeer is off"
            yield section.finding(ID, Level.WARNING, text, "authenticatePeer", About(instead="authenticatePeer: yes"))
