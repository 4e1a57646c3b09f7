"""A listener can serve none of its saslMechanisms, so that the router does not start.

The router has EXTERNAL (inside TLS), ANONYMOUS (where `authenticatePeer` is off), PLAIN and SCRAM where it has users;
GSSAPI where a kerberosAuthenticator or the SASL configuration has the keys. Name one of them. Where the SASL
configuration has a mech_list, that has to name it too. A listener with a saslPlugin offers what its service has.
"""

import re
from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText, SaslText, SectionText

ID = "PAL087"
TITLE = "no mechanism that can be served"
FAMILY = Family.CORRECTNESS

# Those that a verifier may answer. Whether it does is in other files.
ANSWERED = re.compile(r"PLAIN|SCRAM-SHA-(?:1|256|512)(?:-PLUS)?|XOAUTH2|OAUTHBEARER")


def check(policy: PolicyText) -> Iterator[Finding]:
    kerberos = {section.text("name") for section in policy.sections("kerberosAuthenticator")}
    has_sasl_configuration = any(router.text("saslConfigDir") for router in policy.sections("router"))
    for section in policy.sections("listener"):
        named, asked = section.mechanisms, set(section.text("authenticators").split())
        if section.text("saslPlugin"):
            continue
        sasl = None if asked or policy.sasl is None or policy.sasl.unread or policy.sasl.fault else policy.sasl
        has_keys = bool(asked & kerberos) if asked else has_sasl_configuration
        served = [name for name in named if _may_be_served(section, name, has_keys=has_keys)]
        if named and not any(sasl is None or _is_offered(sasl, name) for name in served):
            text = f"none of {', '.join(named)} can be served: this router does not start"
            if served:
                text += ", since its SASL configuration has none of them"
            about = About(item=section.text("saslMechanisms"), instead="saslMechanisms: EXTERNAL PLAIN")
            yield section.finding(ID, Level.ERROR, text, "saslMechanisms", about)


def _is_offered(sasl: SaslText, mechanism: str) -> bool:
    if sasl.mechanisms is not None and mechanism not in sasl.mechanisms:
        return False
    match mechanism:
        case "GSSAPI":
            return sasl.has_keys
        case "ANONYMOUS" | "EXTERNAL":
            return True
        case _:
            return sasl.has_users


def _may_be_served(section: SectionText, mechanism: str, *, has_keys: bool) -> bool:
    """has_keys  those of Kerberos may be there"""
    match mechanism:
        case "GSSAPI":
            return has_keys
        case "ANONYMOUS":
            return not section.is_on("authenticatePeer")
        case "EXTERNAL":
            return bool(section.text("sslProfile"))
        case _:
            return ANSWERED.fullmatch(mechanism) is not None
