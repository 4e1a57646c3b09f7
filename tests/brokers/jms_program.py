"""Applications of the tests by Qpid JMS: jms/, built once."""

import fcntl
import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path

from broker_process import CACHE, BrokerError, run_to_end

HERE = Path(__file__).parent / "jms"
BUILD_LIMIT_S = 600.0
RUN_LIMIT_S = 120.0


def built(require_tool: Callable[[str, str], Path]) -> list[str]:
    """The command that starts it, to which the name of a scenario and a URL are added. Errors: BrokerError."""
    maven, java = require_tool("mvn", "maven"), require_tool("java", "openjdk-17-jre-headless")
    require_tool("javac", "openjdk-17-jdk-headless")
    out = CACHE / "jms"
    out.mkdir(parents=True, exist_ok=True)
    sources = sorted(path for path in HERE.rglob("*") if path.is_file())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    # Several test processes may come here at once.
    with (CACHE / "jms.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = out / "built-from"
        if not stamp.is_file() or stamp.read_text() != digest:
            command = [str(maven), "-q", "-B", "-ntp", "-f", str(HERE / "pom.xml"), f"-Dbuild.folder={out}", "compile"]
            run_to_end(command, BUILD_LIMIT_S)
            stamp.write_text(digest)
    return [str(java), "-XX:+UseSerialGC", "-Xmx128M", "-cp", f"{out}/classes:{out}/lib/*", "Scenarios"]


def played(command: list[str], scenario: str, url: str) -> dict[str, str]:
    """What a scenario has printed, by its names."""
    ran = subprocess.run(
        [*command, scenario, url], capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False
    )  # fmt: skip
    if ran.returncode:
        raise BrokerError(f"{scenario}: {ran.stdout[-1000:]}\n{ran.stderr[-3000:]}")
    return dict(line.split(": ", 1) for line in ran.stdout.splitlines())
