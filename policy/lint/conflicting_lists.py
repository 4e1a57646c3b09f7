"""A group has both `sources` and `sourcePattern`, or both `targets` and `targetPattern`.

The router refuses the vhost: which of the two should hold is not for it to guess. Keep one. `sources` and `targets`
know a `*` at the end of an item; patterns know `*` for one word and `#` for any number of words.
"""

from collections.abc import Iterator

from policy.lint.findings import Family, Finding, Level, PolicyText

ID = "PAL002"
TITLE = "list and pattern at once"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        for literal, pattern in (("sources", "sourcePattern"), ("targets", "targetPattern")):
            if literal in group.settings and pattern in group.settings:
                text = f"'{literal}' and '{pattern}' exclude each other: keep one of them"
                yield group.finding(ID, Level.ERROR, text, pattern)
