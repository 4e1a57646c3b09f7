"""A section or an attribute of the configuration is unknown.

The router does not start with it. Names are compared exactly, `ssl-profile` and `sslProfile` being the same. Mend the
name, or remove the line.
"""

from collections.abc import Iterator

from policy.configuration.schema import UnknownNameError
from policy.lint.findings import About, Family, Finding, Fix, Level, PolicyText

ID = "PAL042"
TITLE = "unknown section or attribute"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    for fault in policy.validation.faults:
        # Those of a vhost are found by the schema of policy files, before any rule is asked.
        if not isinstance(error := fault.error, UnknownNameError) or fault.section == "vhost":
            continue
        text = f"'{error.name}' is unknown" if fault.attribute else f"there is no section '{error.name}'"
        fix = Fix(old=error.name, new=error.similar, is_safe=False) if error.similar else None
        about = About(item=error.name if fault.attribute else "", fix=fix)
        yield policy.blame(ID, Level.ERROR, fault, f"{text}: {error.advice}" if error.advice else text, about)
