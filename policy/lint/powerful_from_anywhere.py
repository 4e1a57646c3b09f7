"""A group with far-reaching rights may connect from anywhere.

A user who may send to management can reconfigure the router; one who may send and receive everywhere sees all messages.
A stolen password of such a user should be of no use outside your network: list addresses in `remoteHosts`. Every
address of IPv4 or of IPv6, `0.0.0.0/0` or `::/0`, is anywhere as well as `*` is.
"""

from collections.abc import Iterator
from functools import lru_cache

from policy.analysis.effort import RULE_STEPS, Effort, TooComplexError
from policy.analysis.host_sets import ALL_HOSTS, hosts_of, subtract
from policy.hosts import ANY_HOST, HostError, parse_hosts
from policy.lint.findings import Family, Finding, Level, PolicyText
from policy.lint.management_for_everybody import reaches_management

ID = "PAL007"
TITLE = "far-reaching rights from anywhere"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    effort = Effort(RULE_STEPS)
    for group in policy.groups:
        hosts = group.items("remoteHosts")
        if not _is_anywhere(hosts):
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
            text = f"members may {rights}, and connect from anywhere: list addresses instead of '{', '.join(hosts)}'"
            yield group.finding(ID, Level.WARNING, text, "remoteHosts")


# The same networks stand in many groups.
@lru_cache(maxsize=65536)
def _is_anywhere(items: tuple[str, ...]) -> bool:
    """Do the items admit every address of IPv4, or every one of IPv6?"""
    if ANY_HOST in items:
        return True
    try:
        hosts = hosts_of(parse_hosts(items, lambda _: ("127.0.0.1",)))
    except HostError:  # PAL001 tells of it
        return False
    return {version for version, _, _ in subtract(ALL_HOSTS, hosts)} != {4, 6}
