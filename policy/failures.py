"""Finds hosts whose logins fail too often: failures per remote host in a sliding window, in bounded memory.

Pure: the clock and the random choice are arguments. Source: docs/spec/policy-and-auth.md §3.15.

The counts are exact: no host is banned for another's failures. The price of bounded memory is that a failure may be
forgotten. An attacker gains from that only with more addresses than there is room for, all failing within one window.
Such an attacker has `limit` - 1 free attempts from each address anyway. The host to forget is chosen at random. If it
were the oldest, the attacker could use the addresses in turn, and each would be forgotten just before its next use.
Among a few random hosts the one with the fewest failures is forgotten, so that hosts close to the limit stay. If
instead new hosts had to wait for room, the attacker could fill the table once and then try from other addresses
uncounted.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from policy.attributes import InvalidValue, read_integer, read_items
from policy.ban_set import MAX_SECONDS, BanError
from policy.hosts import HostItemError, HostRanges, parse_address, parse_hosts

# Hosts with failures in the window: some 6 MB at ten failures each. Stops many source addresses from growing the table.
MAX_HOSTS: Final = 16_384
# The times of a host's failures are stored one by one. Stops a limit of a million from making each list that long.
MAX_LIMIT: Final = 100
MAX_WINDOW_S: Final = 86_400
MAX_DELAY_S: Final = 60
LIMIT_KEY: Final = "banAfterFailures"
# The attributes of the `policy` entity that form the rule.
FAILURE_KEYS: Final = (LIMIT_KEY, "banWindowSeconds", "banSeconds", "banAllowList")
# Random hosts among which the one to forget is chosen.
SAMPLE: Final = 5
# An IPv6 network of this length (RFC 4291 §2.5.1) belongs to one site, and every host in it may use any of its 2**64
# addresses: a count per address would be useless. Neighbours in it are banned too, as behind one IPv4 address.
V6_PREFIX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRule:
    """The settings for automatic bans.

    limit     failures that lead to a ban, 1 to MAX_LIMIT
    window_s  time in which they count, in seconds
    ban_s     duration of the ban, in seconds
    allowed   hosts whose failures are not counted
    """

    limit: int
    window_s: int
    ban_s: int
    allowed: HostRanges


def read_failure_rule(policy: Mapping[str, object]) -> FailureRule | None:
    """Returns the rule of a `policy` entity's attributes, None if it is off. Errors: BanError."""
    limit = _number(policy, LIMIT_KEY, 0, 0, MAX_LIMIT)
    window_s = _number(policy, "banWindowSeconds", 60, 1, MAX_WINDOW_S)
    ban_s = _number(policy, "banSeconds", 600, 1, MAX_SECONDS)
    allowed = read_allow_list(policy)
    return FailureRule(limit=limit, window_s=window_s, ban_s=ban_s, allowed=allowed) if limit else None


def read_max_delay(policy: Mapping[str, object]) -> int:
    """Returns the maximum delay of an answer to a login, in seconds; 0: no delay. Errors: BanError."""
    return _number(policy, "maxLoginDelaySeconds", 5, 0, MAX_DELAY_S)


def read_allow_list(policy: Mapping[str, object]) -> HostRanges:
    """Returns the hosts whose failures are not counted. Errors: BanError."""
    try:
        return parse_hosts(read_items(policy.get("banAllowList", "")), _no_names)
    except (HostItemError, InvalidValue) as error:
        raise BanError(f"banAllowList: {error}", "banAllowList") from None


def _no_names(_name: str) -> Sequence[str]:
    raise OSError("host names are not looked up here: write its address")


def _number(policy: Mapping[str, object], key: str, default: int, least: int, most: int) -> int:
    value = policy.get(key, default)
    try:
        number = read_integer(value, most)
    except InvalidValue as error:
        raise BanError(f"{key}: {error}", key) from None
    if number < least:
        raise BanError(f"{key}: Value '{value}' is below minimum '{least}'.", key)
    return number


class _Network4(IPv4Network):
    """A network that caches its hash: it is a key in half a dozen tables that each login uses."""

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._hash


class _Network6(IPv6Network):
    """An IPv6 network that caches its hash, like _Network4."""

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._hash


@lru_cache(maxsize=256)  # as parse_address
def counted_as(host: str) -> IPv4Network | IPv6Network:
    """Returns the network under which a numeric address is counted and banned: itself, or its /64.

    Raises ValueError.
    """
    address = parse_address(host)
    if address.version == 4:
        return _Network4(address)
    return _Network6((int(address) >> V6_PREFIX << V6_PREFIX, V6_PREFIX))


@lru_cache(maxsize=256)
def counted_text(host: str) -> str:
    """Returns the address of the network of `counted_as`. Raises ValueError."""
    return str(counted_as(host).network_address)


@dataclass(slots=True)
class _Host:
    """The failures of one host.

    times  of the failures, monotonic seconds, ascending; at most limit - 1
    place  its index in the list from which hosts are drawn
    """

    times: list[float]
    place: int


class FailureCounter:
    """Counts failures per host.

    choose  n → a random number from 0 to n - 1, which no peer can predict
    room    how many hosts are remembered
    """

    __slots__ = ("_choose", "_hosts", "_order", "_room", "rule")

    def __init__(self, rule: FailureRule, choose: Callable[[int], int], room: int = MAX_HOSTS) -> None:
        self.rule = rule
        self._choose = choose
        self._room = room
        self._hosts: dict[IPv4Network | IPv6Network, _Host] = {}
        self._order: list[IPv4Network | IPv6Network] = []

    def __len__(self) -> int:
        return len(self._hosts)

    def note(self, host: str, now: float) -> IPv4Network | IPv6Network | None:
        """Counts a failure of `host`. Returns the network to ban if this failure exceeded the limit, else None.

        The count of a banned network starts again at zero. A host that is not a numeric address is not counted.
        """
        rule = self.rule
        try:
            if rule.allowed.contains(host):
                return None
            network = counted_as(host)
        except ValueError:
            return None
        known = self._hosts.get(network)
        if known is None:
            if rule.limit == 1:
                return network
            self._remember(network, now)
            return None
        known.times = [time for time in known.times if time > now - rule.window_s]
        known.times.append(now)
        if len(known.times) < rule.limit:
            return None
        self._forget(network)
        return network

    def _remember(self, network: IPv4Network | IPv6Network, now: float) -> None:
        if len(self._order) >= self._room:
            self._forget(min((self._drawn() for _ in range(SAMPLE)), key=lambda each: self._weight(each, now)))
        self._hosts[network] = _Host(times=[now], place=len(self._order))
        self._order.append(network)

    def _drawn(self) -> IPv4Network | IPv6Network:
        return self._order[self._choose(len(self._order))]

    def _weight(self, network: IPv4Network | IPv6Network, now: float) -> tuple[int, float]:
        times = self._hosts[network].times
        return sum(time > now - self.rule.window_s for time in times), times[-1]

    def _forget(self, network: IPv4Network | IPv6Network) -> None:
        place = self._hosts.pop(network).place
        last = self._order.pop()
        if last != network:
            self._order[place] = last
            self._hosts[last].place = place
