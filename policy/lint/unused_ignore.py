"""A comment asks lint to ignore a finding that is not there.

The excused fault is mended, or the comment has come away from its place. Remove it. This rule runs after all others.
"""

from collections.abc import Iterator

from policy.lint.findings import Family, Finding, PolicyText

ID = "PAL054"
TITLE = "ignore comment without effect"
FAMILY = Family.HYGIENE


def check(policy: PolicyText) -> Iterator[Finding]:
    """Nothing: only when all other rules have spoken is it known, see ignoring.py."""
    yield from ()
