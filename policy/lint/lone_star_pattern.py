"""A pattern list has the item `*`.

It allows every address of one word. In qdrouterd 1.20 it allows nothing, and the items behind it in the list are
ignored. Where that router reads the file as well, list the words, or write `#` if every address is meant.
"""

from collections.abc import Iterator

from policy.addressing.patterns import ONE
from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL046"
TITLE = "the pattern *"
FAMILY = Family.COMPATIBILITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        for key in ("sourcePattern", "targetPattern"):
            if ONE in group.items(key):
                text = "'*' allows every address of one word; 1.20 takes it for nothing, '#' means every address"
                yield group.finding(ID, Level.NOTE, text, key, About(item=ONE))
