"""The set of bans: of an address or network, a user, or a user at an address. The daemon owns it, like usage.py.

Pure: the clock is an argument. A ban holds until its owner removes it. `due` says when, so that a ban ends together
with the entity that shows it. Source: docs/spec/policy-and-auth.md §3.15.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from math import inf
from typing import Final

from policy.hosts import HostError, HostRanges, parse_address, parse_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Stops a program that adds bans by management, but never removes them, from filling the memory.
MAX_MANUAL: Final = 10_000
# Stops an attacker with endless addresses from filling the memory with bans. The ban that ends first is removed.
MAX_AUTOMATIC: Final = 10_000
# The longest user name that authentication accepts (auth.credentials). A ban of a longer one could never match.
MAX_USER_CHARACTERS: Final = 1024
# Each log line and audit event repeats it.
MAX_REASON_CHARACTERS: Final = 512
MAX_SECONDS: Final = 100 * 365 * 86400

NOBODY: Final = HostRanges()


class BanError(Exception):
    """A ban is refused. str() gives the reason and the remedy. `attribute` is the one at fault."""

    def __init__(self, text: str, attribute: str | None = None) -> None:
        super().__init__(text)
        self.attribute = attribute


@dataclass(frozen=True, slots=True, kw_only=True)
class Ban:
    """One ban.

    name     unique
    network  the addresses to which it applies; None: all
    user     as authenticated, compared literally; None: every user from the network. At least one of the two is given
    until    monotonic seconds; `inf`: forever
    reason   for people; "" for none
    """

    name: str
    network: Network | None
    user: str | None
    until: float = inf
    reason: str = ""
    is_automatic: bool = False

    def matches(self, address: Address, user: str | None) -> bool:
        """Returns whether the ban applies to `user` at `address`. None is a user that is not known (yet)."""
        if self.user is not None and self.user != user:
            return False
        return self.network is None or (address.version == self.network.version and address in self.network)


def parse_ban(
    name: str, host: str | None, user: str | None, seconds: int | None, now: float, *, reason: str = ""
) -> Ban:
    """Returns a ban as an operator writes it. Errors: BanError.

    host     address or network; if a user is given too, both must match
    seconds  from `now` on; None: forever
    """
    if not host and not user:
        raise BanError("a ban names a remoteHost (an address or a network such as 10.0.0.0/8), a user, or both")
    network = None
    if host:
        try:
            network = parse_network(host)
        except HostError as error:
            raise BanError(f"remoteHost: {error}", "remoteHost") from None
        if network.prefixlen == 0 and not user:
            raise BanError(
                f"remoteHost: '{host}' is every address, that of whoever would lift the ban too: "
                "ban networks, or delete the listeners",
                "remoteHost",
            )
    if user and len(user) > MAX_USER_CHARACTERS:
        raise BanError(f"user: no user has a name of more than {MAX_USER_CHARACTERS} characters", "user")
    if seconds is not None and not 1 <= seconds <= MAX_SECONDS:
        raise BanError(f"seconds: {seconds} is not within 1 to {MAX_SECONDS}; leave it out for good", "seconds")
    if len(reason) > MAX_REASON_CHARACTERS:
        raise BanError(f"reason: it has {len(reason)} characters, and {MAX_REASON_CHARACTERS} at most", "reason")
    until = inf if seconds is None else now + seconds
    return Ban(name=name, network=network, user=user or None, until=until, reason=reason)


class _Networks:
    """Bans by network. A look-up costs one comparison for each prefix length in use, however many bans there are."""

    __slots__ = ("_anywhere", "_tables")

    def __init__(self) -> None:
        # family -> bits after the prefix -> prefix -> bans, in order of insertion
        self._tables: dict[int, dict[int, dict[int, list[Ban]]]] = {4: {}, 6: {}}
        self._anywhere: list[Ban] = []

    def add(self, ban: Ban) -> None:
        network = ban.network
        if network is None:
            self._anywhere.append(ban)
            return
        shift = network.max_prefixlen - network.prefixlen
        table = self._tables[network.version].setdefault(shift, {})
        table.setdefault(int(network.network_address) >> shift, []).append(ban)

    def remove(self, ban: Ban) -> None:
        network = ban.network
        if network is None:
            self._anywhere.remove(ban)
            return
        tables = self._tables[network.version]
        shift = network.max_prefixlen - network.prefixlen
        prefix = int(network.network_address) >> shift
        bans = tables[shift][prefix]
        bans.remove(ban)
        if not bans:
            del tables[shift][prefix]
        if not tables[shift]:
            del tables[shift]

    def matching(self, address: Address) -> Iterator[Ban]:
        number = int(address)
        for shift, table in self._tables[address.version].items():
            yield from table.get(number >> shift, ())
        yield from self._anywhere

    def __bool__(self) -> bool:
        return bool(self._anywhere or self._tables[4] or self._tables[6])


class BanSet:
    """The bans in force, found by address and by user, and how often each one applied.

    spared  hosts to which no automatic ban applies, not even one of their network
    """

    __slots__ = ("_automatic", "_bans", "_by_user", "_first_due", "_hits", "_hosts", "spared")

    def __init__(self, spared: HostRanges = NOBODY) -> None:
        self.spared = spared
        self._bans: dict[str, Ban] = {}
        self._automatic: dict[str, Ban] = {}  # in order of insertion
        self._hosts = _Networks()
        self._by_user: dict[str, _Networks] = {}
        self._hits: dict[str, int] = {}
        self._first_due = inf

    def __len__(self) -> int:
        return len(self._bans)

    def get(self, name: str) -> Ban | None:
        return self._bans.get(name)

    def add(self, ban: Ban) -> None:
        """Adds a ban. Errors: BanError if there are too many manual ones. For automatic ones see `displaced`."""
        if ban.name in self._bans:
            raise BanError(f"there is a ban '{ban.name}' already", "name")
        if not ban.is_automatic and len(self._bans) - len(self._automatic) >= MAX_MANUAL:
            raise BanError(f"there are {MAX_MANUAL} bans already: ban networks in place of single addresses")
        networks = self._hosts if ban.user is None else self._by_user.setdefault(ban.user, _Networks())
        networks.add(ban)
        self._bans[ban.name] = ban
        self._hits[ban.name] = 0
        if ban.is_automatic:
            self._automatic[ban.name] = ban
        self._first_due = min(self._first_due, ban.until)

    def remove(self, name: str) -> Ban | None:
        """Removes a ban and returns it. None if there is no such ban."""
        ban = self._bans.pop(name, None)
        if ban is None:
            return None
        if ban.user is None:
            self._hosts.remove(ban)
        else:
            networks = self._by_user[ban.user]
            networks.remove(ban)
            if not networks:
                del self._by_user[ban.user]
        self._automatic.pop(name, None)
        del self._hits[name]
        return ban

    def displaced(self) -> Ban | None:
        """Returns the automatic ban that must be removed before another is added. None while there is room.

        It is the oldest, and so the next to end. An attacker must be banned ten thousand times to displace one.
        """
        return next(iter(self._automatic.values())) if len(self._automatic) >= MAX_AUTOMATIC else None

    # Looking up

    def of_host(self, host: str) -> Ban | None:
        """Returns the ban of all users at the numeric address `host`. A text that is not an address has none."""
        return self._first(self._hosts, host) if self._hosts else None

    def of_user(self, host: str, user: str | None) -> Ban | None:
        """Returns the ban of `user` at `host`, or of all users there."""
        if user is not None and (networks := self._by_user.get(user)) is not None:
            found = self._first(networks, host)
            if found is not None:
                return found
        return self.of_host(host)

    def _first(self, networks: _Networks, host: str) -> Ban | None:
        try:
            address = parse_address(host)
        except ValueError:
            return None
        for ban in networks.matching(address):
            if not ban.is_automatic or not self.spared.contains(host):
                return ban
        return None

    # Counting

    def count_hit(self, ban: Ban) -> None:
        """Counts a connection that this ban refused or closed."""
        self._hits[ban.name] += 1

    def hits(self, name: str) -> int:
        return self._hits.get(name, 0)

    # Time

    def due(self, now: float) -> list[Ban]:
        """Returns the bans that have ended. They hold until they are removed."""
        if now < self._first_due:
            return []
        due = [ban for ban in self._bans.values() if ban.until <= now]
        if not due:
            self._first_due = min((ban.until for ban in self._bans.values()), default=inf)
        return due
