"""Several qdrouterd processes, connected on loopback: each has a listener for clients and one for routers."""

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness import ROOT, STOP_TIMEOUT_S, die_with_parent, router_command, stop
from process_log import ProcessLog

# Where five of them are started again and again on processors that others use.
START_TIMEOUT_S = 60.0
CONFIGURATION = """\
router {{
    mode: interior
    id: {name}
}}
listener {{
    name: clients
    host: 127.0.0.1
    port: 0
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
    idleTimeoutSeconds: 120
}}
listener {{
    name: routers
    host: 127.0.0.1
    port: {port}
    role: inter-router
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
    cost: {cost}
}}
"""
CONNECTOR = """\
connector {{
    name: to-{name}
    host: 127.0.0.1
    port: {port}
    role: inter-router
    saslMechanisms: ANONYMOUS
    cost: {cost}
}}
"""


@dataclass(slots=True, kw_only=True)
class Node(ProcessLog):
    """One router of the network.

    clients, routers  the ports of its listeners
    """

    name: str
    clients: int = 0
    routers: int = 0
    reader: threading.Thread | None = field(default=None)

    def kill(self) -> None:
        """As a power cut would."""
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)

    def wait_for_way_to(self, name: str) -> None:
        self.wait_for_log(rf"ROUTER_LS \(info\) Computed costs: .*'{name}': ", timeout_s=20.0)


class Processes:
    """The routers of one test, started one by one."""

    def __init__(self, folder: Path) -> None:
        self.expected_error: str | None = None  # part of log lines that the test brings about
        self._folder = folder
        self.nodes: dict[str, Node] = {}

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def start(self, name: str, *, to: Sequence[str] = (), port: int = 0, cost: int = 1, extra: str = "") -> Node:
        """to  the routers that it connects to; port  of its listener for routers"""
        text = CONFIGURATION.format(name=name, port=port, cost=cost) + extra
        for other in to:
            text += CONNECTOR.format(name=other, port=self.nodes[other].routers, cost=cost)
        node = self.run(name, text)
        if port:
            node.routers = port
        else:
            node.routers = int(node.wait_for_log(r"Listening on 127\.0\.0\.1:(\d+) \(routers\)")[1])
        return node

    def run(self, name: str, text: str) -> Node:
        """A router with this configuration, in which a listener is called `clients`."""
        path = self._folder / f"{name}.conf"
        path.write_text(text)
        process = subprocess.Popen(
            [*router_command(Path(sys.executable)), "-c", str(path)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            preexec_fn=die_with_parent,
        )
        node = self.nodes[name] = Node(process=process, name=name)
        node.reader = threading.Thread(target=node.read_log, daemon=True)
        node.reader.start()
        node.clients = int(
            node.wait_for_log(r"Listening on 127\.0\.0\.1:(\d+) \(clients\)", timeout_s=START_TIMEOUT_S)[1]
        )
        return node

    def stop(self) -> None:
        """All end with status 0, but for those that were killed, and none has logged an error."""
        statuses = {name: stop(node.process) for name, node in self.nodes.items()}
        for name, node in self.nodes.items():
            if node.reader is not None:
                node.reader.join(STOP_TIMEOUT_S)
            assert statuses[name] in (0, -signal.SIGKILL), "\n".join(node.lines[-40:])
            errors = [line for line in node.lines if " (error) " in line or line.startswith("Traceback")]
            errors = [line for line in errors if self.expected_error is None or self.expected_error not in line]
            assert not errors, (name, errors)


@contextlib.contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    running = Processes(folder)
    try:
        yield running
    finally:
        running.stop()
