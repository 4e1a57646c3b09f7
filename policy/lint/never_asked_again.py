"""A listener's users are never asked about again, and `onPolicyChange: enforce` promises that they are.

saslauthd and an `authServicePlugin` answer to a password, and to nothing else: whether a user still exists they cannot
be asked. Who is removed there stays connected until the connection ends. `maxSessionSeconds` of the authenticator or
plugin bounds that, or `maxConnectionAgeSeconds` of the listener, for all of its users: the connection ends, and the
client has to log in again.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL121"
TITLE = "removed users stay connected"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    if not any(section.text("onPolicyChange").lower() == "enforce" for section in policy.sections("policy")):
        return
    never_asked = {section.text("name") for section in policy.sections("saslauthdAuthenticator")}
    kinds = ("saslauthdAuthenticator", "authServicePlugin")
    bounded = {
        (kind, section.text("name"))
        for kind in kinds
        for section in policy.sections(kind)
        if section.text("maxSessionSeconds") not in ("", "0")
    }
    for section in policy.sections("listener"):
        key = "saslPlugin" if section.text("saslPlugin") else "authenticators"
        named = section.text(key).split()
        asked = [(kinds[1], name) for name in named] if key == "saslPlugin" else [
            (kinds[0], name) for name in named if name in never_asked
        ]  # fmt: skip
        item = next((name for kind, name in asked if (kind, name) not in bounded), None)
        if item is not None and section.text("maxConnectionAgeSeconds") in ("", "0"):
            text = f"a user who is removed from '{item}' stays connected for as long as the client likes"
            yield section.finding(
                ID, Level.WARNING, text, key, About(item=item, instead="maxConnectionAgeSeconds: 3600")
            )
