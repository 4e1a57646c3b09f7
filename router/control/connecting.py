"""Connectors: attempts, retries and failover of the connections that the router makes.

Sources: docs/spec/routing.md §1.9; docs/spec/management.md §6.5 (connectionStatus, connectionMsg, failoverUrls).
"""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from auth.client_scram import Derive, derive
from auth.tls import TlsProfileError
from router.admission.connection_gate import ConnectionGate
from router.amqp.terminus import Condition
from router.connection.outgoing import Connector, Outgoing, RetryDelays, Server, Servers
from router.connection.stack import FRAMING, Stack
from router.connection.surroundings import Surroundings
from router.control.server import ADDRESS_FAMILIES, service_port
from router.effects import Emit, log
from router.io.aside import Aside
from router.io.dialing import reach, why_not
from router.io.sockets import Socket, SocketOwner

CONNECT_LIMIT_S: Final = 20.0


class Home(SocketOwner[Stack], Protocol):
    """The part of the router that a connector needs (router.control.router)."""

    surroundings: Surroundings

    def next_connection_id(self) -> int: ...
    def connector_gate(self, connection_id: int, remote_name: str) -> ConnectionGate: ...
    def adopt(self, connection: Stack) -> None: ...
    def on_opened(self, connection: Stack) -> None: ...


class Connecting:
    """One connector entity: keeps one connection open, for as long as it exists."""

    def __init__(self, router: Home, connector: Connector, emit: Emit, delays: RetryDelays | None = None) -> None:
        self.connector = connector
        self.status = "INITIALIZING"
        self.message = ""
        self.router = router
        self._emit = emit
        original = Server("amqps" if connector.has_tls else "amqp", connector.host, connector.port)
        self._servers = Servers(original, delays or RetryDelays())
        self._was_open = False
        self._is_deleted = False
        self._connection: Outgoing | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._attempt: asyncio.Task[None] | None = None
        self._aside = Aside()
        self._derivation: asyncio.Task[None] | None = None
        self._prepared = connector  # with the token that was read for this attempt

    # Attempts

    def start(self) -> None:
        """Tries now, and continues to try."""
        self._attempt = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        server = self._servers.current
        self.status = "CONNECTING"
        self._was_open = False
        connection_id = self.router.next_connection_id()
        log(self._emit, "SERVER", "trace", f"[C{connection_id}] Connecting to {self.connector.place}")
        try:
            async with asyncio.timeout(CONNECT_LIMIT_S):
                if self.connector.read_token is not None:
                    token = await self._aside.run(self.connector.read_token)
                    self._prepared = replace(self.connector, token=token)
                await self._reach(server, connection_id)
        except (OSError, OverflowError, ValueError) as error:
            # ValueError and OverflowError come from the resolver, for impossible names and ports; a peer's failover
            # list may contain such.
            self._failed_to_connect(
                connection_id, f"proton:io {why_not(error)} - disconnected {server.host}:{server.port}"
            )

    async def _reach(self, server: Server, connection_id: int) -> None:
        """Connects to the first address that answers. Errors: the error of the last address."""
        family = ADDRESS_FAMILIES.get(self.connector.protocol_family or "", socket.AF_UNSPEC)
        await reach(server.host, service_port(server.port), lambda: _Made(self, connection_id), family)

    def _failed_to_connect(self, connection_id: int, why: str) -> None:
        text = f"[C{connection_id}] Connection to {self.connector.place} failed: {why}"
        log(self._emit, "SERVER", "info", text)
        self.on_failed(text)
        self._schedule()

    def on_socket(self, end: "_Made", transport: asyncio.Transport, connection_id: int) -> None:
        """Begins the connection after the TCP connection is made."""
        server = self._servers.current
        connection = self._connection = Outgoing(
            host=server.host,
            connector=self._prepared,
            gate=self.router.connector_gate(connection_id, f"{server.host}:{server.port}"),
            surroundings=self.router.surroundings,
            write=transport.write,
            close=end.close,
            on_opened=self.on_opened,
            on_failed=self.on_failed,
        )
        connection.on_derive = partial(self._begin_derivation, connection)
        end.connection = connection
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
        except Exception as error:  # for example a failover host that cannot be a name in a certificate
            connection.crash(error)
        self.router.work.finish()

    def _begin_derivation(self, connection: Outgoing, question: Derive, done: Callable[[bytes], None]) -> None:
        self._derivation = asyncio.get_running_loop().create_task(self._derive(connection, question, done))

    async def _derive(self, connection: Outgoing, question: Derive, done: Callable[[bytes], None]) -> None:
        """Derives the key in a thread. Attack: a server names many iterations; that costs only this connector time."""
        try:
            done(await self._aside.run(partial(derive, question)))
        except Exception as error:
            connection.crash(error)
            self.router.work.finish()

    def on_opened(self, stack: Stack) -> None:
        assert stack.peer is not None
        self.status = "SUCCESS"
        self.message = f"[C{stack.connection_id}] {stack.peer.summary}"
        assert stack.peer.remote is not None
        for server in self._servers.opened(stack.peer.remote.properties):
            log(self._emit, "ROUTER", "debug", f"Added {server.host}:{server.port} as backup host")
        self.router.on_opened(stack)

    def on_failed(self, text: str) -> None:
        self.status = "FAILED"
        self.message = text

    def on_lost(self) -> None:
        """Called when the connection is gone, closed by either side."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.was_answered:
            self._was_open = True  # the server was there, even if policy refused it
        if not self._is_deleted:
            self._schedule()

    def _schedule(self) -> None:
        if self._is_deleted:
            return
        delay_s = self._servers.failed(was_open=self._was_open)
        self.status = "CONNECTING"
        self._retry = asyncio.get_running_loop().call_later(delay_s, self.start)

    @property
    def failover_urls(self) -> str:
        return self._servers.urls

    def delete(self) -> None:
        """Closes the connection and tries no more."""
        self._is_deleted = True
        self.status = "CLOSING"
        if self._retry is not None:
            self._retry.cancel()
        if self._attempt is not None and self._connection is None:
            self._attempt.cancel()
        if self._connection is not None:
            self._connection.close_for_shutdown()
            self.router.work.finish()


class _Made(Socket[Stack]):
    """The asyncio protocol of one socket that a connector made."""

    def __init__(self, connecting: Connecting, connection_id: int) -> None:
        super().__init__(connecting.router)
        self._connecting = connecting
        self._connection_id = connection_id

    def begin(self, transport: asyncio.Transport) -> None:
        self._connecting.on_socket(self, transport, self._connection_id)

    def ended(self) -> None:
        self._connecting.on_lost()
