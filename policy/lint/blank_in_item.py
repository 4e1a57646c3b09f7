"""An item has a blank inside.

Only commas separate items: "a b" is one item with a blank in it, which hardly any name or address is. Some documents of
the C router say otherwise. Names from certificates do have blanks, and are left alone: `CN=a b,O=c`, and what a
uidFormat of several letters makes of it, `Example Org;Sensors;adapter`.
"""

from collections.abc import Iterator

from policy.groups import ADDRESS_KEYS, DENY_KEYS
from policy.lint.findings import About, Confidence, Family, Finding, Level, PolicyText

ID = "PAL043"
TITLE = "blank inside an item"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        for key in ("users", *ADDRESS_KEYS, *DENY_KEYS):
            for item in group.items(key):
                if len(item.split()) > 1 and not _is_name(item, key):
                    better = ", ".join(item.split())
                    text = f"'{item}' is one item: only commas separate"
                    about = About(item=item, instead=better, confidence=Confidence.LIKELY)
                    yield group.finding(ID, Level.WARNING, text, key, about)


def _is_name(item: str, key: str) -> bool:
    """Is it the name in a certificate, or one that uidFormat has made of it?"""
    return "=" in item or (key == "users" and ";" in item)
