"""A group lists the user `anonymous`.

Every client of a listener that offers ANONYMOUS is that user, without any proof. If such peers are to have rights, let
them be few, and on a vhost of their own.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Confidence, Family, Finding, Level, PolicyText

ID = "PAL027"
TITLE = "rights for the user anonymous"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        if "anonymous" in group.items("users"):
            text = "'anonymous' is everybody who can reach a listener with ANONYMOUS"
            about = About(item="anonymous", confidence=Confidence.LIKELY)
            yield group.finding(ID, Level.WARNING, text, "users", about)
