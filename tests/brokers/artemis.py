"""Apache ActiveMQ Artemis on loopback, from its distribution in the Java package registry, as a server of a test."""

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CACHE = ROOT / ".cache" / "brokers"
VERSION = "2.38.0"
QUEUES = ("orders", "parts", "far.away")
USER, PASSWORD = "admin", "the-broker's"
FETCH_LIMIT_S = 300.0
START_LIMIT_S = 60.0
STOP_LIMIT_S = 20.0

# One queue for each address; what it cannot deliver goes to DLQ after the third time.
BROKER = """<?xml version="1.0"?>
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>artemis</name>
    <persistence-enabled>true</persistence-enabled>
    <journal-type>NIO</journal-type>
    <journal-datasync>false</journal-datasync>
    <journal-pool-files>2</journal-pool-files>
    <disk-scan-period>-1</disk-scan-period>
    <critical-analyzer>false</critical-analyzer>
    <global-max-size>100M</global-max-size>
    <acceptors>
      <acceptor name="amqp">tcp://127.0.0.1:{port}?protocols=AMQP;amqpCredits=1000;amqpLowCredits=300</acceptor>
    </acceptors>
    <security-settings>
      <security-setting match="#">
        <permission type="createNonDurableQueue" roles="amq"/>
        <permission type="deleteNonDurableQueue" roles="amq"/>
        <permission type="createDurableQueue" roles="amq"/>
        <permission type="deleteDurableQueue" roles="amq"/>
        <permission type="createAddress" roles="amq"/>
        <permission type="deleteAddress" roles="amq"/>
        <permission type="consume" roles="amq"/>
        <permission type="browse" roles="amq"/>
        <permission type="send" roles="amq"/>
      </security-setting>
    </security-settings>
{connections}
    <address-settings>
      <address-setting match="#">
        <dead-letter-address>DLQ</dead-letter-address>
        <max-delivery-attempts>3</max-delivery-attempts>
        <redelivery-delay>0</redelivery-delay>
        <auto-create-queues>false</auto-create-queues>
        <auto-create-addresses>false</auto-create-addresses>
      </address-setting>
    </address-settings>
    <addresses>
      <address name="DLQ"><anycast><queue name="DLQ"/></anycast></address>
{queues}
    </addresses>
  </core>
</configuration>
"""
QUEUE = '      <address name="{0}"><anycast><queue name="{0}"/></anycast></address>'
# The broker connects to a router, and is a waypoint for an address.
PEER = """    <broker-connections>
      <amqp-connection uri="tcp://127.0.0.1:{port}" name="router" retry-interval="200" reconnect-attempts="-1">
        <peer address-match="{address}"/>
      </amqp-connection>
    </broker-connections>"""
# Of a router: for clients, and to the broker.
LISTENER = """
listener {
    name: clients
    host: 127.0.0.1
    port: 0
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}
"""
CONNECTOR = """connector {{
    name: artemis
    host: 127.0.0.1
    port: {port}
    role: route-container
    saslMechanisms: PLAIN
    saslUsername: {user}
    saslPassword: {password}
}}
"""
MEMORY = "-Xms128M -Xmx512M -XX:+UseSerialGC"


class BrokerError(Exception):
    """The broker could not be fetched or started: what was run, and the end of what it printed."""


def home(require_tool: Callable[[str, str], Path]) -> Path:
    """The folder of the distribution, fetched once into the checkout's cache. Errors: BrokerError."""
    maven = require_tool("mvn", "maven")
    require_tool("java", "openjdk-17-jre-headless")
    CACHE.mkdir(parents=True, exist_ok=True)
    found = CACHE / f"apache-artemis-{VERSION}"
    # Several test processes may come here at once.
    with (CACHE / "artemis.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (found / "fetched").is_file():
            artifact = f"org.apache.activemq:apache-artemis:{VERSION}:tar.gz:bin"
            options = [f"-Dartifact={artifact}", f"-DoutputDirectory={CACHE}"]
            _run([str(maven), "-q", "-B", "-ntp", "dependency:copy", *options], FETCH_LIMIT_S)
            archive = CACHE / f"apache-artemis-{VERSION}-bin.tar.gz"
            with tarfile.open(archive) as members:
                members.extractall(CACHE, filter="data")
            archive.unlink()
            (found / "fetched").touch()
    return found


def _run(command: list[str], limit_s: float) -> None:
    ran = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit_s, check=False
    )
    if ran.returncode:
        raise BrokerError(f"{' '.join(command)}\n{ran.stdout[-2000:]}")


class Artemis:
    """A broker with queues, in a folder of its own. It can be killed and started again with what it has stored."""

    def __init__(self, folder: Path, distribution: Path, *queues: str, connections: str = "") -> None:
        """connections  those that the broker makes (PEER)"""
        self.folder = folder
        self.port = free_port()
        command = [str(distribution / "bin" / "artemis"), "create", str(folder), "--user", USER, "--password", PASSWORD]
        command += ["--require-login", "--no-autotune", "--no-web", "--silent", "--force", "--host", "127.0.0.1"]
        _run(command, START_LIMIT_S)
        made = "\n".join(map(QUEUE.format, queues))
        text = BROKER.format(port=self.port, queues=made, connections=connections)
        (folder / "etc" / "broker.xml").write_text(text)
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder / "printed"

    @property
    def connector(self) -> str:
        """The router's configuration of a connection to it."""
        return CONNECTOR.format(port=self.port, user=USER, password=PASSWORD)

    def start(self) -> None:
        """Returns when it listens. Errors: BrokerError."""
        environment = {**os.environ, "JAVA_ARGS": f"{MEMORY} -Dlog4j2.disableJmx=true"}
        with self._log.open("ab") as printed:
            self._process = subprocess.Popen(
                [str(self.folder / "bin" / "artemis"), "run"],
                stdout=printed, stderr=subprocess.STDOUT, env=environment, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + START_LIMIT_S
        while not self._is_listening():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise BrokerError(f"Artemis does not listen:\n{self._log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)

    def _is_listening(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.2):
            return True
        return False

    def kill(self) -> None:
        """As by a power failure of its host, but that files stay."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def running(folder: Path, distribution: Path, *queues: str, connections: str = "") -> Iterator[Artemis]:
    broker = Artemis(folder, distribution, *queues, connections=connections)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
