"""Counts open connections and denials. Together with ban_set.py and failures.py, this is all state of policy.

Its one owner is the daemon. There is no await between a decision and `admit`, so a burst of connections cannot pass a
limit.
Source: docs/spec/policy-and-auth.md §1.1, §1.4, §4.
"""

from dataclasses import dataclass, field
from typing import Final, Literal

from policy.facts import Usage
from policy.hosts import parse_address

# How many users, and hosts, without a connection a vhost remembers for perUserState and perHostState. Stops a peer with
# endless addresses or names from filling the router's memory.
MAX_IDLE_ENTRIES: Final = 1000


@dataclass(slots=True)
class _Names:
    """Connection names with their number of uses: one `ip:port` may be connected to two listeners."""

    count: int = 0
    times: dict[str, int] = field(default_factory=dict)

    def add(self, name: str) -> None:
        self.times[name] = self.times.get(name, 0) + 1
        self.count += 1

    def remove(self, name: str) -> None:
        """Removes a name that was added."""
        self.count -= 1
        self.times[name] -= 1
        if not self.times[name]:
            del self.times[name]

    def listed(self) -> list[str]:
        return [name for name, times in self.times.items() for _ in range(times)]


@dataclass(slots=True)
class _VhostUsage:
    """The counts of one vhost, and the connections of every user and host."""

    approved: int = 0
    denied: int = 0
    current: int = 0
    sessions_denied: int = 0
    senders_denied: int = 0
    receivers_denied: int = 0
    oversize: int = 0
    by_user: dict[str, _Names] = field(default_factory=dict)
    by_host: dict[str, _Names] = field(default_factory=dict)
    idle_users: dict[str, None] = field(default_factory=dict)  # oldest first
    idle_hosts: dict[str, None] = field(default_factory=dict)


