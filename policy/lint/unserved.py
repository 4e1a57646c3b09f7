"""A configuration wants what this router cannot do yet, which stops its start.

Http listeners. Take the section out, or keep the router that has it for this
host.
"""

from collections.abc import Iterator

from policy.configuration.refusals import is_unserved
from policy.lint.findings import Family, Finding, Level, PolicyText

ID = "PAL086"
TITLE = "not served by this router"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    for fault in policy.validation.faults:
        if is_unserved(fault.section, fault.attribute):
            yield policy.blame(ID, Level.ERROR, fault)
