"""The C load client: built if it is missing or old, run with a time limit."""

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.subjects import LOAD_PASSWORD_VARIABLE, Subject

SOURCE = Path(__file__).parent / "load.c"
BINARY = Path(__file__).parent / "results" / "load"
_LIBRARIES = ("libqpid-proton-proactor.so.1", "libqpid-proton-core.so.10")
MISSING = "the load client needs gcc and a C library: apt-get install gcc libqpid-proton11-dev"

# A run takes a few seconds; a longer one hangs.
TIMEOUT_S = 180.0
# Presettled messages may be lost: how long a receiver may wait for more after the sender has ended.
LAST_MESSAGE_S = 3.0


class LoadError(Exception):
    """The client cannot be built, or the peer refused it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The messages to send and to receive: `count` of `size` bytes on each connection."""

    count: int
    size: int = 100
    address: str = "bench"
    is_settled: bool = False
    inflight: int = 0
    senders: int = 1
    receivers: int = 1
    is_distinct: bool = False
    is_streamed: bool = False

    @property
    def sent(self) -> int:
        return self.count * self.senders

    @property
    def received_each(self) -> int:
        """Returns messages per receiver, if each address has one receiver or all receivers get all."""
        return self.count if self.is_distinct else self.sent


def build() -> None:
    """Compiles load.c. Errors: LoadError."""
    if BINARY.exists() and BINARY.stat().st_mtime > SOURCE.stat().st_mtime:
        return
    search = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    ldconfig, gcc = shutil.which("ldconfig", path=search), shutil.which("gcc")
    if ldconfig is None or gcc is None:
        raise LoadError(MISSING)
    listed = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=True).stdout.splitlines()
    paths = [line.split("=>")[1].strip() for line in listed if any(f"{name} " in line for name in _LIBRARIES)]
    if len(paths) < len(_LIBRARIES) or not Path("/usr/include/proton/proactor.h").exists():
        raise LoadError(MISSING)
    BINARY.parent.mkdir(exist_ok=True)
    result = subprocess.run([gcc, "-O2", "-o", BINARY, SOURCE, *paths], capture_output=True, text=True, check=False)
    if result.returncode:
        raise LoadError(f"load.c does not compile:\n{result.stderr}")


@contextmanager
def client(verb: str, subject: Subject, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Runs the client beside the body, and ends it afterwards."""
    command = [str(BINARY), verb, "--port", str(subject.port), *subject.login, *options]
    process = subprocess.Popen(
        command,
        env=os.environ | {LOAD_PASSWORD_VARIABLE: subject.password},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    limit = threading.Timer(TIMEOUT_S, process.kill)
    limit.start()
    try:
        yield process
    finally:
        limit.cancel()
        process.kill()
        process.communicate()


def wait_until_ready(process: "subprocess.Popen[str]") -> None:
    """Waits until every link of a client is attached. Errors: LoadError with the peer's answer."""
    assert process.stderr is not None
    text = ""
    for line in process.stderr:
        text += line
        if line.startswith("ready"):
            return
    raise LoadError(f"the load client ended with status {process.wait()}: {text.strip() or 'no reason given'}")


def run(load: Load, *chain: Subject, receiving_from: Subject | None = None) -> dict[str, Any]:
    """Sends to the first subject and receives from the last, mostly the same. Returns the sender's figures, and

    cpu_us    the subjects' CPU microseconds per message sent, all together
    received  messages that the receivers got
    receiving_from  the subject with the receivers, if it is not in the chain
    Errors    LoadError
    """
    first, last = chain[0], chain[-1]
    common = ["--address", load.address, "--size", str(load.size)]
    common += ["--settled"] * load.is_settled + ["--distinct"] * load.is_distinct
    receiving = [*common, "--connections", str(load.receivers), "--count", str(load.received_each)]
    sending = [*common, "--connections", str(load.senders), "--count", str(load.count)]
    sending += ["--inflight", str(load.inflight)] if load.inflight else []
    sending += ["--stream"] * load.is_streamed
    with client("recv", receiving_from or last, *receiving) as receiver:
        wait_until_ready(receiver)
        before = sum(subject.process.cpu_seconds() for subject in chain)
        with client("send", first, *sending) as sender:
            output, errors = sender.communicate()
            if sender.returncode:
                raise LoadError(f"{first.name}: the sender failed: {errors.strip()} {output.strip()}")
        try:
            received, _ = receiver.communicate(timeout=LAST_MESSAGE_S)
        except subprocess.TimeoutExpired:
            receiver.send_signal(signal.SIGINT)
            received, _ = receiver.communicate(timeout=TIMEOUT_S)
        cpu = sum(subject.process.cpu_seconds() for subject in chain) - before
    figures: dict[str, Any] = json.loads(output)
    figures["cpu_us"] = cpu / load.sent * 1e6
    figures["received"] = json.loads(received)["messages"] if received else 0
    return figures
