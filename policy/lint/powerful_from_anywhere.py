"""A group with far-reaching rights may connect from anywhere.

A user who may send to management can reconfigure the router; one who may send and receive everywhere sees all messages.
A stolen password of such a user should be of no use outside your network: list addresses in `remoteHosts`.
"""

from collections.abc import Iterator

from policy.analysis.effort import RULE_STEPS, Effort, TooComplexError
from policy.lint.findings import Family, Finding, Level, PolicyText
from policy.lint.management_for_everybody import reaches_management

ID = "PAL007"
TITLE = "far-reaching rights from anywhere"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    effort = Effort(RULE_STEPS)
    for group in policy.groups:
        if "*" not in group.items("remoteHosts"):
            continue
        is_unlimited = group.is_unlimited("sources", "sourcePattern") and group.is_unlimited("targets", "targetPattern")
        try:
            is_powerful = is_unlimited or reaches_management(group, effort)
        except TooComplexError as error:
            text = error.about("members may send to management, from anywhere")
            yield group.finding(ID, Level.WARNING, text, "remoteHosts")
            continue
        if is_powerful:
            rights = "send and receive everywhere" if is_unlimited else "send to management"
            text = f"members may {rights}, and connect from anywhere: list addresses instead of '*'"
            yield group.finding(ID, Level.WARNING, text, "remoteHosts")
