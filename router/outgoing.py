"""One connection the router makes: TLS and SASL as the client, then its Peer.

Sources: docs/spec/routing.md §1.2, §1.9; docs/spec/policy-and-auth.md §6.6, §8b.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from auth.negotiation import Authenticated, ClientNegotiation, Rejected, Reply, SaslEffect
from auth.secrets import Secret
from auth.tls import TlsTunnel
from router.amqp import headers
from router.amqp.headers import Protocol
from router.amqp.terminus import Condition
from router.core.router import Core
from router.effects import Emit, log
from router.gate import ConnectionGate
from router.listener import ConnectionTerms
from router.stack import FRAMING, Stack, Stage

# A server that accepts and then says nothing is given up after this; the connector then tries again.
HANDSHAKE_LIMIT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector(ConnectionTerms):
    """One `connector` entity, ready for use.

    tunnel      makes a TLS tunnel for the host being tried; raises auth.tls.TlsProfileError. None: no TLS
    mechanisms  allowed SASL mechanisms, None for any
    """

    tunnel: Callable[[str], TlsTunnel] | None = None
    has_certificate: bool = False
    mechanisms: tuple[str, ...] | None = None
    username: str | None = None
    password: Secret | None = None


class Outgoing(Stack):
    """One attempt of a connector, and the connection it becomes."""

    def __init__(
        self,
        *,
        connection_id: int,
        host: str,
        port: str,
        connector: Connector,
        gate: ConnectionGate,
        core: Core,
        version: str,
        emit: Emit,
        write: Callable[[bytes], None],
        close: Callable[[], None],
        on_opened: Callable[[Stack], None],
        on_failed: Callable[[str], None],
        now: float,
    ) -> None:
        """host, port  the server being tried: the configured one or one of the failover list
        on_failed    (text) for connectionMsg
        """
        super().__init__(
            connection_id=connection_id,
            remote_name=f"{host}:{port}",
            terms=connector,
            gate=gate,
            core=core,
            version=version,
            emit=emit,
            write=write,
            close=close,
            on_opened=on_opened,
            deadline=now + HANDSHAKE_LIMIT_S,
        )
        self.connector = connector
        self.host = host
        self._on_failed = on_failed

    def start(self) -> None:
        """The TCP connection is made. Errors: auth.tls.TlsProfileError."""
        if self.connector.tunnel is None:
            self._write(headers.SASL)
            return
        self.tunnel = self.connector.tunnel(self.host)
        self.stage = Stage.TLS
        self.tunnel.start()
        self._write_socket(self.tunnel.take_output())

    def _on_tunnel_established(self) -> None:
        self.stage = Stage.SNIFF
        self._write(headers.SASL)

    def _sniff(self, data: bytes) -> bytes:
        protocol, data = self._protocol_of(data)
        if protocol is None:
            return b""
        if self.stage is Stage.SNIFF and protocol is Protocol.SASL:
            self._negotiation = ClientNegotiation(
                allowed=self.connector.mechanisms,
                username=self.connector.username,
                password=self.connector.password,
                has_certificate=self.connector.has_certificate,
                is_encrypted=self.tunnel is not None,
            )
            self.stage = Stage.SASL
            self._carry_out(self._negotiation.start())
            return data[headers.HEADER_BYTES :]
        if self.stage is Stage.HEADER and protocol is Protocol.AMQP:
            self.stage = Stage.AMQP
            return data
        wanted = "SASL" if self.stage is Stage.SNIFF else "AMQP"
        self.fail(
            Condition(name=FRAMING, description=f"Expected {wanted} protocol header but found: {protocol.value}"),
            "unexpected_header",
        )
        return b""

    def _carry_out(self, effects: list[SaslEffect]) -> None:
        for effect in effects:
            match effect:
                case Reply(data=data):
                    self._write(data)
                case Authenticated(identity=identity):
                    rest = self._take_sasl_rest()
                    self.stage = Stage.HEADER
                    self.peer = self._make_peer(identity, is_server=False)
                    self.peer.start_outgoing(self.host)
                    self._receive_plain(rest)
                case Rejected(condition=condition, description=description):
                    self.fail(Condition(name=condition, description=description), "sasl_failed")

    def report(self, condition: Condition) -> None:
        text = f"[C{self.connection_id}] Connection to {self.terms.place} failed: {condition}"
        log(self.emit, "SERVER", "info", text)
        self._on_failed(text)
