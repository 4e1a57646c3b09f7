"""The two Opens of a connection: judges the peer's Open and builds the router's Open.

Sources: docs/spec/routing.md §1.4, §1.8; docs/spec/policy-and-auth.md §3.3.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final, Protocol

from auth.identity import Identity
from router.admission.connection_gate import ConnectionGate, Refusal
from router.admission.joining import admit_router, proved_name
from router.amqp.codec import encode
from router.amqp.engine import Engine
from router.amqp.terminus import RemoteOpen
from router.connection.surroundings import Surroundings
from router.connection.terms import ConnectionTerms
from router.effects import log
from router.values import Array, int_, symbol

ROUTER_ROLES: Final = frozenset(("inter-router", "edge"))
PRODUCT: Final = "qpid-dispatch-router"  # clients and neighbouring routers recognise this name
# Capability of routers that accept more links for large messages at any time. Routers before 1.13 do not offer it.
STREAMING: Final = "qd.streaming-links"
CAPABILITIES: Final = Array(symbol, (symbol("ANONYMOUS-RELAY"), symbol(STREAMING)))
# Capability between routers: the router judges the reply-tos of its clients (router.connection.vouching).
VOUCHING: Final = "palisade.reply-to"
_OF_ROUTERS: Final = Array(symbol, (*CAPABILITIES.values, symbol(VOUCHING)))
# Offered if receivers may be routed to a broker: JMS clients share subscriptions only if the capability is offered.
SHARING: Final = Array(symbol, (*CAPABILITIES.values, symbol("SHARED-SUBS")))


class Speaker(Protocol):
    """The parts of a peer that the Opens need (router.connection.peer)."""

    terms: ConnectionTerms
    identity: Identity
    security: Mapping[str, Any]
    gate: ConnectionGate
    surroundings: Surroundings
    engine: Engine
    own_sessions: ClassVar[int]

    @property
    def is_outgoing(self) -> bool:
        """Returns True if the router made the connection."""
        ...


@dataclass(frozen=True, slots=True)
class PeerOpens:
    """The peer connected to the router: the router judges the peer's Open and then answers it."""

    is_outgoing: ClassVar[bool] = False

    def begin(self, peer: Speaker) -> None:
        """Does nothing: the router waits for the peer's Open."""

    def judge(self, peer: Speaker, remote: RemoteOpen) -> Refusal | None:
        """Asks the gate, then answers with the limits of the peer's group, if it has one."""
        gate = peer.gate
        refusal = gate.admit(
            peer.identity,
            hostname=remote.hostname,
            policy_vhost=peer.terms.policy_vhost,
            is_encrypted=bool(peer.security["isEncrypted"]),
            now=peer.surroundings.wall_clock(),
        )
        if refusal is None:
            refusal = admit_router(gate, peer.terms.router_ids, remote.container_id, proved_name(peer.identity))
        settings = gate.settings
        peer.engine.open(
            properties=_properties(peer),
            capabilities=_capabilities(peer),
            max_frame_bytes=max(settings.max_frame_size, 512) if settings and settings.max_frame_size else None,
            # The router's own sessions come on top of those of the peer, which the gate counts.
            channel_max=min(settings.max_sessions - 1 + peer.own_sessions, 32767)
            if settings and settings.max_sessions
            else None,
        )
        return refusal


@dataclass(frozen=True, slots=True)
class RouterOpens:
    """The router connected to a server: it sends its Open first, which names the server's host.

    Only the connector's policyVhost and routerIds restrict the answer.

    server_name  the name in the server's certificate, if there are routerIds
    """

    hostname: str
    server_name: str | None = None
    is_outgoing: ClassVar[bool] = True

    def begin(self, peer: Speaker) -> None:
        engine = peer.engine
        engine.open(properties=_properties(peer), capabilities=_capabilities(peer), hostname=self.hostname)
        engine.touched.add(engine)

    def judge(self, peer: Speaker, remote: RemoteOpen) -> Refusal | None:
        refusal = admit_router(peer.gate, peer.terms.router_ids, remote.container_id, self.server_name)
        if refusal is not None:
            return refusal
        if peer.terms.policy_vhost is None:
            return None
        return peer.gate.adopt_connector(
            peer.identity,
            policy_vhost=peer.terms.policy_vhost,
            is_encrypted=bool(peer.security["isEncrypted"]),
            now=peer.surroundings.wall_clock(),
        )


Opening = PeerOpens | RouterOpens


def _capabilities(peer: Speaker) -> Array:
    if peer.terms.role in ROUTER_ROLES:
        return _OF_ROUTERS
    return SHARING if not peer.is_outgoing and peer.surroundings.link_routes.takes_receivers else CAPABILITIES


# Placeholder for `qd.conn-id` in the encoded properties. It takes five bytes, and its place can be found again.
_ANY_ID: Final = 0x7FEDCBA9


@lru_cache(maxsize=4)
def _usual(version: str) -> list[bytes]:
    """Returns the encoded properties for most clients: the part before the connection's id, and the part after it."""
    return encode(_own(version, _ANY_ID)).split(_ANY_ID.to_bytes(4, "big"))


def _own(version: str, connection_id: int) -> dict[Any, Any]:
    return {
        symbol("product"): PRODUCT,
        symbol("version"): version,
        symbol("qd.conn-id"): int_(connection_id),
    }


def _properties(peer: Speaker) -> dict[Any, Any] | bytes:
    """Returns the connection properties of the router's Open, encoded if an encoded form exists."""
    terms = peer.terms
    own_only = terms.cost <= 1 and terms.role == "normal" and not terms.failover and not terms.open_properties
    if own_only and peer.gate.connection_id < _ANY_ID:
        return peer.gate.connection_id.to_bytes(4, "big").join(_usual(peer.surroundings.version))
    properties = _own(peer.surroundings.version, peer.gate.connection_id)
    if terms.cost > 1:
        properties[symbol("qd.inter-router-cost")] = int_(terms.cost)
    if terms.role in ROUTER_ROLES:
        properties[symbol("qd.annotations-version")] = int_(1)
    if terms.failover:
        properties[symbol("failover-server-list")] = [
            {symbol(key): value for key, value in server.items()} for server in terms.failover
        ]
    for key, value in terms.open_properties.items():
        properties[symbol(key)] = value
    return properties


def report_annotations(peer: Speaker, remote: RemoteOpen) -> None:
    """Logs the version of the router annotations that another router writes. No version is refused (network §3.3)."""
    version = remote.properties.get("qd.annotations-version")
    if isinstance(version, int_):
        log(peer.surroundings.emit, "ROUTER", "debug", f"Remote router annotations version: {int(version)}")


def describe_map(mapping: Mapping[Any, Any]) -> str:
    """Formats Open properties for the log: `{:product="x", :n=1}`."""
    return "{" + ", ".join(f"{_describe(key)}={_describe(value)}" for key, value in mapping.items()) + "}"


def _describe(value: Any) -> str:
    if isinstance(value, symbol):
        return f":{value}" if str(value).isidentifier() else f':"{value}"'
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, dict):
        return describe_map(value)
    return str(value)
