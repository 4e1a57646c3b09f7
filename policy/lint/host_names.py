"""`remoteHosts` has a host name.

The router asks the resolver once, when the vhost is loaded, and keeps the address: a host that moves is refused until
the vhost is loaded again, the router does not start while the name cannot be resolved, and an attacker who can change
the answer decides which hosts may connect. Write the address.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

from policy.hosts import HostError, parse_hosts
from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL016"
TITLE = "host name in remoteHosts"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        for item in group.items("remoteHosts"):
            if has_host_name(item):
                text = f"'{item}' is looked up once, when the vhost is loaded: write the address"
                yield group.finding(ID, Level.WARNING, text, "remoteHosts", About(item=item))


@lru_cache(maxsize=65536)
def has_host_name(item: str) -> bool:
    """Would the router have to ask the resolver about this item?"""
    try:
        parse_hosts([item], _meet_name)
    except _NameMetError:
        return True
    except HostError:
        return False
    return False


class _NameMetError(Exception):
    pass


def _meet_name(_: str) -> Sequence[str]:
    raise _NameMetError
