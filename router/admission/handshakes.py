"""The connections on their way in: accepted, and not yet open. How many each host has, and the bytes held for them.

Pure: chance is an argument. Each host pays for itself: one that has too many gets no more. When all together have too
many, one makes way that has said nothing, of the host that has most of those; among equals it is drawn. So a host with
one connection comes in, whatever those do who keep all places taken. Source: docs/spec/policy-and-auth.md §8.9.
"""

from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network
from typing import Final, Literal, NamedTuple

from policy.failures import counted_as

Scope = Literal["host", "all"]
HostKey = IPv4Network | IPv6Network  # a host as it is counted for bans and verification

# What one connection costs before its first byte: a socket, its transport and the objects around them.
CONNECTION_BYTES: Final = 8 * 1024
# What is held besides for a connection inside TLS (46 KiB measured, and more while it answers), and for the engine of
# one that has begun AMQP.
TLS_BYTES: Final = 64 * 1024
ENGINE_BYTES: Final = 24 * 1024
# Attack: 20,000 sockets that each leave a handshake, or a login of 64 KiB, unfinished. What all peers may make the
# router hold before they are known, and what one host may.
MAX_BYTES: Final = 256 * 1024 * 1024
MAX_HOST_BYTES: Final = 128 * 1024 * 1024
# A host may always have so many: a router that takes ten connections takes all of them from one host.
FEW: Final = 16
# Attack: one host begins 1,500 TLS handshakes, each of which takes 4 ms (RSA 4096). By default it has so many at most.
# An office behind one address is not slowed by that: so many are logged in within a second or two, and the others come
# again.
MOST_OF_HOST: Final = 256


class Excess(NamedTuple):
    """The limit was reached.

    connection_id  the connection that has to go: the one that was asked about, or one of a host that has more
    scope, limit   of one host or of all; in connections or in bytes, as was asked
    """

    connection_id: int
    scope: Scope
    limit: int


class _Host:
    """connections  oldest first; `silent` are those of them that have said nothing
    bytes_held   for all of them
    """

    __slots__ = ("bytes_held", "connections", "key", "silent")

    def __init__(self, key: HostKey) -> None:
        self.key = key
        self.bytes_held = 0
        self.connections: dict[int, None] = {}
        self.silent: dict[int, None] = {}


class _Drawn:
    """Numbers of which one can be drawn."""

    __slots__ = ("_order", "_places")

    def __init__(self) -> None:
        self._order: list[int] = []
        self._places: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._order)

    def add(self, number: int) -> None:
        self._places[number] = len(self._order)
        self._order.append(number)

    def remove(self, number: int) -> None:
        """One that is not there is none."""
        if (place := self._places.pop(number, None)) is not None:
            last = self._order.pop()
            if last != number:
                self._order[place] = last
                self._places[last] = place

    def draw(self, choose: Callable[[int], int], but: int) -> int | None:
        """None: there is no other than `but`, a member, which is not drawn."""
        others = len(self._order) - 1
        if others < 1:
            return None
        place = choose(others)
        return self._order[place if place < self._places[but] else place + 1]


class _Ranks:
    """Hosts by the magnitude (bits) of what they have; in each those that came first stand first."""

    __slots__ = ("_hosts",)

    def __init__(self) -> None:
        self._hosts: dict[int, dict[HostKey, _Host]] = {}

    def move(self, host: _Host, before: int, after: int) -> None:
        """What it has changes from `before` to `after`."""
        old, new = before.bit_length(), after.bit_length()
        if old == new:
            return
        if old:
            rank = self._hosts[old]
            del rank[host.key]
            if not rank:
                del self._hosts[old]
        if new:
            self._hosts.setdefault(new, {})[host.key] = host

    def highest(self) -> tuple[int, dict[HostKey, _Host]]:
        magnitude = max(self._hosts)
        return magnitude, self._hosts[magnitude]


