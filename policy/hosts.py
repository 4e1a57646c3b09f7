"""`remoteHosts`: the network addresses from which a group's members may connect.

Pure: the caller's `resolve` looks up host names, once, when a ruleset is compiled.
Source: docs/spec/policy-and-auth.md §2.3. Networks in CIDR form, `10.0.0.0/8`, are an extension.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

# Host name -> its numeric addresses, each once. Raises OSError; the administrator sees its text.
Resolve = Callable[[str], Sequence[str]]

ANY_HOST = "*"
# The length of ::ffff:0:0/96, the network of the mapped IPv4 addresses.
_MAPPED_BITS = 96
_UNKNOWN_NAME = "[Errno -2] Name or service not known"


def is_loopback(host: str) -> bool:
    """Returns whether the host is a loopback address or the name `localhost`. Resolves no name.

    host  a numeric address without brackets, or a name
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class HostError(Exception):
    """An item is refused; str() is the `<host error>` of §2.3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRanges:
    """A compiled list: any address, or disjoint inclusive ranges in ascending order, per family."""

    is_any: bool = False
    v4: tuple[tuple[int, int], ...] = ()
    v6: tuple[tuple[int, int], ...] = ()

    def contains(self, host: str) -> bool:
        """Returns whether it contains the numeric address `host`.

        Raises ValueError if `host` is not a numeric address.
        """
        address = parse_address(host)
        if self.is_any:
            return True
        ranges = self.v4 if address.version == 4 else self.v6
        number = int(address)
        at = bisect_right(ranges, number, key=_low) - 1
        return at >= 0 and number <= ranges[at][1]


def parse_hosts(items: Iterable[str], resolve: Resolve) -> HostRanges:
    """Compiles the items of a `remoteHosts` list. Without items, no host is admitted.

    Errors  HostItemError, which names the item
    """
    is_any = False
    ranges: dict[int, list[tuple[int, int]]] = {4: [], 6: []}
    for item in items:
        if item == ANY_HOST:
            is_any = True
            continue
        try:
            low, high = _parse_range(item, resolve)
        except HostError as error:
            raise HostItemError(item, str(error)) from None
        ranges[low.version].append((int(low), int(high)))
    return HostRanges(is_any=is_any, v4=_merged(ranges[4]), v6=_merged(ranges[6]))


def names_in(items: Iterable[str]) -> Iterator[str]:
    """Yields the host names for which compiling these items will call `resolve`."""
    for item in items:
        if "/" not in item:
            for end in item.split("-"):
                name = end.strip(" ")
                if not _is_numeric(name) and _may_be_name(name):
                    yield name


def _is_numeric(name: str) -> bool:
    try:
        parse_address(name)
    except ValueError:
        return False
    return True


def _may_be_name(name: str) -> bool:
    # Neither a name nor a number: a network (10.0.0.0/8), a wildcard, a blank. Some resolvers turn these into
    # addresses.
    return bool(name) and not any(character in "/*" or character.isspace() for character in name)


class HostItemError(HostError):
    """Names the refused item and the reason."""

    def __init__(self, item: str, problem: str) -> None:
        super().__init__(f"connectionOption '{item}' failed to translate: '{problem}'.")


# One connection parses its peer's address a dozen times. Bounded: a peer chooses its address.
@lru_cache(maxsize=256)
def parse_address(host: str) -> IPv4Address | IPv6Address:
    """Returns a numeric address. An IPv4 address mapped into IPv6 (`::ffff:a.b.c.d`) becomes that IPv4 address.

    Otherwise a rule for 10.0.0.1 would not apply to the same peer on a listener for both families.
    """
    address = ip_address(host)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def parse_network(text: str) -> IPv4Network | IPv6Network:
    """Parses `10.0.0.0/8`, `2001:db8::/32`, or a single address; no host names. Errors: HostError.

    A network of IPv4 addresses mapped into IPv6 becomes that IPv4 network, as in `parse_address`.
    """
    if "/" not in text:
        try:
            return ip_network(parse_address(text))
        except ValueError:
            raise HostError(f"'{text}' is neither an address nor a network such as 10.0.0.0/8") from None
    address, _, length = text.partition("/")
    # Only a number: ip_network also accepts a netmask, in which a missing digit is easily overlooked.
    if not (length.isascii() and length.isdigit() and len(length) <= 3):
        raise HostError(f"'{text}' is no network: write it as 10.0.0.0/8 or 2001:db8::/32")
    try:
        network = ip_network(text)
    except ValueError as error:
        raise HostError(f"'{text}' is no network: {error}") from None
    low, high = parse_address(str(network[0])), parse_address(str(network[-1]))
    if low.version != high.version:
        raise HostError(f"'{address}' has IPv4 addresses in it and others: write two networks")
    if low.version != network.version:
        return ip_network((low, network.prefixlen - _MAPPED_BITS))
    return network


def _parse_range(item: str, resolve: Resolve) -> tuple[IPv4Address | IPv6Address, IPv4Address | IPv6Address]:
    if "/" in item:
        network = parse_network(item)
        return network[0], network[-1]
    ends = [end.strip(" ") for end in item.split("-")]
    if len(ends) > 2:
        raise HostError("hostspec must contain 1 or 2 host names")
    # A name is resolved once: two different answers would admit the whole range between them.
    low = _parse_host(ends[0], resolve)
    high = low if len(ends) == 1 else _parse_host(ends[1], resolve)
    if low.version != high.version:
        raise HostError("mixed IPv4 and IPv6 host specs in range not allowed")
    if int(low) > int(high):
        raise HostError("host specs in range must have lower numeric address first")
    return low, high


def _parse_host(name: str, resolve: Resolve) -> IPv4Address | IPv6Address:
    try:
        return parse_address(name)
    except ValueError:
        pass
    if not _may_be_name(name):
        raise HostError(f"HostStruct: '{name}' failed to resolve: '{_UNKNOWN_NAME}'")
    try:
        addresses = {parse_address(text) for text in resolve(name)}
    except (OSError, ValueError) as error:
        raise HostError(f"HostStruct: '{name}' failed to resolve: '{error}'") from None
    if len(addresses) == 1:
        return addresses.pop()
    problem = "did not resolve to one of the supported address family"
    if addresses:
        problem = "resolves to multiple IP addresses"
    raise HostError(f"HostStruct: '{name}' failed to resolve: 'HostStruct: '{name}' {problem}'")


def _low(bounds: tuple[int, int]) -> int:
    return bounds[0]


def _merged(ranges: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Joins overlapping and adjacent ranges, so that the nearest range that starts at or below an address decides."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)
