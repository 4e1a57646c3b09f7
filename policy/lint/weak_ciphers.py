"""An sslProfile names ciphers that do not protect.

NULL does not encrypt, aNULL, ADH and AECDH do not authenticate, EXPORT, DES, RC4, MD5 and 3DES are broken. Leave
`ciphers` out: what the TLS library thinks good is good.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL034"
TITLE = "weak ciphers"
FAMILY = Family.SECURITY


_WEAK = ("NULL", "ANULL", "ENULL", "EXP", "EXPORT", "RC4", "MD5", "DES", "3DES", "CBC3", "ADH", "AECDH", "LOW", "ALL")


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("sslProfile"):
        for part in section.text("ciphers").replace(",", ":").split(":"):
            name = part.strip()
            words = name.upper().replace("+", "-").split("-")
            if not name.startswith(("!", "-")) and not set(_WEAK).isdisjoint(words):
                yield section.finding(ID, Level.WARNING, f"'{name}' does not protect", "ciphers", About(item=name))
