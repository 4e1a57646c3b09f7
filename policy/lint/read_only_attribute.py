"""An attribute is set that only the router sets.

It starts, with a warning in its log, and shows another value. `failoverUrls` of a connector is one: the list comes from
the peer, and the second host is never called. Take the line out.
"""

from collections.abc import Iterator

from policy.lint.findings import Family, Finding, Level, PolicyText

ID = "PAL156"
TITLE = "attribute that only the router sets"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    for each in policy.validation.idle:
        yield policy.blame(ID, Level.WARNING, each)
