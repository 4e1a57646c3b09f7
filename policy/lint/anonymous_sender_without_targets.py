"""allowAnonymousSender without any targets.

An anonymous sender names the address in each message, and each is held against `targets` or `targetPattern`. Without
them the link opens and every message is rejected.
"""

from collections.abc import Iterator

from policy.lint.findings import Family, Finding, Level, PolicyText

ID = "PAL009"
TITLE = "anonymous sender without targets"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        has_targets = group.items("targets") or group.items("targetPattern")
        if group.is_true("allowAnonymousSender") and not has_targets:
            text = "every message of an anonymous sender is rejected: list 'targets', or remove the switch"
            yield group.finding(ID, Level.WARNING, text, "allowAnonymousSender")
