"""The connections that are accepted and not yet open: how many each host has, and the bytes held for them.

Pure: random numbers are arguments. Each host has its own limit. If all hosts together have too many connections, a
connection that has sent nothing is closed. It belongs to the host with most of such connections, or is drawn among
equal hosts. So a host with one connection can connect even while others keep all places taken. Source:
docs/spec/policy-and-auth.md §8.9.
"""

from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network
from typing import Final, Literal, NamedTuple

from policy.failures import counted_as

Scope = Literal["host", "all"]
HostKey = IPv4Network | IPv6Network  # a host as bans and verification count it

# The cost of a connection before its first byte: a socket, its transport and the objects around them.
CONNECTION_BYTES: Final = 8 * 1024
# The additional bytes for a connection inside TLS (46 KiB measured, and more while it answers), and for the engine
# after the begin of AMQP.
TLS_BYTES: Final = 64 * 1024
ENGINE_BYTES: Final = 24 * 1024
# Attack: 20,000 sockets that each leave a handshake, or a login of 64 KiB, unfinished. These are the limits for bytes
# held for all peers before they are known, and for one host.
MAX_BYTES: Final = 256 * 1024 * 1024
MAX_HOST_BYTES: Final = 128 * 1024 * 1024
# A host may always have this number: a router that accepts ten connections accepts all of them from one host.
FEW: Final = 16
# Attack: one host begins 1,500 TLS handshakes, each of which takes 4 ms (RSA 4096). This is the default limit of one
# host. It does not slow an office behind one address: this number is logged in within a second or two, and the others
# retry.
MOST_OF_HOST: Final = 256


class Excess(NamedTuple):
    """The limit was reached.

    connection_id  the connection to close: the one that was asked about, or one of a host that has more
    scope, limit   of one host or of all hosts; in connections or in bytes, depending on the call
    """

    connection_id: int
    scope: Scope
    limit: int


class _Host:
    """One host.

    connections  oldest first. `silent` contains those that have sent nothing
    bytes_held   for all of them
    """

    __slots__ = ("bytes_held", "connections", "key", "silent")

    def __init__(self, key: HostKey) -> None:
        self.key = key
        self.bytes_held = 0
        self.connections: dict[int, None] = {}
        self.silent: dict[int, None] = {}


class _Drawn:
    """A set of numbers from which one can be drawn."""

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
        """Removes a number. Does nothing if it is not a member."""
        if (place := self._places.pop(number, None)) is not None:
            last = self._order.pop()
            if last != number:
                self._order[place] = last
                self._places[last] = place

    def draw(self, choose: Callable[[int], int], but: int) -> int | None:
        """Draws a member other than `but`, which must be a member. None: there is no other."""
        others = len(self._order) - 1
        if others < 1:
            return None
        place = choose(others)
        return self._order[place if place < self._places[but] else place + 1]


class _Ranks:
    """Hosts by the magnitude (bits) of a number. Within a magnitude the earliest host comes first."""

    __slots__ = ("_hosts",)

    def __init__(self) -> None:
        self._hosts: dict[int, dict[HostKey, _Host]] = {}

    def move(self, host: _Host, before: int, after: int) -> None:
        """Notes that the number of a host changes from `before` to `after`."""
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
    """Counts the connections that are not yet open, and chooses the ones to close.

    max_of_host, max_of_all  0: the limit depends on the room that is left, and is at most MOST_OF_HOST for a host
    choose       n → a random number of 0 to n - 1 that no peer can predict
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
        """Counts an accepted socket until `leave`.

        room     the number of connections that may be added to the open ones
        Returns  the connection to close for it, which is no longer counted; None: none
        """
        key = counted_as(remote_host)
        host = self._hosts.get(key) or _Host(key)
        # One host may take half of the room, and all together three quarters, so that the next host always finds room.
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
        """Notes that the peer of the connection has sent something."""
        if (found := self._of.get(connection_id)) is not None:
            self._note_heard(found[0], connection_id)

    def hold(self, connection_id: int, size: int) -> Excess | None:
        """Sets the bytes held for a connection beyond CONNECTION_BYTES. Does nothing if it is not counted.

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
        """Removes a connection that is open, or gone. Does nothing if it is not counted."""
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
        """Returns the oldest connection of a host that holds most. Draws if no host holds more than this one's own."""
        magnitude, hosts = self._by_bytes.highest()
        if magnitude > own.bytes_held.bit_length():
            return next(iter(next(iter(hosts.values())).connections))
        if len(hosts) == 1:
            return connection_id
        return self._drawn(self._all, connection_id)

    def _to_go_for(self, own: _Host, connection_id: int) -> int:
        """Returns a connection that has sent nothing, of a host that has most of these.

        If no host has more of them than the new connection's own, draws one. If all have sent something, draws from
        all. If only the new connection's host has most, returns the new connection.
        """
        magnitude, hosts = self._by_silent.highest()
        if magnitude > len(own.silent).bit_length():
            return next(iter(next(iter(hosts.values())).silent))
        if len(hosts) == 1 and len(own.silent) > 1:
            return connection_id
        return self._drawn(self._silent if len(self._silent) > 1 else self._all, connection_id)

    def _drawn(self, members: _Drawn, connection_id: int) -> int:
        """Draws a member other than this connection. Returns this connection if there is no other."""
        drawn = members.draw(self.choose, connection_id)
        return drawn if drawn is not None else connection_id