class UsageLedger:
    """Counts accepted connections, and connections of every vhost that has ever existed."""

    __slots__ = ("_denied", "_links_denied", "_oversize", "_processed", "_total_denials", "_vhosts", "open_connections")

    def __init__(self) -> None:
        self.open_connections = 0  # accepted and not closed yet, with or without policy
        self._processed = 0
        self._denied = 0
        self._links_denied = 0
        self._oversize = 0
        self._total_denials = 0
        self._vhosts: dict[str, _VhostUsage] = {}

    def count_accept(self, is_allowed: bool) -> None:
        """Counts a socket that was accepted, or that the policy's maxConnections refused."""
        self._processed += 1
        if is_allowed:
            self.open_connections += 1
        else:
            self._denied += 1
            self._total_denials += 1

    def count_accept_closed(self) -> None:
        """Counts the end of an accepted connection.

        Never call it for outgoing ones: a count below zero would lock out every client.
        """
        if self.open_connections > 0:
            self.open_connections -= 1

    def usage(self, vhost: str, user: str, host: str) -> Usage:
        """Returns the counts for a decision on a connection of `user` from `host`."""
        counts = self._vhosts.get(vhost)
        if counts is None:
            return Usage()
        of_user, of_host = counts.by_user.get(user), counts.by_host.get(_host_key(host))
        return Usage(
            total=counts.current,
            of_user=of_user.count if of_user is not None else 0,
            of_host=of_host.count if of_host is not None else 0,
        )

    def admit(self, vhost: str, user: str, host: str, connection_name: str) -> None:
        """Counts an approved Open.

        connection_name  "ip:port" of the peer
        """
        counts = self._counts(vhost)
        counts.approved += 1
        counts.current += 1
        _add(counts.by_user, counts.idle_users, user, connection_name)
        _add(counts.by_host, counts.idle_hosts, _host_key(host), connection_name)

    def release(self, vhost: str, user: str, host: str, connection_name: str) -> None:
        """Counts the end of an approved connection. The arguments are those of its `admit`; any others are ignored."""
        counts = self._vhosts.get(vhost)
        if counts is None:
            return
        of_user, of_host = counts.by_user.get(user), counts.by_host.get(_host_key(host))
        if of_user is None or connection_name not in of_user.times:
            return
        if of_host is None or connection_name not in of_host.times:
            return
        counts.current -= 1
        _remove(counts.by_user, counts.idle_users, user, connection_name)
        _remove(counts.by_host, counts.idle_hosts, _host_key(host), connection_name)

    def count_open_denied(self, vhost: str) -> None:
        """Counts an Open that was denied inside a vhost: once, even if it reached several limits."""
        self._counts(vhost).denied += 1

    def count_session_denied(self, vhost: str | None) -> None:
        self._total_denials += 1
        if vhost is not None:
            self._counts(vhost).sessions_denied += 1

    def count_link_denied(self, vhost: str | None, direction: Literal["send", "receive"]) -> None:
        self._links_denied += 1
        self._total_denials += 1
        if vhost is None:
            return
        counts = self._counts(vhost)
        if direction == "send":
            counts.senders_denied += 1
        else:
            counts.receivers_denied += 1

    def count_oversize(self, vhost: str | None) -> None:
        """Counts a delivery that exceeded maxMessageSize: once per delivery."""
        self._oversize += 1
        self._total_denials += 1
        if vhost is not None:
            self._counts(vhost).oversize += 1

    def ensure_vhost(self, name: str) -> None:
        """Creates the vhost's statistics. They outlive the vhost."""
        self._counts(name)

    def vhost_names(self) -> tuple[str, ...]:
        return tuple(self._vhosts)

    def has_vhost(self, name: str) -> bool:
        return name in self._vhosts

    def policy_counters(self) -> dict[str, int]:
        """Returns the statistics of the `policy` entity."""
        return {
            "connectionsProcessed": self._processed,
            "connectionsDenied": self._denied,
            "connectionsCurrent": self.open_connections,
            "linksDenied": self._links_denied,
            "maxMessageSizeDenied": self._oversize,
            "totalDenials": self._total_denials,
        }

    def vhost_stats(self, name: str) -> dict[str, object]:
        """Returns the attributes of the vhost's `vhostStats` entity. Raises KeyError for a vhost that never existed."""
        counts = self._vhosts[name]
        return {
            "hostname": name,
            "id": name,
            "connectionsApproved": counts.approved,
            "connectionsDenied": counts.denied,
            "connectionsCurrent": counts.current,
            "perUserState": {user: names.listed() for user, names in counts.by_user.items()},
            "perHostState": {host: names.listed() for host, names in counts.by_host.items()},
            **self.vhost_denials(name),
        }

    def vhost_connections(self, name: str) -> int:
        """Returns the number of a vhost's connections. Raises KeyError for a vhost that never existed."""
        return self._vhosts[name].current

    def vhost_denials(self, name: str) -> dict[str, int]:
        """Returns the denials on a vhost's connections. Unlike `vhost_stats`, its cost does not depend on their number.

        Raises KeyError for a vhost that never existed.
        """
        counts = self._vhosts[name]
        return {
            "sessionDenied": counts.sessions_denied,
            "senderDenied": counts.senders_denied,
            "receiverDenied": counts.receivers_denied,
            "maxMessageSizeDenied": counts.oversize,
        }

    def _counts(self, name: str) -> _VhostUsage:
        counts = self._vhosts.get(name)
        if counts is None:
            counts = self._vhosts[name] = _VhostUsage()
        return counts


def _host_key(host: str) -> str:
    """Returns one key per peer, for an IPv4 address as well as for the same address mapped into IPv6."""
    if not host.lower().startswith("::ffff:"):
        return host
    try:
        return str(parse_address(host))
    except ValueError:
        return host


def _add(names: dict[str, _Names], idle: dict[str, None], key: str, connection_name: str) -> None:
    idle.pop(key, None)
    names.setdefault(key, _Names()).add(connection_name)


def _remove(names: dict[str, _Names], idle: dict[str, None], key: str, connection_name: str) -> None:
    entry = names[key]
    entry.remove(connection_name)
    if entry.count:
        return
    idle[key] = None
    if len(idle) > MAX_IDLE_ENTRIES:
        oldest = next(iter(idle))
        del idle[oldest], names[oldest]
