"""The settings of a listener for its connections: validated attributes, and the limits of the engine computed from
them.

Sources: docs/spec/routing.md §1.1, §1.5; docs/spec/policy-and-auth.md §6.2, §8.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from auth.credentials import Answer, MechanismRequest
from auth.mechanisms import Channel
from auth.tls import TlsTunnel
from policy.router_ids import RouterIds
from router.amqp.message_text import chosen_components
from router.connection.relay import RelayTerms

if TYPE_CHECKING:
    from router.web.site import Site

MIN_FRAME_BYTES: Final = 512
MAX_SESSIONS: Final = 32768
DEFAULT_CAPACITY: Final = 250
DEFAULT_FAILOVER_PORT: Final = "5672"

# Maximum number of unread bytes that a session may send if maxSessionFrames is unset. The C router allows 2^31-1
# frames. There, one sender can fill the memory through one slow receiver.
DEFAULT_SESSION_BYTES: Final = 8 * 1024 * 1024

# Seconds until the peer's Open, also if initialHandshakeTimeoutSeconds is 0 ("none"). Stops sockets that are opened and
# never used (slow loris).
HANDSHAKE_LIMIT_S: Final = 60.0


Done = Callable[[Answer], None]


class Verify(Protocol):
    """Verifies credentials in a thread, in the turn of the peer's host, and calls back on the event loop.

    host     numeric address
    begins   called when the turn has come; returns True if the answer is still wanted. If not, `done` is not called.
             Must not raise
    done     gets the answer, after the call has returned
    Returns  a function that gives the request up: a request that still waits never begins, and `done` is not called. A
             verification that has begun is finished, and `done` is called
    """

    def __call__(
        self, request: MechanismRequest, host: str, begins: Callable[[], bool], done: Done, /
    ) -> Callable[[], None]: ...


def ask_nobody(request: MechanismRequest, host: str, begins: Callable[[], bool], done: Done) -> Callable[[], None]:
    raise LookupError("the listener has no authenticator")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Settings for TLS on an accepted socket; a new context is made when the profile changes.

    tunnel            makes a tunnel; raises auth.tls.TlsProfileError when the profile is unusable
    user_of           (DER certificate, TlsTunnel.chosen) → user name for EXTERNAL (uidFormat, mapping); None if the
                      certificate gives no name
    subject_of        the same arguments → subject, which is the user of a TLS client without SASL
    """

    tunnel: Callable[[], TlsTunnel]
    user_of: Callable[[bytes, str | None], str | None]
    subject_of: Callable[[bytes, str | None], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionTerms:
    """The settings of a listener or connector for its connections after AMQP has begun."""

    name: str
    host: str
    port: str
    role: str = "normal"
    has_tls: bool = False
    max_frame_bytes: int = 16384
    channel_max: int = MAX_SESSIONS - 1
    session_bytes: int = DEFAULT_SESSION_BYTES
    idle_timeout_s: int = 16
    strips_in: bool = True
    strips_out: bool = True
    capacity: int = DEFAULT_CAPACITY
    cost: int = 1
    policy_vhost: str | None = None
    router_ids: RouterIds | None = None  # ids under which a peer may join the network; None: any id
    is_multi_tenant: bool = False
    reaches_in_process: bool = True  # may reach $management and other consumers inside the router
    message_components: tuple[str, ...] = ()  # parts of each message to log; empty: messages are not logged
    open_properties: Mapping[str, Any] = field(default_factory=dict)
    failover: tuple[Mapping[str, str], ...] = ()  # advertised in the Open: network-host, port, scheme

    @property
    def place(self) -> str:
        """`host:port` as configured, for log lines."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener(ConnectionTerms):
    """One `listener` entity, ready for use."""

    tls: TlsSettings | None = None
    requires_encryption: bool = False
    authenticates_peer: bool = False
    # (the channel) → the mechanisms to offer, in order
    mechanisms: Callable[[Channel], tuple[str, ...]] = lambda _channel: ()
    verify: Verify = ask_nobody
    asks_groups: bool = False  # see auth.mechanisms.Channel
    relay: RelayTerms | None = None  # a remote service authenticates the peers, instead of `verify`
    is_auth_service: bool = False  # its peers are routers that relay the logins of their clients
    handshake_timeout_s: float = HANDSHAKE_LIMIT_S
    max_connection_age_s: float = 0.0  # 0: no limit
    site: "Site | None" = None  # the listener speaks HTTP, and AMQP only over WebSocket

    @property
    def is_governed(self) -> bool:
        """Returns True if vhost policy applies to connections of this listener (policy §3.1)."""
        return self.role != "inter-router"


def terms_of(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the members of ConnectionTerms from the validated attributes of a `listener` or `connector` entity."""
    frame = max(int(attributes["maxFrameSize"]), MIN_FRAME_BYTES)
    sessions = int(attributes["maxSessions"])
    if not 0 < sessions <= MAX_SESSIONS:
        sessions = MAX_SESSIONS
    frames = int(attributes.get("maxSessionFrames") or 0)
    role = attributes["role"]
    strip = attributes["stripAnnotations"] if role in ("normal", "route-container") else "no"
    return {
        "name": attributes["name"],
        "host": attributes["host"],
        "port": attributes["port"],
        "role": role,
        "has_tls": bool(attributes.get("sslProfile")),
        "max_frame_bytes": frame,
        "channel_max": sessions - 1,
        "session_bytes": frames * frame if frames > 0 else DEFAULT_SESSION_BYTES,
        "idle_timeout_s": int(attributes["idleTimeoutSeconds"]),
        "strips_in": strip in ("in", "both"),
        "strips_out": strip in ("out", "both"),
        "capacity": int(attributes.get("linkCapacity") or DEFAULT_CAPACITY),
        "cost": int(attributes["cost"]),
        # Vhost policy does not apply between routers (network §3.4).
        "policy_vhost": (attributes.get("policyVhost") or None) if role != "inter-router" else None,
        "message_components": chosen_components(attributes["messageLoggingComponents"]),
        "router_ids": RouterIds.parse(attributes["routerIds"]) if attributes.get("routerIds") else None,
        "open_properties": attributes.get("openProperties") or {},
    }


def failover_servers(urls: str) -> tuple[Mapping[str, str], ...]:
    """Returns the servers of a validated failoverUrls text (routing §1.8)."""
    servers = []
    for item in "".join(urls.split()).split(","):
        scheme, separator, rest = item.rpartition("://")
        host, _, port = rest.rpartition(":") if ":" in rest.rpartition("]")[2] else (rest, "", "")
        server = {"network-host": host, "port": port or DEFAULT_FAILOVER_PORT}
        servers.append({**server, "scheme": scheme} if separator else server)
    return tuple(servers)


def listener_of(
    attributes: Mapping[str, Any],
    *,
    tls: TlsSettings | None,
    mechanisms: Callable[[Channel], tuple[str, ...]] = lambda _channel: (),
    verify: Verify = ask_nobody,
    asks_groups: bool = False,
    relay: RelayTerms | None = None,
) -> Listener:
    """Makes a Listener from the validated attributes of a `listener` entity."""
    handshake = int(attributes["initialHandshakeTimeoutSeconds"])
    return Listener(
        **terms_of(attributes),
        tls=tls,
        requires_encryption=bool(attributes["requireSsl"] or attributes["requireEncryption"]),
        authenticates_peer=bool(attributes["authenticatePeer"]),
        mechanisms=mechanisms,
        verify=verify,
        asks_groups=asks_groups,
        relay=relay,
        is_multi_tenant=bool(attributes["multiTenant"]),
        failover=failover_servers(attributes["failoverUrls"]) if attributes.get("failoverUrls") else (),
        handshake_timeout_s=float(handshake) if handshake > 0 else HANDSHAKE_LIMIT_S,
        max_connection_age_s=float(max(int(attributes["maxConnectionAgeSeconds"]), 0)),
    )
