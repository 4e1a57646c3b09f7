"""The keys of an issuer of tokens are fetched without TLS.

Whoever is between the router and `keysUrl` can put keys of his own in their place, and then sign tokens for any user.
Without `keysOverHttp: yes` such an address is refused. Use https, or `keysFile`.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL095"
TITLE = "keys of tokens fetched without TLS"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("tokenAuthenticator"):
        url = section.text("keysUrl")
        if url and not url.lower().startswith("https://"):
            text = "the keys come without TLS: whoever is on the way can sign tokens for any user"
            about = About(item=url, instead="keysUrl: https://...")
            yield section.finding(ID, Level.ERROR, text, "keysUrl", about)
