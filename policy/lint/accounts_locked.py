"""Guesses at a listener lock accounts of a directory, for nobody who fails is banned.

A directory that counts wrong passwords locks the account after a few, for its owner as well. Where an answer would be
withheld from a host the router does not ask at all; a patient host may still try some thousand passwords an hour.
`banAfterFailures` ends that. It has to be less than what the directory allows: with 5 failures there, 4 or fewer here.
"""

from collections.abc import Iterator

from policy.failures import LIMIT_KEY
from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL165"
TITLE = "guesses lock accounts"
FAMILY = Family.SECURITY

# The databases that may count what fails, by the attribute of a listener that names them. Kerberos is none: a KDC sees
# no password of a client that has a ticket.
_COUNTING = {"authenticators": ("ldapAuthenticator", "saslauthdAuthenticator"), "saslPlugin": ("authServicePlugin",)}


def check(policy: PolicyText) -> Iterator[Finding]:
    if any(section.text(LIMIT_KEY) not in ("", "0") for section in policy.sections("policy")):
        return
    for section in policy.sections("listener"):
        key = "saslPlugin" if section.text("saslPlugin") else "authenticators"
        counting = {found.text("name") for kind in _COUNTING[key] for found in policy.sections(kind)}
        item = next((name for name in section.text(key).split() if name in counting), None)
        if item is not None:
            text = f"whoever guesses passwords of '{item}' may lock the accounts: no failure leads to a ban"
            yield section.finding(ID, Level.WARNING, text, key, About(item=item, instead=f"{LIMIT_KEY}: 4"))
