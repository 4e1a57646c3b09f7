"""An item of `remoteHosts` admits only addresses that the others admit anyway.

`*` admits every address, and a range all between its ends. Remove the item, or the wider one.
"""

from collections.abc import Iterator

from policy.analysis.host_sets import hosts_of, subtract
from policy.hosts import HostError, parse_hosts
from policy.lint.findings import About, Family, Finding, Level, PolicyText
from policy.lint.host_names import has_host_name

ID = "PAL019"
TITLE = "address already admitted"
FAMILY = Family.REACHABILITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        items = [item for item in group.items("remoteHosts") if not has_host_name(item)]
        remaining = items
        for item in items if len(items) > 1 else ():
            others = [other for other in remaining if other != item]
            if _is_covered(item, others):
                remaining = others
                text = f"'{item}' is admitted by the other items already: remove it"
                yield group.finding(ID, Level.NOTE, text, "remoteHosts", About(item=item))


def _is_covered(item: str, others: list[str]) -> bool:
    try:
        one, rest = (hosts_of(parse_hosts(items, _no_names)) for items in ([item], others))
    except HostError:
        return False
    return not subtract(one, rest)


def _no_names(_: str) -> tuple[str, ...]:
    return ()
