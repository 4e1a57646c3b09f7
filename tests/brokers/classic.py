"""Apache ActiveMQ Classic as a server of a test: from its parts, as the Java package registry has no distribution."""

import fcntl
from collections.abc import Callable
from pathlib import Path

from broker_process import (
    CACHE,
    FETCH_LIMIT_S,
    PASSWORD,
    QUEUES,
    STORE_PASSWORD,
    USER,
    Broker,
    key_store,
    run_to_end,
)

PROGRAM = Path(__file__).parent / "classic_program"
MEMORY = ("-Xms64M", "-Xmx512M", "-XX:+UseSerialGC")


def home(require_tool: Callable[[str, str], Path]) -> Path:
    """The folder of its archives. Errors: BrokerError."""
    maven = require_tool("mvn", "maven")
    require_tool("javac", "openjdk-17-jdk-headless")
    out, pom = CACHE / "classic", (PROGRAM / "pom.xml")
    out.mkdir(parents=True, exist_ok=True)
    # Several test processes may come here at once.
    with (CACHE / "classic.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = out / "fetched-by"
        if not stamp.is_file() or stamp.read_text() != pom.read_text():
            wanted = ["-DincludeScope=runtime", f"-DoutputDirectory={out}"]
            command = [str(maven), "-q", "-B", "-ntp", "-f", str(pom), "dependency:copy-dependencies", *wanted]
            run_to_end(command, FETCH_LIMIT_S)
            stamp.write_text(pom.read_text())
    return out


class Classic(Broker):
    """It has the queues alone, and takes no link to another. Its topics want a prefix that a JMS client learns from the
    broker's own Open, which a router does not pass on.
    """

    def __init__(self, folder: Path, archives: Path, *, certificate: tuple[str, str] | None = None) -> None:
        """certificate  files of a certificate and its key: it listens with TLS alone"""
        super().__init__(folder, "broker")
        folder.mkdir(parents=True)
        self._archives = archives
        self._scheme = "amqp"
        self._options: tuple[str, ...] = MEMORY
        if certificate is not None:
            store = key_store(folder / "keys.p12", *certificate)
            self._scheme = "amqp+ssl"
            self._options = (
                *MEMORY,
                f"-Djavax.net.ssl.keyStore={store}",
                f"-Djavax.net.ssl.keyStorePassword={STORE_PASSWORD}",
            )

    def command(self) -> list[str]:
        program = ["java", *self._options, "-cp", f"{self._archives}/*", str(PROGRAM / "Classic.java")]
        return [*program, f"{self._scheme}://127.0.0.1:{self.port}", str(self.folder), USER, PASSWORD, *QUEUES]

    def is_ready(self) -> bool:
        """It listens before its queues are there."""
        return "\nready\n" in self.printed()
