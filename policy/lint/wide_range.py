"""A range in `remoteHosts` is wider than any one network.

More than 2^24 IPv4 addresses, a /8, or more than a /32 of IPv6 (2^96), is mostly a slip in one number. List the
networks that are meant; `*` says it plainly where everybody is.
"""

from collections.abc import Iterator
from functools import lru_cache

from policy.analysis.host_sets import hosts_of
from policy.hosts import ANY_HOST, HostError, parse_hosts
from policy.lint.findings import About, Confidence, Family, Finding, Level, PolicyText
from policy.lint.host_names import has_host_name

ID = "PAL026"
TITLE = "very wide range of addresses"
FAMILY = Family.SECURITY


_WIDEST = {4: 2**24, 6: 2**96}


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        for item in group.items("remoteHosts"):
            if _is_wide(item):
                text = f"'{item}' is wider than any one network: list the networks"
                about = About(item=item, confidence=Confidence.LIKELY)
                yield group.finding(ID, Level.WARNING, text, "remoteHosts", about)


# The same networks stand in many groups.
@lru_cache(maxsize=65536)
def _is_wide(item: str) -> bool:
    if item == ANY_HOST or has_host_name(item):
        return False
    try:
        ranges = hosts_of(parse_hosts([item], _no_names))
    except HostError:
        return False
    return any(high - low + 1 > _WIDEST[version] for version, low, high in ranges)


def _no_names(_: str) -> tuple[str, ...]:
    return ()
