"""An item ends with `${user}*`.

For the user `al` that is `al*`, which begins `alice.private` as well: users whose names begin alike reach each other's
addresses, and names can be chosen so. Put a separator between: `${user}.*`.
"""

from collections.abc import Iterator

from policy.addressing.lists import ESCAPED_USER_TOKEN, USER_TOKEN
from policy.lint.findings import About, Family, Finding, Fix, Level, PolicyText

ID = "PAL013"
TITLE = "reaches users with longer names"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        for key in ("sources", "targets"):
            for item in group.items(key):
                if item.endswith((f"{USER_TOKEN}*", f"{ESCAPED_USER_TOKEN}*")):
                    better = f"{item.removesuffix('*')}.*"
                    text = f"'{item}' also holds for users whose names begin with the user's: write '{better}'"
                    fix = Fix(old=item, new=better, is_safe=False)
                    yield group.finding(ID, Level.WARNING, text, key, About(item=item, instead=better, fix=fix))
