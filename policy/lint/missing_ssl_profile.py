"""A listener or connector names an sslProfile that is not defined.

The router refuses to start. Routers of the 1.20 line start, and then fail every connection of the listener.
Define the profile, or mend the name.
"""

from collections.abc import Iterator
from difflib import get_close_matches

from policy.configuration.kinds.kind import MissingProfileError
from policy.lint.findings import About, Family, Finding, Fix, Level, PolicyText

ID = "PAL038"
TITLE = "sslProfile that does not exist"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    names = {section.text("name") for section in policy.sections("sslProfile")}
    for fault in policy.validation.faults:
        if isinstance(error := fault.error, MissingProfileError):
            similar = get_close_matches(error.profile, names, n=1)
            advice = f": did you mean '{similar[0]}'?" if similar else ""
            fix = Fix(old=error.profile, new=similar[0], is_safe=False) if similar else None
            text = f"there is no sslProfile '{error.profile}'{advice}"
            yield policy.blame(ID, Level.ERROR, fault, text, About(item=error.profile, fix=fix))
