"""The router leaves a section out.

It starts, with an error or a warning in its log, and what the section is for does not happen: an address has another
treatment than is written, a link route or an auto link is not there.
"""

from collections.abc import Iterator
from itertools import chain

from policy.lint.findings import Family, Finding, Level, PolicyText

ID = "PAL151"
TITLE = "section that the router leaves out"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    found = policy.validation
    for each in chain(found.left_out, found.dropped()):
        yield policy.blame(ID, Level.WARNING, each)
