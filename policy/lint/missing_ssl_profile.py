"""A listener or connector names an sslProfile that is not defined.

The router refuses to start. Routers of the 1.20 line start, and then fail every connection of the listener.
Define the profile, or mend the name.
"""

from collections.abc import Iterator
from difflib import get_close_matches

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL038"
TITLE = "sslProfile that does not exist"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    names = {section.text("name") for section in policy.sections("sslProfile")}
    for section in policy.sections("listener", "connector", "authServicePlugin"):
        name = section.text("sslProfile")
        if name and name not in names:
            similar = get_close_matches(name, names, n=1)
            advice = f": did you mean '{similar[0]}'?" if similar else ""
            text = f"there is no sslProfile '{name}'{advice}"
            yield section.finding(ID, Level.ERROR, text, "sslProfile", About(item=name))
