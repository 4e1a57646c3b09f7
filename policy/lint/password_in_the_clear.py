"""A listener takes passwords on connections that need not be encrypted.

PLAIN and LOGIN send the password as it is. Without `requireSsl: yes` a client may do so in the clear, and everyone who
sees the network has the password. With `allowPlainWithoutTls: no` they are offered inside TLS only. Listeners on the
loopback address are left out.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL030"
TITLE = "passwords on an open line"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("listener"):
        offered = [mechanism for mechanism in section.mechanisms if mechanism in ("PLAIN", "LOGIN")]
        is_within_tls = section.is_on("requireSsl") or section.is_on("requireEncryption")
        if not offered or section.is_local or is_within_tls or section.is_off("allowPlainWithoutTls"):
            continue
        text = f"{' and '.join(offered)} without required TLS: passwords cross the network in the clear"
        about = About(item=offered[0], instead="requireSsl: yes, with an sslProfile")
        yield section.finding(ID, Level.WARNING, text, "saslMechanisms", about)
