"""A broker of the tests on loopback, from its distribution in the Java package registry."""

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
from typing import Protocol, Self

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from free_ports import free_port
from router_text import CONNECTOR

ROOT = Path(__file__).resolve().parent.parent.parent
CACHE = ROOT / ".cache" / "brokers"
USER, PASSWORD = "admin", "the-broker's"
STORE_PASSWORD = "of-the-test"
QUEUES = ("orders", "parts", "far.away")
TOPICS = ("news",)
FETCH_LIMIT_S = 300.0
START_LIMIT_S = 60.0
STOP_LIMIT_S = 20.0


class BrokerError(Exception):
    """A program could not be fetched, built or started, or failed: what was run, and the end of what it printed."""


def fetched(require_tool: Callable[[str, str], Path], artifact: str, archive: str, folder: str) -> Path:
    """`folder` of a distribution, fetched once into the checkout's cache. Errors: BrokerError.

    artifact  group, name, version, `tar.gz` and `bin`, as Maven writes them
    archive   its file's name
    """
    maven = require_tool("mvn", "maven")
    require_tool("java", "openjdk-17-jre-headless")
    CACHE.mkdir(parents=True, exist_ok=True)
    found = CACHE / folder
    # Several test processes may come here at once.
    with (CACHE / f"{archive}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (found / "fetched").is_file():
            options = [f"-Dartifact={artifact}", f"-DoutputDirectory={CACHE}"]
            run_to_end([str(maven), "-q", "-B", "-ntp", "dependency:copy", *options], FETCH_LIMIT_S)
            with tarfile.open(CACHE / archive) as members:
                members.extractall(CACHE, filter="data")
            (CACHE / archive).unlink()
            (found / "fetched").touch()
    return found


def run_to_end(command: list[str], limit_s: float) -> None:
    """Errors: BrokerError where its status is not 0."""
    ran = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit_s, check=False
    )
    if ran.returncode:
        raise BrokerError(f"{' '.join(command)}\n{ran.stdout[-2000:]}")


def key_store(path: Path, certificate: str, key: str) -> Path:
    """As Java reads it, under STORE_PASSWORD."""
    loaded_key = serialization.load_pem_private_key(Path(key).read_bytes(), None)
    loaded = x509.load_pem_x509_certificate(Path(certificate).read_bytes())
    protection = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
    assert isinstance(loaded_key, ec.EllipticCurvePrivateKey)
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"broker", loaded_key, loaded, None, protection))
    return path


KINDS = ("artemis", "broker-j", "classic")


class MakeBroker(Protocol):
    def __call__(self, kind: str, folder: Path, certificate: tuple[str, str] | None = None) -> "Broker": ...


class Broker:
    """A broker with QUEUES and TOPICS, in a folder of its own. Killed, it can be started with what it has stored."""

    start_limit_s = START_LIMIT_S

    def __init__(self, folder: Path, name: str) -> None:
        """name  of the router's connector to it"""
        self.name = name
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder / "printed"

    @property
    def connector(self) -> str:
        """The router's configuration of a connection to it."""
        return CONNECTOR.format(name=self.name, port=self.port, user=USER, password=PASSWORD)

    @property
    def url(self) -> str:
        """For clients that pass the router by."""
        return f"amqp://{USER}:{PASSWORD}@127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        """What starts it."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Does it listen?"""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.2):
            return True
        return False

    def start(self) -> None:
        """Returns when it is ready. Errors: BrokerError."""
        with self._log.open("wb") as printed:
            self._process = subprocess.Popen(
                self.command(), stdout=printed, stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, **self.environment()},
            )  # fmt: skip
        deadline = time.monotonic() + self.start_limit_s
        while not self.is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise BrokerError(f"{self.name} does not listen:\n{self.printed()[-2000:]}")
            time.sleep(0.05)

    def environment(self) -> dict[str, str]:
        """Of its process, beside the test's."""
        return {}

    def printed(self) -> str:
        """Since it was started."""
        return self._log.read_text(errors="replace")

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
    def running(self) -> Iterator[Self]:
        self.start()
        try:
            yield self
        finally:
            self.stop()
