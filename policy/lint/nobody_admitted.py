"""No user can ever connect to this vhost, and it governs no connector.

No group lists users, and unknown users are not allowed. A vhost like that is a closed door; say so in a comment and an
ignore comment for this rule if that is what it is for.
"""

from collections.abc import Iterator

from policy.groups import AUTHENTICATOR_KEY
from policy.lint.findings import Family, Finding, Level, PolicyText
from policy.vhosts import CONNECTOR_GROUP

ID = "PAL025"
TITLE = "vhost that admits nobody"
FAMILY = Family.REACHABILITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for vhost in policy.vhosts:
        is_used = vhost.open_groups or any(
            group.items("users") or group.items(AUTHENTICATOR_KEY) or group.name == CONNECTOR_GROUP
            for group in vhost.groups
        )
        if not is_used:
            yield vhost.finding(
                ID, Level.NOTE, "no user can ever connect: no group lists any, unknown ones are refused"
            )
