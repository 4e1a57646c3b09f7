"""Sends raw messages to the management addresses of a router, and receives the replies."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from daemon_process import Daemon
from process_log import PATIENCE_S

from router.amqp import codec
from router.amqp.codec import Message, decode_message
from router.management.client import (
    ManagementClient,
)
from router.tools.connection_options import ConnectionOptions
from router.tools.transport import SocketTransport

PREFIX = "org.apache.qpid.dispatch."
CONNECTION = f"{PREFIX}connection"
LINK = f"{PREFIX}router.link"
ADDRESS = f"{PREFIX}router.address"
LISTENER_TYPE = f"{PREFIX}listener"
CONNECTOR = f"{PREFIX}connector"
VHOST = f"{PREFIX}vhost"


def encode_message(**fields: Any) -> bytes:
    return codec.encode_message(**{"body": None, **fields})


class Raw:
    """Sends raw messages to any address, and receives what comes to the reply-to."""

    def __init__(self, router: Daemon, name: str = "plain") -> None:
        self.transport = SocketTransport(
            ConnectionOptions(host="127.0.0.1", port=router.port(name), timeout_s=PATIENCE_S)
        )
        self.session = self.transport._session
        assert self.session.reply_to is not None
        self.reply_to: str = self.session.reply_to

    def send(self, payload: bytes, address: str = "$management") -> None:
        self.transport._deadline = time.monotonic() + PATIENCE_S
        self.session.send_message(address, payload)
        self.transport._flush()

    def receive(self) -> Message:
        self.transport._deadline = time.monotonic() + PATIENCE_S
        while (message := self.session.take_message()) is None:
            self.transport._exchange("a message")
        return decode_message(message)

    def ask(self, *, address: str = "$management", **fields: Any) -> Message:
        self.send(encode_message(**{"reply_to": self.reply_to, **fields}), address)
        return self.receive()

    def client(self) -> ManagementClient:
        return ManagementClient(self.transport)

    def close(self) -> None:
        self.transport.close()


@contextmanager
def raw_peer(router: Daemon) -> Iterator[Raw]:
    made = Raw(router)
    try:
        yield made
    finally:
        made.close()
