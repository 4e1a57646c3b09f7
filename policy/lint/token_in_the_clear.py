"""Bearer tokens may cross the network in the clear, or are configured where they are never sent.

Whoever sees a token can use it until it ends. A `tokenAuthenticator` takes them inside TLS only, unless
`allowUnencrypted` is set. A connector sends its `saslToken` inside TLS only: without `sslProfile` it has no effect.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL094"
TITLE = "tokens without TLS"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("tokenAuthenticator"):
        if section.is_on("allowUnencrypted"):
            text = "it takes tokens without TLS: whoever sees one can use it until it ends"
            yield section.finding(ID, Level.WARNING, text, "allowUnencrypted", About(instead="allowUnencrypted: no"))
    for section in policy.sections("connector"):
        if section.text("saslToken") and not section.text("sslProfile"):
            text = "its token is never sent: there is no TLS"
            yield section.finding(ID, Level.WARNING, text, "saslToken", About(instead="sslProfile: NAME"))
