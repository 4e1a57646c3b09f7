"""RabbitMQ 3 as a server of a test, with its plugin for AMQP 1.0: it ends a session where other brokers end a link."""

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from broker_process import Broker
from free_ports import free_port
from router_text import CONNECTOR

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # as Debian's package has it
USER = PASSWORD = "guest"  # whom it has from the start, on loopback


class RabbitMQ(Broker):
    start_limit_s = 240.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "rabbit")
        folder.mkdir()
        self._epmd_port, self._node_port = free_port(), free_port()
        (folder / "plugins").write_text("[rabbitmq_amqp1_0].\n")

    @property
    def connector(self) -> str:
        return CONNECTOR.format(name=self.name, port=self.port, user=USER, password=PASSWORD)

    @property
    def url(self) -> str:
        return f"amqp://{USER}:{PASSWORD}@127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [str(SERVER)]

    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.folder),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "RABBITMQ_NODENAME": f"rabbit{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_MNESIA_BASE": str(self.folder / "store"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
        }

    def is_ready(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.2):
            return "startup complete" in self.printed()
        return False

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        # It would start one of its own, which stays.
        epmd = subprocess.Popen([str(shutil.which("epmd")), "-address", "127.0.0.1", "-port", str(self._epmd_port)])
        try:
            with super().running() as running:
                yield running
        finally:
            epmd.terminate()
            epmd.wait()
