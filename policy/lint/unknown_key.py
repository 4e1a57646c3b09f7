"""A group has a key that no router knows.

It is ignored with a line in the log, so a limit that was meant to hold does not. Mostly a slip of the pen, or an
attribute of the vhost that has come into the group.
"""

from collections.abc import Iterator
from difflib import get_close_matches

import schemas
from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL004"
TITLE = "unknown key in a group"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    definitions = schemas.load("policy")["$defs"]
    known, of_vhost = definitions["group"]["properties"], definitions["vhost"]["properties"]
    for group in policy.groups:
        for key in group.settings:
            if key in known:
                continue
            if key in of_vhost:
                advice = "it belongs to the vhost, beside 'groups'"
            elif similar := get_close_matches(key, known, n=1):
                advice = f"did you mean '{similar[0]}'?"
            else:
                advice = f"known are {', '.join(sorted(known))}"
            yield group.finding(ID, Level.WARNING, f"'{key}' is ignored: {advice}", key, About(item=key))
