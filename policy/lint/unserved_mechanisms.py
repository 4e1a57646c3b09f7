"""A listener can serve none of its saslMechanisms, so that the router does not start.

The router has EXTERNAL (inside TLS), ANONYMOUS (where `authenticatePeer` is off), and PLAIN and SCRAM where there are
users. Name one of them.
"""

import re
from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText, SectionText

ID = "PAL087"
TITLE = "no mechanism that can be served"
FAMILY = Family.CORRECTNESS

# Those that a verifier may answer. Whether it does is in other files.
ANSWERED = re.compile(r"PLAIN|SCRAM-SHA-(?:1|256|512)(?:-PLUS)?|XOAUTH2|OAUTHBEARER")


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("listener"):
        named = section.mechanisms
        if named and not any(_may_be_served(section, name) for name in named):
            text = f"none of {', '.join(named)} can be served: this router does not start"
            about = About(item=section.text("saslMechanisms"), instead="saslMechanisms: EXTERNAL PLAIN")
            yield section.finding(ID, Level.ERROR, text, "saslMechanisms", about)


def _may_be_served(section: SectionText, mechanism: str) -> bool:
    match mechanism:
        case "ANONYMOUS":
            return not section.is_on("authenticatePeer")
        case "EXTERNAL":
            return bool(section.text("sslProfile"))
        case _:
            return ANSWERED.fullmatch(mechanism) is not None
