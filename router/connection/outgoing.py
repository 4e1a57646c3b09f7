"""Connections that the router makes: servers and retry delays, TLS and SASL as the client, then the Peer.

Sources: docs/spec/routing.md §1.2, §1.9; docs/spec/policy-and-auth.md §6.6, §8b.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from auth.client_scram import Derive
from auth.negotiation import Authenticated, ClientNegotiation, Order, Rejected, Verify
from auth.secrets import Secret
from auth.tls import TlsTunnel
from router.admission.connection_gate import ConnectionGate
from router.amqp import headers
from router.amqp.headers import Protocol
from router.amqp.terminus import Condition
from router.connection.ends import SaslEnd
from router.connection.peer_open import RouterOpens
from router.connection.stack import FRAMING, Stack, Stage
from router.connection.surroundings import Surroundings
from router.connection.tenure import SERVER_REVOKED
from router.connection.terms import DEFAULT_FAILOVER_PORT, ConnectionTerms
from router.effects import Audit, ConnectionMembers, RequestMembers, audit_event, log

# A server that accepts a connection and then sends nothing is given up after this time; the connector then tries again.
HANDSHAKE_LIMIT_S: Final = 30.0

# Maximum number of servers from a peer's failover-server-list. Stops a malicious server from sending the router to any
# number of hosts.
MAX_FAILOVER_SERVERS: Final = 32

# DNS does not allow a longer name. A peer's names go into log lines and management answers, and to the resolver.
MAX_HOST_CHARACTERS: Final = 253
MAX_PORT_CHARACTERS: Final = 32


@dataclass(frozen=True, slots=True)
class Server:
    """One server address."""

    scheme: str
    host: str
    port: str

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDelays:
    """Seconds until a connector tries again (routing §1.9)."""

    after_failure_s: float = 5.0
    after_loss_s: float = 2.0
    with_alternatives_s: float = 1.0


class Servers:
    """The servers of one connector: the configured one and those that its peers advertised.

    The current one is first.
    """

    def __init__(self, original: Server, delays: RetryDelays) -> None:
        self._original = original
        self._delays = delays
        self._servers = [original]
        self._failures_here = 0

    @property
    def current(self) -> Server:
        """The server to try next, or the one in use."""
        return self._servers[0]

    @property
    def urls(self) -> str:
        """The servers as management shows them."""
        return ", ".join(server.url for server in self._servers)

    def opened(self, properties: Mapping[Any, Any]) -> list[Server]:
        """Takes the failover-server-list of the current server's Open. Returns the servers it added.

        The list replaces all servers except the configured and the current one. Without a list nothing changes.
        """
        self._failures_here = 0
        offered = properties.get("failover-server-list")
        if not isinstance(offered, list):
            return []
        current = self.current
        self._servers = [current] if current == self._original else [current, self._original]
        added = []
        for entry in offered[:MAX_FAILOVER_SERVERS]:
            server = _advertised(entry)
            known = ((other.host, other.port) for other in self._servers)
            if server is not None and (server.host, server.port) not in known:
                self._servers.append(server)
                added.append(server)
        return added

    def failed(self, *, was_open: bool) -> float:
        """Chooses the server after a failed attempt or a lost connection. Returns the seconds until the next attempt.

        The same server is tried once more, then the next one, round robin.
        """
        self._failures_here += 1
        if len(self._servers) == 1:
            return self._delays.after_loss_s if was_open else self._delays.after_failure_s
        if self._failures_here > 1:
            self._servers.append(self._servers.pop(0))
            self._failures_here = 0
        return self._delays.with_alternatives_s


def _advertised(entry: object) -> Server | None:
    """Returns the server in one map of a peer's failover-server-list; None if the map names no usable server."""
    if not isinstance(entry, Mapping):
        return None
    host, port = entry.get("network-host"), entry.get("port")
    scheme = entry.get("scheme") or "amqp"
    if port is None or port == "":
        port = DEFAULT_FAILOVER_PORT
    if not isinstance(host, str) or not isinstance(scheme, str) or not isinstance(port, str | int):
        return None
    port = str(port)
    is_named = 0 < len(host) <= MAX_HOST_CHARACTERS and len(port) <= MAX_PORT_CHARACTERS and scheme in ("amqp", "amqps")
    # Printable text only: no peer can forge log lines through a host name.
    return Server(str(scheme), str(host), port) if is_named and f"{host}{port}".isprintable() else None


def no_name(_der: bytes) -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector(ConnectionTerms):
    """One `connector` entity, ready for use.

    tunnel      makes a TLS tunnel for the host being tried; raises auth.tls.TlsProfileError. None: no TLS
    mechanisms  allowed SASL mechanisms, None for any
    name_of     returns the name of a server by its DER certificate (uidFormat, mapping); None if it has no name
    read_token  returns the present bearer token. Reads files; errors: ValueError. None: no token is configured
    token       the token that was read for one attempt
    allows_management  the server may manage this router
    """

    reaches_in_process: bool = False
    allows_management: bool = False
    tunnel: Callable[[str], TlsTunnel] | None = None
    has_certificate: bool = False
    name_of: Callable[[bytes], str | None] = no_name
    protocol_family: str | None = None  # "IPv4" or "IPv6": the only protocol to connect by
    mechanisms: tuple[str, ...] | None = None
    username: str | None = None
    password: Secret | None = None
    read_token: Callable[[], Secret] | None = None
    token: Secret | None = None


