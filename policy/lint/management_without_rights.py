"""A group may send to management, and nothing says what it may do there.

As in qdrouterd 1.20, who reaches `$management` may then do everything but name files of the router's host: change the
rules, and with them what he may do himself, open listeners, delete vhosts. Write `"management": "observer"` for who is
there to watch, `"operator"` for who also bans, closes connections and sets log levels, `"administrator"` for who may
indeed do everything; or single rights, such as `["read *", "create, delete ban"]`.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText
from policy.lint.management_for_everybody import reaches_management
from policy.rights import MANAGEMENT_KEY

ID = "PAL070"
TITLE = "management without rights"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        if group.settings.get(MANAGEMENT_KEY) is None and not group.is_connector and reaches_management(group):
            key = "targets" if "targets" in group.settings else "targetPattern"
            text = "members reach management and may do everything there: say what with 'management'"
            yield group.finding(ID, Level.WARNING, text, key, About(instead='"management": "observer"'))
