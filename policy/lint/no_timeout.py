"""A listener on the network has no idle timeout.

With `idleTimeoutSeconds: 0` a client that has gone without a word keeps its connection, and counts against the limits,
for ever.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL051"
TITLE = "connections that never time out"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("listener"):
        if section.text("idleTimeoutSeconds").strip() == "0" and not section.is_local:
            text = "clients that have gone are never noticed"
            yield section.finding(ID, Level.NOTE, text, "idleTimeoutSeconds", About(instead="idleTimeoutSeconds: 16"))
