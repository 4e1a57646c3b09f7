"""A blank item stands among the users of a group.

It is nobody here. In qdrouterd 1.20 it is the name that peers have which do not authenticate at all, so that these are
in the group. Remove the comma too many.
"""

from collections.abc import Iterator

from policy.attributes import split_names
from policy.lint.findings import Family, Finding, Level, PolicyText

ID = "PAL061"
TITLE = "blank name among users"
FAMILY = Family.COMPATIBILITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        # A group without any users has rules of its own, PAL008 and PAL047.
        if group.items("users") and not all(split_names(group.settings["users"])):
            text = "a blank item is nobody here, and peers without a name in 1.20: remove the comma too many"
            yield group.finding(ID, Level.NOTE, text, "users")
