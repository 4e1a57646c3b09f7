"""The router does not start with its SASL configuration.

The file that saslConfigDir and saslConfigName name is read as at the start: it is not there, a line is no `key: value`,
the users that it names are not there or others may read them, or nobody here can read a database of its kind. Where
the configuration is not on this host, or this account may not read it, a note says so: `qdrouterd --check` looks at
it where the router runs.
"""

import re
from collections.abc import Iterator

from policy.lint.findings import Family, Finding, Level, PolicyText

ID = "PAL166"
TITLE = "SASL configuration that cannot be used"
FAMILY = Family.CORRECTNESS

_CHECKS_PASSWORD = re.compile(r"PLAIN|LOGIN|CRAM-MD5|DIGEST-MD5|NTLM|SRP|OTP|SCRAM-.*")


def check(policy: PolicyText) -> Iterator[Finding]:
    sasl, routers = policy.sasl, policy.sections("router")
    if sasl is None or not routers:
        return
    if sasl.fault:
        yield routers[0].finding(ID, Level.ERROR, f"{sasl.fault}: this router does not start", "saslConfigDir")
    if sasl.unread:
        text = f"{sasl.unread}: `qdrouterd --check` reads it where the router runs"
        yield routers[0].finding(ID, Level.NOTE, text, "saslConfigDir")
    if not sasl.password_fault:
        return
    offered = ("PLAIN",) if sasl.mechanisms is None else sasl.mechanisms
    for listener in policy.sections("listener"):
        if listener.text("saslPlugin") or listener.text("authenticators"):
            continue
        named = listener.mechanisms or offered
        if any(name in offered and _CHECKS_PASSWORD.fullmatch(name) for name in named):
            yield listener.finding(ID, Level.ERROR, f"{sasl.password_fault}: this router does not start")
