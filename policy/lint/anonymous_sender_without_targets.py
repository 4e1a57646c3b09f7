"""allowAnonymousSender without any targets.

An anonymous sender names the address in each message, and each is held against `targets` or `targetPattern`. Without
them the link opens and every message is rejected, but for those that `allowReplies` lets pass.
"""

from collections.abc import Iterator

from policy.groups import REPLIES_KEY
from policy.lint.findings import Family, Finding, Level, PolicyText

ID = "PAL009"
TITLE = "anonymous sender without targets"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        has_targets = group.items("targets") or group.items("targetPattern")
        may_send = has_targets or group.is_true(REPLIES_KEY)
        if group.is_true("allowAnonymousSender") and not may_send:
            text = "every message of an anonymous sender is rejected: list 'targets', or remove the switch"
            yield group.finding(ID, Level.WARNING, text, "allowAnonymousSender")