class Handshakes:
    """max_of_host, max_of_all  0: as many as the room that is left allows, and of a host MOST_OF_HOST at most
    choose       n → a number of 0 to n - 1, drawn so that no peer can foresee it
    """

    def __init__(
        self, max_of_host: int = 0, max_of_all: int = 0, choose: Callable[[int], int] = lambda _count: 0
    ) -> None:
        self.max_of_host = max_of_host
        self.max_of_all = max_of_all
        self.bytes_held = 0
        self.choose = choose
        self._hosts: dict[HostKey, _Host] = {}
        self._of: dict[int, tuple[_Host, int]] = {}  # connection -> its host, and the bytes held for it
        self._all, self._silent = _Drawn(), _Drawn()
        self._by_bytes, self._by_silent = _Ranks(), _Ranks()

    @property
    def count(self) -> int:
        return len(self._of)

    def __contains__(self, connection_id: int) -> bool:
        return connection_id in self._of

    def count_of(self, remote_host: str) -> int:
        host = self._hosts.get(counted_as(remote_host))
        return len(host.connections) if host is not None else 0

    def enter(self, connection_id: int, remote_host: str, room: int) -> Excess | None:
        """A socket was accepted, and is counted until `leave`.

        room     for connections, which those that are open leave
        Returns  who has to go for it, and is not counted any more
        """
        key = counted_as(remote_host)
        host = self._hosts.get(key) or _Host(key)
        # A host may take half of what is left and all together three quarters: the next host finds room at any time.
        of_host = self.max_of_host or min(max(room // 2, FEW), MOST_OF_HOST)
        of_host = min(of_host, MAX_HOST_BYTES // CONNECTION_BYTES)
        of_all = min(self.max_of_all or max(room * 3 // 4, FEW), MAX_BYTES // CONNECTION_BYTES)
        if len(host.connections) >= of_host:
            return Excess(connection_id, "host", of_host)
        if host.bytes_held + CONNECTION_BYTES > MAX_HOST_BYTES:
            return Excess(connection_id, "host", len(host.connections))
        self._hosts[key] = host
        host.connections[connection_id] = None
        self._of[connection_id] = (host, 0)
        self._all.add(connection_id)
        self._by_silent.move(host, len(host.silent), len(host.silent) + 1)
        host.silent[connection_id] = None
        self._silent.add(connection_id)
        self._weigh(host, CONNECTION_BYTES)
        if self.bytes_held > MAX_BYTES:
            return self._excess(self._to_go_for_bytes(host, connection_id), "all", len(self._of) - 1)
        if len(self._of) > of_all:
            return self._excess(self._to_go_for(host, connection_id), "all", min(of_all, len(self._of) - 1))
        return None

    def hear(self, connection_id: int) -> None:
        """Its peer has said something."""
        if (found := self._of.get(connection_id)) is not None:
            self._note_heard(found[0], connection_id)

    def hold(self, connection_id: int, size: int) -> Excess | None:
        """So many bytes are held for a connection now, beyond CONNECTION_BYTES. One that is not counted is none.

        Returns  as `enter`
        """
        if (found := self._of.get(connection_id)) is None or found[1] == size:
            return None
        host, before = found
        self._of[connection_id] = (host, size)
        self._weigh(host, size - before)
        if size < before:
            return None
        if host.bytes_held > MAX_HOST_BYTES:
            return self._excess(connection_id, "host", MAX_HOST_BYTES)
        if self.bytes_held > MAX_BYTES:
            return self._excess(self._to_go_for_bytes(host, connection_id), "all", MAX_BYTES)
        return None

    def _excess(self, connection_id: int, scope: Scope, limit: int) -> Excess:
        self.leave(connection_id)
        return Excess(connection_id, scope, limit)

    def leave(self, connection_id: int) -> None:
        """The connection is open, or gone. One that is not counted is none."""
        if (found := self._of.pop(connection_id, None)) is None:
            return
        host, held = found
        del host.connections[connection_id]
        self._all.remove(connection_id)
        self._note_heard(host, connection_id)
        self._weigh(host, -held - CONNECTION_BYTES)
        if not host.connections:
            del self._hosts[host.key]

    def _note_heard(self, host: _Host, connection_id: int) -> None:
        if connection_id in host.silent:
            self._by_silent.move(host, len(host.silent), len(host.silent) - 1)
            del host.silent[connection_id]
            self._silent.remove(connection_id)

    def _weigh(self, host: _Host, more: int) -> None:
        self._by_bytes.move(host, host.bytes_held, host.bytes_held + more)
        host.bytes_held += more
        self.bytes_held += more

    def _to_go_for_bytes(self, own: _Host, connection_id: int) -> int:
        """The oldest connection of a host that holds most; drawn where none holds more than this one's own."""
        magnitude, hosts = self._by_bytes.highest()
        if magnitude > own.bytes_held.bit_length():
            return next(iter(next(iter(hosts.values())).connections))
        if len(hosts) == 1:
            return connection_id
        return self._drawn(self._all, connection_id)

    def _to_go_for(self, own: _Host, connection_id: int) -> int:
        """A connection that has said nothing: of a host that has most of these, or drawn where none has more than the
        newcomer's own. Where all have said something it is drawn from all; the newcomer, where its host alone has most.
        """
        magnitude, hosts = self._by_silent.highest()
        if magnitude > len(own.silent).bit_length():
            return next(iter(next(iter(hosts.values())).silent))
        if len(hosts) == 1 and len(own.silent) > 1:
            return connection_id
        return self._drawn(self._silent if len(self._silent) > 1 else self._all, connection_id)

    def _drawn(self, members: _Drawn, connection_id: int) -> int:
        """Another one of them than this; this where there is no other."""
        drawn = members.draw(self.choose, connection_id)
        return drawn if drawn is not None else connection_id
