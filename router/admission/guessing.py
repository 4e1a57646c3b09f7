"""Slows down password guessing: calculates how long the answer to a login is delayed, by host and by user.

Pure: clock and random numbers are arguments. Source: docs/spec/policy-and-auth.md §8.11.

A host that fails often waits longer and longer, whatever user it claims. That does not stop an attack from many hosts
on one user, so failures are also counted by user name. This locks out no user. A host from which the user has logged in
is not slowed by failures at other hosts. A host that is new to the user waits some seconds at most. A right password
waits as long as a wrong one. Otherwise an attacker could disconnect when an answer is late, and try the next password.
Unknown names are counted like others, so the delay does not show which users exist.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from hashlib import blake2b
from ipaddress import IPv4Network, IPv6Network
from typing import Final, Generic, TypeVar

from policy.failures import SAMPLE, counted_as
from policy.hosts import HostRanges

# The number of failures without a delay: people mistype. For a user, all hosts that are new to the user share this
# number.
FREE_OF_HOST: Final = 3
FREE_OF_USER: Final = 10
# Failures are forgotten one by one, each after this time.
FORGET_S: Final = 30.0
FIRST_DELAY_S: Final = 0.25
# The number of remembered failures above the free ones. So a host or user is back to normal within minutes of an
# attack.
MAX_EXCESS: Final = 8
# Attack: hundreds of guesses in parallel, which all wait at the same time. This number of answers of one host is
# delayed. Further logins get no answer.
MAX_HELD_OF_HOST: Final = 8

# Attack: many hosts, or invented names, fill the memory: about 4 MB each. If there is no room, the router draws a few
# entries and drops the one with the fewest failures. So hosts and users under attack stay.
MAX_HOSTS: Final = 16_384
MAX_USERS: Final = 16_384
# The number of users with hosts from which they have logged in, and of hosts for each: those of the latest logins. Only
# a right password makes an entry, so a peer needs as many accounts to displace another user's entries. 16 MB at most.
MAX_KNOWN_USERS: Final = 4096
MAX_HOSTS_OF_USER: Final = 16
KNOWN_S: Final = 30 * 86_400.0

HostKey = IPv4Network | IPv6Network
Key = TypeVar("Key", bound=Hashable)


class _Level:
    """Counts failures: each adds one, and each FORGET_S removes one.

    place  its index in the list for random draws
    """

    __slots__ = ("_at", "_failures", "place")

    def __init__(self, place: int = 0) -> None:
        self._failures = 0.0
        self._at = 0.0
        self.place = place

    def at(self, now: float) -> float:
        return max(self._failures - (now - self._at) / FORGET_S, 0.0)

    def add(self, now: float, most: int) -> None:
        self._failures = min(self.at(now) + 1, most)
        self._at = now


class _Levels(Generic[Key]):
    """The failures of many hosts or users, in limited memory."""

    __slots__ = ("_choose", "_free", "_members", "_order", "_room")

    def __init__(self, free: int, room: int, choose: Callable[[int], int]) -> None:
        self._free = free
        self._room = room
        self._choose = choose
        self._members: dict[Key, _Level] = {}
        self._order: list[Key] = []

    def __len__(self) -> int:
        return len(self._order)

    def add(self, key: Key, now: float) -> None:
        level = self._members.get(key)
        if level is None:
            if len(self._order) >= self._room:
                self._make_room(now)
            level = self._members[key] = _Level(len(self._order))
            self._order.append(key)
        level.add(now, self._free + MAX_EXCESS)

    def excess(self, key: Key, now: float) -> float:
        """Returns the number of failures above the free ones."""
        level = self._members.get(key)
        return level.at(now) - self._free if level is not None else 0.0

    def _make_room(self, now: float) -> None:
        drawn = [self._order[self._choose(len(self._order))] for _ in range(SAMPLE)]
        least = min(drawn, key=lambda key: self._members[key].at(now))
        place, last = self._members.pop(least).place, self._order.pop()
        if last != least:
            self._order[place] = last
            self._members[last].place = place


class _KnownHost:
    """A host from which a user has logged in.

    failures  of this user at this host since then
    seen_at   the user's latest login there
    """

    __slots__ = ("failures", "seen_at")

    def __init__(self, now: float) -> None:
        self.failures = _Level()
        self.seen_at = now


class Guesses:
    """All recent failed logins. User names are stored as keyed digests.

    max_delay_s  0: nothing is counted or delayed
    spared       hosts that are never slowed, and whose failures do not count
    key          of the digests, random
    choose       n → a random number of 0 to n - 1 that no peer can predict
    """

    def __init__(
        self,
        max_delay_s: float,
        spared: HostRanges,
        key: bytes,
        choose: Callable[[int], int],
    ) -> None:
        self._max_delay_s = max_delay_s
        self._spared = spared
        self._key = key
        self._hosts: _Levels[HostKey] = _Levels(FREE_OF_HOST, MAX_HOSTS, choose)
        self._users: _Levels[bytes] = _Levels(FREE_OF_USER, MAX_USERS, choose)
        self._known: OrderedDict[bytes, OrderedDict[HostKey, _KnownHost]] = OrderedDict()
        self._held: dict[HostKey, int] = {}  # the number of delayed answers

    @property
    def size(self) -> int:
        """The number of entries of all kinds."""
        return len(self._hosts) + len(self._users) + sum(map(len, self._known.values())) + len(self._held)

    def fail(self, remote_host: str, user: str | None, now: float) -> None:
        """Counts a failed login.

        user  that the peer claimed; None: it did not claim one
        now   monotonic seconds, as in all functions here
        """
        host = self._counted(remote_host)
        if host is None:
            return
        self._hosts.add(host, now)
        if user is None:
            return
        digest = self._digest(user)
        known = self._known_host(digest, host, now)
        if known is not None:
            known.failures.add(now, FREE_OF_HOST + MAX_EXCESS)
        else:
            self._users.add(digest, now)

    def succeed(self, remote_host: str, user: str, now: float) -> None:
        """Notes that a user has logged in: this host is now known for the user.

        The failures stay counted. Otherwise an attacker with one account would log in between guesses at other users'
        passwords.
        """
        host = self._counted(remote_host)
        if host is None:
            return
        digest = self._digest(user)
        hosts = self._known.setdefault(digest, OrderedDict())
        known = hosts.setdefault(host, _KnownHost(now))
        known.seen_at = now
        hosts.move_to_end(host)
        self._known.move_to_end(digest)
        if len(hosts) > MAX_HOSTS_OF_USER:
            hosts.popitem(last=False)
        if len(self._known) > MAX_KNOWN_USERS:
            self._known.popitem(last=False)

    def delay(self, remote_host: str, user: str | None, now: float, *, is_wrong: bool) -> float:
        """Returns the seconds to delay the answer to a login.

        is_wrong  True if the answer is that the password is wrong; False if it is right, or not yet known
        """
        host = self._counted(remote_host)
        if host is None:
            return 0.0
        excess = self._hosts.excess(host, now)
        if user is not None:
            digest = self._digest(user)
            known = self._known_host(digest, host, now)
            if known is None:
                excess = max(excess, self._users.excess(digest, now))
            elif not is_wrong:
                # Only guesses at this user's own password count, not those of other users behind the same address.
                excess = known.failures.at(now) - FREE_OF_HOST
        return min(FIRST_DELAY_S * 2 ** (math.ceil(excess) - 1), self._max_delay_s) if excess > 0 else 0.0

    def hold(self, remote_host: str, user: str | None, now: float) -> Callable[[], None] | None:
        """Notes that an answer is delayed. Returns None if it must not be given at all: too many of the host wait.

        Returns  a function to call once, when the answer no longer waits
        """
        host = self._counted(remote_host)
        if host is None:
            return lambda: None
        count = self._held.get(host, 0)
        is_known = user is not None and self._known_host(self._digest(user), host, now) is not None
        if count >= MAX_HELD_OF_HOST and not is_known:
            return None
        self._held[host] = count + 1
        return lambda: self._let_go(host)

    def _let_go(self, host: HostKey) -> None:
        self._held[host] -= 1
        if not self._held[host]:
            del self._held[host]

    def _counted(self, remote_host: str) -> HostKey | None:
        """Returns the host as it is counted, or None if it is never slowed."""
        try:
            if not self._max_delay_s or self._spared.contains(remote_host):
                return None
            return counted_as(remote_host)
        except ValueError:
            return None

    def _digest(self, user: str) -> bytes:
        return blake2b(user.encode("utf-8", "surrogatepass"), key=self._key, digest_size=16).digest()

    def _known_host(self, digest: bytes, host: HostKey, now: float) -> _KnownHost | None:
        hosts = self._known.get(digest)
        known = hosts.get(host) if hosts is not None else None
        return known if known is not None and now - known.seen_at <= KNOWN_S else None


def nobody_guesses() -> Guesses:
    """Returns an instance that delays nothing."""
    return Guesses(0, HostRanges(), b"", lambda _count: 0)
