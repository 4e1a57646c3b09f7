"""`remoteHosts` has an address of IPv4 in the form of IPv6, or a range of IPv6 with such addresses in it.

A peer `::ffff:10.0.0.1` is the peer 10.0.0.1, on whatever listener it arrives, and so is the item `::ffff:10.0.0.1`. To
qdrouterd 1.20 the two are different: there the item admits only peers of a listener for both families, and a range like
`::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff` all of IPv4 that comes to one. Write IPv4 addresses as such.
"""

from collections.abc import Iterator

from policy.hosts import HostError, parse_address
from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL060"
TITLE = "IPv4 addresses in the form of IPv6"
FAMILY = Family.COMPATIBILITY

_MAPPED = (0xFFFF << 32, (0xFFFF << 32) + 2**32 - 1)


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        for item in group.items("remoteHosts"):
            if ":" in item and (text := _problem(item)) is not None:
                yield group.finding(ID, Level.NOTE, text, "remoteHosts", About(item=item))


def _problem(item: str) -> str | None:
    try:
        ends = [parse_address(end.strip(" ")) for end in item.split("-")]
    except (ValueError, HostError):
        return None  # a host name, or refused
    if all(end.version == 4 for end in ends):
        plain = "-".join(map(str, ends))
        return f"'{item}' admits '{plain}' on every listener; 1.20 admits it only as an address of IPv6"
    if ends[0].version == ends[-1].version and int(ends[0]) < _MAPPED[0] and int(ends[-1]) > _MAPPED[1]:
        return f"'{item}' admits no IPv4 address; in 1.20 it admits all that come to a listener for both families"
    return None
