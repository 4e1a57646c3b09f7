"""Counts open connections and denials: with bans.py and failures.py the state policy has. One owner, the daemon.

There is no await between a decision and `admit`, so a burst of connections cannot race past a limit.
Source: docs/spec/policy-and-auth.md §1.1, §1.4, §4.
"""

from dataclasses import dataclass, field
from typing import Final, Literal

from policy.facts import Usage
from policy.hosts import parse_address

# How many users, and hosts, without a connection a vhost remembers for perUserState and perHostState.
# Stops a peer that comes from endless addresses, or under endless names, from growing the router.
MAX_IDLE_ENTRIES: Final = 1000


@dataclass(slots=True)
class _Names:
    """Connection names with the times each is in use: one `ip:port` may be connected to two listeners."""

    count: int = 0
    times: dict[str, int] = field(default_factory=dict)

    def add(self, name: str) -> None:
        self.times[name] = self.times.get(name, 0) + 1
        self.count += 1

    def remove(self, name: str) -> None:
        """Of a name that was added."""
        self.count -= 1
        self.times[name] -= 1
        if not self.times[name]:
            del self.times[name]

    def listed(self) -> list[str]:
        return [name for name, times in self.times.items() for _ in range(times)]


@dataclass(slots=True)
class _VhostUsage:
    """One vhost's counts, and the connections of every user and host."""

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
    """Counts of accepted connections and of every vhost there ever was."""

    __slots__ = ("_denied", "_links_denied", "_oversize", "_processed", "_total_denials", "_vhosts", "open_connections")

    def __init__(self) -> None:
        self.open_connections = 0  # accepted and not closed yet, governed or not
        self._processed = 0
        self._denied = 0
        self._links_denied = 0
        self._oversize = 0
        self._total_denials = 0
        self._vhosts: dict[str, _VhostUsage] = {}

    def count_accept(self, is_allowed: bool) -> None:
        """A socket was accepted, or refused by the policy's maxConnections."""
        self._processed += 1
        if is_allowed:
            self.open_connections += 1
        else:
            self._denied += 1
            self._total_denials += 1

    def count_accept_closed(self) -> None:
        """An accepted connection ended. Never for outgoing ones: a count below zero would lock everybody out."""
        if self.open_connections > 0:
            self.open_connections -= 1

    def usage(self, vhost: str, user: str, host: str) -> Usage:
        """The counts a connection of `user` from `host` is judged by."""
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
        """An Open was approved. connection_name  "ip:port" of the peer"""
        counts = self._counts(vhost)
        counts.approved += 1
        counts.current += 1
        _add(counts.by_user, counts.idle_users, user, connection_name)
        _add(counts.by_host, counts.idle_hosts, _host_key(host), connection_name)

    def release(self, vhost: str, user: str, host: str, connection_name: str) -> None:
        """An approved connection ended; the arguments are those of its `admit`. Others are ignored."""
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
        """An Open was denied inside a vhost: once, however many limits it met."""
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
        """A delivery grew over maxMessageSize: once per delivery."""
        self._oversize += 1
        self._total_denials += 1
        if vhost is not None:
            self._counts(vhost).oversize += 1

    def ensure_vhost(self, name: str) -> None:
        """Make the vhost's statistics exist from now on; they outlive the vhost."""
        self._counts(name)

    def vhost_names(self) -> tuple[str, ...]:
        return tuple(self._vhosts)

    def has_vhost(self, name: str) -> bool:
        return name in self._vhosts

    def policy_counters(self) -> dict[str, int]:
        """The statistics of the `policy` entity."""
        return {
            "connectionsProcessed": self._processed,
            "connectionsDenied": self._denied,
            "connectionsCurrent": self.open_connections,
            "linksDenied": self._links_denied,
            "maxMessageSizeDenied": self._oversize,
            "totalDenials": self._total_denials,
        }

    def vhost_stats(self, name: str) -> dict[str, object]:
        """The attributes of the vhost's `vhostStats` entity. Raises KeyError for a vhost that never was."""
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
        """How many connections a vhost has. Raises KeyError for a vhost that never was."""
        return self._vhosts[name].current

    def vhost_denials(self, name: str) -> dict[str, int]:
        """The denials on a vhost's connections. Costs nothing per connection, unlike all of `vhost_stats`.

        Raises KeyError for a vhost that never was.
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
    """The same peer has one entry, whether it came as an IPv4 address or as one mapped into IPv6."""
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
