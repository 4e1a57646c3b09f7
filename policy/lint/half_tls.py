"""TLS that can never be: what it needs is not there.

A listener with `requireSsl` and without `sslProfile` lets nobody in. A private key is of use only with its certificate:
the router starts with a warning, and every handshake fails.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL167"
TITLE = "TLS without what it needs"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    for profile in policy.sections("sslProfile"):
        if profile.text("privateKeyFile") and not profile.text("certFile"):
            text = "a private key without its certificate: TLS fails with this profile"
            yield profile.finding(ID, Level.WARNING, text, "privateKeyFile", About(instead="certFile: ..."))
    for listener in policy.sections("listener"):
        if listener.is_on("requireSsl") and not listener.text("sslProfile"):
            text = "nobody can connect: TLS is required, and there is no sslProfile"
            yield listener.finding(ID, Level.WARNING, text, "requireSsl")
