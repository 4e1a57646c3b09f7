"""The peer of a connection, in the form for policy decisions, log lines and audit events."""

import json

from auth.identity import Identity
from policy.decide import Settings
from policy.facts import ConnectionFacts, GrantedAddresses
from policy.failures import counted_text
from router.effects import ConnectionMembers


class Party:
    """The peer of one connection. All members may be read. The layer that authenticates sets `identity`.

    settings   that the connection has now; without settings it is unrestricted (§3.1)
    router_id  the only id that the peer may use, because it was admitted under it; None: any, or it is no router
    """

    __slots__ = (
        "connection_id",
        "connection_name",
        "hostname",
        "identity",
        "is_encrypted",
        "listener",
        "remote_host",
        "requested_vhost",
        "router_id",
        "settings",
    )

    def __init__(self, *, connection_id: int, connection_name: str, remote_host: str, listener: str) -> None:
        self.connection_id = connection_id
        self.connection_name = connection_name
        self.remote_host = remote_host
        self.listener = listener
        self.identity = Identity(user=None)
        self.is_encrypted = False
        self.hostname: str | None = None  # of the Open
        self.requested_vhost = ""
        self.settings: Settings | None = None
        self.router_id: str | None = None

    @property
    def counted_host(self) -> str:
        """The host as bans and logins count it: one IPv4 address, or an IPv6 network of 64 bits.

        Attack: a peer gets a separate budget for each address of its own network.
        """
        try:
            return counted_text(self.remote_host)
        except ValueError:
            return self.connection_name

    @property
    def user_text(self) -> str:
        return self.identity.user if self.identity.user is not None else "(null)"

    @property
    def vhost_text(self) -> str:
        return self.hostname if self.hostname is not None else "(null)"

    @property
    def text(self) -> str:
        """The peer in the log lines about its links and messages."""
        return f"for user '{self.user_text}', rhost '{self.remote_host}', vhost '{self.vhost_text}'"

    def facts(self) -> ConnectionMembers:
        """Returns the connection's own members of an audit event."""
        settings = self.settings if self.settings is not None and self.settings.is_of_vhost else None
        facts: ConnectionMembers = {
            "connection": self.connection_id,
            "connection_name": self.connection_name,
            "listener": self.listener,
            "remote_host": self.remote_host,
            "user": self.identity.user,
            "mechanism": self.identity.mechanism,
            "is_encrypted": self.is_encrypted,
            "requested_vhost": self.requested_vhost,
            "vhost": settings.vhost if settings is not None else None,
            "group": settings.group if settings is not None else None,
        }
        grants = self.identity.grants
        if grants is not None:
            facts["granted"] = json.dumps({"send": grants.targets, "recv": grants.sources})
        if self.identity.groups:
            facts["groups"] = json.dumps(self.identity.groups)
        return facts

    def connection_facts(self, now: float) -> ConnectionFacts:
        """Returns the facts for policy's decision about a connection.

        now  seconds since 1970 UTC
        """
        grants = self.identity.grants
        return ConnectionFacts(
            user=self.identity.user,
            remote_host=self.remote_host,
            requested_vhost=self.requested_vhost,
            connection_name=self.connection_name,
            mechanism=self.identity.mechanism,
            is_encrypted=self.is_encrypted,
            groups=self.identity.groups,
            granted=GrantedAddresses(sources=grants.sources, targets=grants.targets) if grants is not None else None,
            now=now,
        )
