"""A listener on the network offers ANONYMOUS.

Every client that reaches it is the user `anonymous`. Leave ANONYMOUS to listeners on the loopback address.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL031"
TITLE = "ANONYMOUS on the network"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("listener"):
        if "ANONYMOUS" in section.mechanisms and not section.is_local and section.text("role") in ("", "normal"):
            text = "ANONYMOUS is offered on the network: everybody who reaches the port is let in"
            about = About(item="ANONYMOUS", instead="saslMechanisms: EXTERNAL PLAIN")
            yield section.finding(ID, Level.WARNING, text, "saslMechanisms", about)