class Outgoing(Stack):
    """One attempt of a connector, and the connection that results from it."""

    def __init__(
        self,
        *,
        host: str,
        connector: Connector,
        gate: ConnectionGate,
        surroundings: Surroundings,
        write: Callable[[bytes], None],
        close: Callable[[], None],
        on_opened: Callable[[Stack], None],
        on_failed: Callable[[str], None],
    ) -> None:
        """host    the server being tried: the configured one or one of the failover list
        on_failed  (text) for connectionMsg
        """
        super().__init__(
            terms=connector,
            gate=gate,
            surroundings=surroundings,
            write=write,
            close=close,
            on_opened=on_opened,
            handshake_limit_s=HANDSHAKE_LIMIT_S,
        )
        self.connector = connector
        self.was_answered = False  # set when the connection is lost: the server had sent its Open
        self.host = host
        self._on_failed = on_failed
        # (question, done): computes the key in a thread; `done` then gets the key on the event loop. The owner sets
        # this.
        self.on_derive: Callable[[Derive, Callable[[bytes], None]], None] = _derive_nowhere

    def start(self) -> None:
        """Begins after the TCP connection is made. Errors: auth.tls.TlsProfileError."""
        if self.connector.tunnel is None:
            self.layers.write(headers.SASL)
            return
        self._start_tls(self.connector.tunnel(self.host))

    def _on_tunnel_established(self) -> None:
        super()._on_tunnel_established()
        self.layers.write(headers.SASL)

    def _begin(self, protocol: Protocol, data: bytes) -> bytes:
        if self.stage is Stage.SNIFF and protocol is Protocol.SASL:
            self._start_sasl(
                ClientNegotiation(
                    allowed=self.connector.mechanisms,
                    username=self.connector.username,
                    password=self.connector.password,
                    has_certificate=self.connector.has_certificate,
                    is_encrypted=self.tunnel is not None,
                    token=self.connector.token,
                    binding=self.tunnel.binding if self.tunnel is not None else lambda _type: None,
                )
            )
            return data[headers.HEADER_BYTES :]
        if self.stage is Stage.HEADER and protocol is Protocol.AMQP:
            self._start_amqp()
            return data
        wanted = "SASL" if self.stage is Stage.SNIFF else "AMQP"
        self.fail(
            Condition(name=FRAMING, description=f"Expected {wanted} protocol header but found: {protocol.value}"),
            "unexpected_header",
        )
        return b""

    def _on_sasl(self, effect: Order) -> None:
        match effect:
            case Derive():
                self.on_derive(effect, self._on_derived)
            case Authenticated(identity=identity):
                self._await_header()
                self._make_peer(identity, RouterOpens(self.host, self._server_name()))
            case Rejected(condition=condition, description=description):
                self.fail(Condition(name=condition, description=description), "sasl_failed")
            case Verify():
                raise AssertionError("only a server verifies")

    def _server_name(self) -> str | None:
        """Returns the name in the server's certificate if the connector checks router ids."""
        if self.connector.router_ids is None or self.tunnel is None or self.tunnel.peer_certificate is None:
            return None
        return self.connector.name_of(self.tunnel.peer_certificate)

    def _on_derived(self, salted: bytes) -> None:
        """Continues with the derived key. The connection may have ended already."""
        if self.stage is Stage.SASL and isinstance(self._end, SaslEnd):
            try:
                self._pass_up(self._end.derived(salted))
            except Exception as error:
                self.crash(error)
            self.core.work.finish()

    def end_for_revoked_certificate(self) -> None:
        """Ends the connection because the server's certificate is revoked.

        The connector tries again, and succeeds once the server has another certificate.
        """
        if self.is_open:
            facts: ConnectionMembers = {**self.gate.facts(), "is_encrypted": True}
            told: RequestMembers = {"condition": SERVER_REVOKED.name, "detail": SERVER_REVOKED.description}
            self.emit(Audit(event=audit_event("engine", "deny", "certificate_revoked", facts, told)))
            self.report(SERVER_REVOKED)
            self.expel(SERVER_REVOKED)
        else:
            self.fail(SERVER_REVOKED, "certificate_revoked")

    def on_lost(self) -> None:
        if self.stage is Stage.CLOSED and not self._is_reported:
            # The server closed in good order, or policy refused it: the connector still counts a loss.
            self._is_reported = True
            self._say_failed(self.peer.close_condition if self.peer is not None else None)
        self.was_answered = self.peer is not None and self.peer.remote is not None
        super().on_lost()

    def report(self, condition: Condition) -> None:
        self._say_failed(condition)

    def _say_failed(self, condition: Condition | None) -> None:
        why = f": {condition}" if condition is not None else ""
        text = f"[C{self.connection_id}] Connection to {self.terms.place} failed{why}"
        log(self.emit, "SERVER", "info", text)
        self._on_failed(text)


def _derive_nowhere(question: Derive, done: Callable[[bytes], None]) -> None:
    raise LookupError("the connection's owner computes no keys")
