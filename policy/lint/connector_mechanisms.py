"""A connector names a SASL mechanism that it does not have, or parts them by commas.

Its mechanisms are parted by blanks. Of those that it names it takes the strongest that the server offers too. A name
that is none is never taken, and with no other the log says `Authentication failed [mech=none]`.
"""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

from policy.lint.findings import About, Family, Finding, Fix, Level, PolicyText

ID = "PAL158"
TITLE = "mechanism that a connector does not have"
FAMILY = Family.CORRECTNESS

_MECHANISMS: Final = (
    *("EXTERNAL", "PLAIN", "ANONYMOUS", "OAUTHBEARER", "XOAUTH2"),
    *(f"SCRAM-SHA-{number}{plus}" for number in (1, 256, 512) for plus in ("", "-PLUS")),
)


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("connector"):
        written = section.text("saslMechanisms")
        words = written.split()
        if "," in written:
            better = " ".join(re.split(r"[\s,]+", written.strip(" ,")))
            fix = Fix(old=written, new=better, is_safe=False)
            text = f"'{written}': mechanisms are parted by blanks, and a comma is part of a name"
            about = About(item=written, instead=f"saslMechanisms: {better}", fix=fix)
            yield section.finding(ID, Level.WARNING, text, "saslMechanisms", about)
            continue
        for word in words:
            if word.upper() not in _MECHANISMS:
                similar = get_close_matches(word.upper(), _MECHANISMS, n=1)
                advice = f": did you mean '{similar[0]}'?" if similar else f": it has {', '.join(_MECHANISMS[:5])}"
                has_fix = similar and words == [word]
                about = About(item=word, fix=Fix(old=word, new=similar[0], is_safe=False) if has_fix else None)
                text = f"a connector has no mechanism '{word}'{advice}"
                yield section.finding(ID, Level.WARNING, text, "saslMechanisms", about)
