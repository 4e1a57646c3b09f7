"""A group's `validUntil` is over.

Its members are refused, and no other group takes them in: not the one with the user `*`, and not `$default`. If that is
meant to stay so, remove the group and its users; its remains only hide which users still have access.
"""

from collections.abc import Iterator

from policy.attributes import InvalidValue
from policy.lint.findings import About, Family, Finding, Level, PolicyText
from policy.windows import UNTIL_KEY, read_instant

ID = "PAL056"
TITLE = "group whose time is over"
FAMILY = Family.REACHABILITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        written = group.settings.get(UNTIL_KEY)
        try:
            is_over = written is not None and policy.now is not None and read_instant(written) <= policy.now
        except InvalidValue:  # PAL001 tells of it
            continue
        if is_over:
            text = f"its members are refused since '{written}'"
            yield group.finding(ID, Level.WARNING, text, UNTIL_KEY, About(item=str(written)))
