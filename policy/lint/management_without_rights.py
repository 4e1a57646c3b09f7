"""A group may send to management, and nothing says what it may do there.

As in qdrouterd 1.20, who reaches `$management` may then do everything but name files of the router's host: change the
rules, and with them what he may do himself, open listeners, delete vhosts. Write `"management": "observer"` for who is
there to watch, `"operator"` for who also bans, closes connections and sets log levels, `"administrator"` for who may
indeed do everything; or single rights, such as `["read *", "create, delete ban"]`.
"""

from collections.abc import Iterator

from policy.analysis.effort import RULE_STEPS, Effort, TooComplexError
from policy.lint.findings import About, Family, Finding, Level, PolicyText
from policy.lint.management_for_everybody import reaches_management
from policy.rights import MANAGEMENT_KEY

ID = "PAL070"
TITLE = "management without rights"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    effort = Effort(RULE_STEPS)
    for group in policy.groups:
        if group.settings.get(MANAGEMENT_KEY) is not None or group.is_connector:
            continue
        key = "targets" if "targets" in group.settings else "targetPattern"
        about = About(instead='"management": "observer"')
        claim = "members reach management and may do everything there"
        try:
            if reaches_management(group, effort):
                yield group.finding(ID, Level.WARNING, f"{claim}: say what with 'management'", key, about)
        except TooComplexError as error:
            yield group.finding(ID, Level.WARNING, error.about(claim), key, about)
