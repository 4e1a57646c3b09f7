"""The connections on their way in: accepted, and not yet open. How many each host has, and the bytes held for them.

Pure. Each host pays for itself: one that has too many gets no more, and when all together have too many, the host that
has most gives one up. Source: docs/spec/policy-and-auth.md §8.9.
"""

from ipaddress import IPv4Network, IPv6Network
from itertools import islice
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
# A host that has no more than a newcomer's keeps its connection for so long: hosts that all come at the same time, for
# the router was started anew, would else push each other out, and none came in.
GRACE_S: Final = 5.0


class Excess(NamedTuple):
    """The limit was reached.

    connection_id  the connection that has to go: the one that was asked about, or one of a host that has more
    scope, limit   of one host or of all; in connections or in bytes, as was asked
    """

    connection_id: int
    scope: Scope
    limit: int


class _Host:
    """since    connection -> when it came, monotonic seconds, oldest first
    bytes_held  of all of them
    """

    __slots__ = ("bytes_held", "key", "since")

    def __init__(self, key: HostKey) -> None:
        self.key = key
        self.since: dict[int, float] = {}
        self.bytes_held = 0


class Handshakes:
    """max_of_host, max_of_all  0: as many as the room that is left allows"""

    def __init__(self, max_of_host: int = 0, max_of_all: int = 0) -> None:
        self.max_of_host = max_of_host
        self.max_of_all = max_of_all
        self.bytes_held = 0
        self._hosts: dict[HostKey, _Host] = {}
        self._of: dict[int, tuple[_Host, int]] = {}  # connection -> its host, and the bytes held for it
        # Hosts by the magnitude (bits) of what is held for them; in each those that came first stand first.
        self._ranks: dict[int, dict[HostKey, _Host]] = {}

    @property
    def count(self) -> int:
        return len(self._of)

    def __contains__(self, connection_id: int) -> bool:
        return connection_id in self._of

    def count_of(self, remote_host: str) -> int:
        host = self._hosts.get(counted_as(remote_host))
        return len(host.since) if host is not None else 0

    def enter(self, connection_id: int, remote_host: str, now: float, room: int) -> Excess | None:
        """A socket was accepted, and is counted until `leave`.

        room     for connections, which those that are open leave
        Returns  who has to go for it, and is not counted any more
        """
        key = counted_as(remote_host)
        host = self._hosts.get(key) or _Host(key)
        # A host may take half of what is left and all together three quarters: the next host finds room at any time.
        of_host = min(self.max_of_host or max(room // 2, FEW), MAX_HOST_BYTES // CONNECTION_BYTES)
        of_all = min(self.max_of_all or max(room * 3 // 4, FEW), MAX_BYTES // CONNECTION_BYTES)
        if len(host.since) >= of_host:
            return Excess(connection_id, "host", of_host)
        if host.bytes_held + CONNECTION_BYTES > MAX_HOST_BYTES:
            return Excess(connection_id, "host", len(host.since))
        self._hosts[key] = host
        host.since[connection_id] = now
        self._of[connection_id] = (host, 0)
        self._weigh(host, CONNECTION_BYTES)
        if len(self._of) > of_all or self.bytes_held > MAX_BYTES:
            return self._excess(self._to_go_for(host, connection_id, now), "all", min(of_all, len(self._of) - 1))
        return None

    def hold(self, connection_id: int, size: int, now: float) -> Excess | None:
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
            return self._excess(self._to_go_for(host, connection_id, now), "all", MAX_BYTES)
        return None

    def _excess(self, connection_id: int, scope: Scope, limit: int) -> Excess:
        self.leave(connection_id)
        return Excess(connection_id, scope, limit)

    def leave(self, connection_id: int) -> None:
        """The connection is open, or gone. One that is not counted is none."""
        if (found := self._of.pop(connection_id, None)) is None:
            return
        host, held = found
        del host.since[connection_id]
        self._weigh(host, -held - CONNECTION_BYTES)
        if not host.since:
            del self._hosts[host.key]

    def _weigh(self, host: _Host, more: int) -> None:
        before = host.bytes_held.bit_length()
        host.bytes_held += more
        self.bytes_held += more
        after = host.bytes_held.bit_length()
        if before == after:
            return
        if before:
            rank = self._ranks[before]
            del rank[host.key]
            if not rank:
                del self._ranks[before]
        if after:
            self._ranks.setdefault(after, {})[host.key] = host

    def _to_go_for(self, own: _Host, connection_id: int, now: float) -> int:
        """The oldest connection of a host that has most; this one where no host has more than its own."""
        highest, rank = max(self._ranks), own.bytes_held.bit_length()
        for host in islice(self._ranks[highest].values(), 2):
            oldest, since = next(iter(host.since.items()))
            if host is not own and (highest > rank or now - since >= GRACE_S):
                return oldest
        return connection_id
