"""Connectors: attempts, retries and failover of the connections the router makes.

Sources: docs/spec/routing.md §1.9; docs/spec/management.md §6.5 (connectionStatus, connectionMsg, failoverUrls).
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from auth.tls import TlsFailure, TlsProfileError
from router.amqp.terminus import Condition
from router.effects import Emit, log
from router.io.server import service_port
from router.io.sockets import Socket
from router.listener import DEFAULT_FAILOVER_PORT
from router.outgoing import Connector, Outgoing
from router.stack import FRAMING, Stack

if TYPE_CHECKING:
    from router.io.router import Router

RETRY_AFTER_FAILURE_S: Final = 5.0
RETRY_AFTER_LOSS_S: Final = 2.0
RETRY_WITH_ALTERNATIVES_S: Final = 1.0
CONNECT_LIMIT_S: Final = 20.0

# What a peer's failover-server-list may add; stops a malicious server from sending us round the world.
MAX_FAILOVER_SERVERS: Final = 32


@dataclass(frozen=True, slots=True)
class Server:
    """One place to connect to."""

    scheme: str
    host: str
    port: str

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


class Connecting:
    """One connector entity: keeps one connection open, for as long as it exists."""

    def __init__(self, router: "Router", connector: Connector, emit: Emit) -> None:
        self.connector = connector
        self.status = "INITIALIZING"
        self.message = ""
        self.router = router
        self._emit = emit
        self._original = Server("amqps" if connector.has_tls else "amqp", connector.host, connector.port)
        self._servers = [self._original]
        self._failures_here = 0
        self._was_open = False
        self._is_deleted = False
        self._transport: asyncio.Transport | None = None
        self._connection: Outgoing | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._attempt: asyncio.Task[None] | None = None

    # Attempts

    def start(self) -> None:
        """Try now, and go on trying."""
        self._attempt = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        server = self._servers[0]
        self.status = "CONNECTING"
        self._was_open = False
        connection_id = self.router.next_connection_id()
        log(self._emit, "SERVER", "trace", f"[C{connection_id}] Connecting to {self.connector.place}")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_LIMIT_S):
                await loop.create_connection(
                    lambda: _Made(self, connection_id), server.host, service_port(server.port)
                )
        except OSError as error:  # TimeoutError is one
            text = error.strerror or str(error) or "timed out"
            self._failed_to_connect(connection_id, f"proton:io {text} - disconnected {server.host}:{server.port}")

    def _failed_to_connect(self, connection_id: int, why: str) -> None:
        text = f"[C{connection_id}] Connection to {self.connector.place} failed: {why}"
        log(self._emit, "SERVER", "info", text)
        self.on_failed(text)
        self._schedule()

    def on_socket(self, socket: "_Made", transport: asyncio.Transport, connection_id: int) -> None:
        """The TCP connection is made."""
        server = self._servers[0]
        connection = self._connection = Outgoing(
            connection_id=connection_id,
            host=server.host,
            port=server.port,
            connector=self.connector,
            gate=self.router.connector_gate(connection_id, f"{server.host}:{server.port}"),
            core=self.router.core,
            version=self.router.version,
            emit=self._emit,
            write=transport.write,
            close=socket.close,
            on_opened=self.on_opened,
            on_failed=self.on_failed,
            now=self.router.clock(),
        )
        socket.connection = connection
        self.router.adopt(connection)
        try:
            connection.start()
        except TlsProfileError as error:
            log(
                self._emit, "SERVER", "error",
                f"{error} for connection [C{connection_id}] to {self.connector.place}",
            )  # fmt: skip
            log(
                self._emit, "SERVER", "error",
                f"[C{connection_id}] Connection aborted due to internal setup error",
            )  # fmt: skip
            connection.fail(
                Condition(
                    name=FRAMING,
                    description="Expected AMQP protocol header: no protocol header found (connection aborted)",
                ),
                "tls_configuration",
            )
        except TlsFailure as failure:
            connection.fail(Condition(name=FRAMING, description=f"SSL Failure: {failure}"), "tls_handshake_failed")

    def on_opened(self, stack: Stack) -> None:
        assert stack.peer is not None
        self.status = "SUCCESS"
        self.message = f"[C{stack.connection_id}] {stack.peer.summary}"
        self._was_open = True
        self._failures_here = 0
        remote = stack.peer.remote
        if remote is not None:
            self._take_failover_list(remote.properties)
        self.router.on_opened(stack)

    def on_failed(self, text: str) -> None:
        self.status = "FAILED"
        self.message = text

    def on_lost(self) -> None:
        """The connection is gone, by whomever."""
        self._connection = None
        if not self._is_deleted:
            self._schedule()

    def _schedule(self) -> None:
        """Try again: the same server once more, then the next one, round robin."""
        if self._is_deleted:
            return
        self._failures_here += 1
        if len(self._servers) > 1 and self._failures_here > 1:
            self._servers.append(self._servers.pop(0))
            self._failures_here = 0
        if len(self._servers) > 1:
            delay_s = RETRY_WITH_ALTERNATIVES_S
        else:
            delay_s = RETRY_AFTER_LOSS_S if self._was_open else RETRY_AFTER_FAILURE_S
        self.status = "CONNECTING"
        self._retry = asyncio.get_running_loop().call_later(delay_s, self.start)

    def _take_failover_list(self, properties: Mapping[Any, Any]) -> None:
        """The peer's list replaces all but the configured server and the one in use (routing §1.9)."""
        offered = properties.get("failover-server-list")
        if not isinstance(offered, list):
            return
        current = self._servers[0]
        servers = [current] if current == self._original else [current, self._original]
        for entry in offered[:MAX_FAILOVER_SERVERS]:
            host = entry.get("network-host") if isinstance(entry, dict) else None
            if not isinstance(host, str) or not host:
                continue
            server = Server(
                str(entry.get("scheme") or "amqp"), host, str(entry.get("port") or DEFAULT_FAILOVER_PORT)
            )
            if all((server.host, server.port) != (known.host, known.port) for known in servers):
                servers.append(server)
                log(self._emit, "CONN_MGR", "debug", f"Added {server.host}:{server.port} as backup host")
        self._servers = servers

    @property
    def failover_urls(self) -> str:
        return ", ".join(server.url for server in self._servers)

    def delete(self) -> None:
        """Close the connection and try no more."""
        self._is_deleted = True
        self.status = "CLOSING"
        if self._retry is not None:
            self._retry.cancel()
        if self._attempt is not None and self._connection is None:
            self._attempt.cancel()
        if self._connection is not None:
            self._connection.close_for_shutdown()
            self.router.work.finish()


class _Made(Socket):
    """asyncio's end of one socket a connector made."""

    def __init__(self, connecting: Connecting, connection_id: int) -> None:
        super().__init__(connecting.router)
        self._connecting = connecting
        self._connection_id = connection_id

    def begin(self, transport: asyncio.Transport) -> None:
        self._connecting.on_socket(self, transport, self._connection_id)

    def ended(self) -> None:
        self._connecting.on_lost()
