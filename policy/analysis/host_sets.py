"""Sets of network addresses, to find the hosts that one remoteHosts list admits and another does not.

Pure. An IPv6 address that is a mapped IPv4 address counts as that IPv4 address, as in hosts.py.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from policy.hosts import HostRanges

Ranges = tuple[tuple[int, int], ...]
Hosts = tuple[tuple[int, int, int], ...]  # (4 or 6, low, high), disjoint, ascending

_ALL: Final = {4: (0, 2**32 - 1), 6: (0, 2**128 - 1)}
_MAPPED: Final = (0xFFFF << 32, (0xFFFF << 32) + 2**32 - 1)
ALL_HOSTS: Final = ((4, *_ALL[4]), (6, 0, _MAPPED[0] - 1), (6, _MAPPED[1] + 1, _ALL[6][1]))


def hosts_of(ranges: HostRanges) -> Hosts:
    if ranges.is_any:
        return ALL_HOSTS
    v6 = _subtracted(ranges.v6, (_MAPPED,))
    return (*((4, low, high) for low, high in ranges.v4), *((6, low, high) for low, high in v6))


def subtract(hosts: Hosts, others: Hosts) -> Hosts:
    """Returns the addresses of `hosts` that are not in `others`."""
    return tuple(
        (version, low, high)
        for version in (4, 6)
        for low, high in _subtracted(_of(hosts, version), _of(others, version))
    )


def intersect(hosts: Hosts, others: Hosts) -> Hosts:
    return subtract(hosts, subtract(hosts, others))


def first_host(hosts: Hosts) -> str:
    """Returns one of the hosts, in numbers; 0.0.0.0 and :: only if there is no other."""
    version, low, high = hosts[0]
    number = low + 1 if low == 0 and high > 0 else low
    return str(IPv4Address(number) if version == 4 else IPv6Address(number))


def shown_hosts(hosts: Hosts) -> tuple[str, ...]:
    """Returns the hosts as `remoteHosts` items."""
    if hosts == ALL_HOSTS:
        return ("*",)
    shown = []
    for version, low, high in hosts:
        ends = [str(IPv4Address(number) if version == 4 else IPv6Address(number)) for number in (low, high)]
        shown.append(ends[0] if low == high else f"{ends[0]}-{ends[1]}")
    return tuple(shown)


def _of(hosts: Hosts, version: int) -> Ranges:
    return tuple((low, high) for family, low, high in hosts if family == version)


def _subtracted(ranges: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> Ranges:
    """Subtracts ranges; both lists are ascending and disjoint. The cost is proportional to their lengths."""
    found: list[tuple[int, int]] = []
    at = 0
    for low, high in ranges:
        while at < len(others) and others[at][1] < low:
            at += 1
        index = at
        while index < len(others) and others[index][0] <= high:
            if others[index][0] > low:
                found.append((low, others[index][0] - 1))
            low = max(low, others[index][1] + 1)
            index += 1
        if low <= high:
            found.append((low, high))
    return tuple(found)
