"""A listener's users are never asked about again, and `onPolicyChange: enforce` promises that they are.

saslauthd and an `authServicePlugin` answer to a password, and to nothing else: whether a user still exists they cannot
be asked. Who is removed there stays connected until the connection ends. `maxConnectionAgeSeconds` of the listener
bounds that: the connection ends, and the client has to log in again.
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
    for section in policy.sections("listener"):
        key = "saslPlugin" if section.text("saslPlugin") else "authenticators"
        named = section.text(key).split()
        item = next((name for name in named if key == "saslPlugin" or name in never_asked), None)
        if item is not None and section.text("maxConnectionAgeSeconds") in ("", "0"):
            text = f"a user who is removed from '{item}' stays connected for as long as the client likes"
            yield section.finding(
                ID, Level.WARNING, text, key, About(item=item, instead="maxConnectionAgeSeconds: 3600")
            )
