"""A qdrouterd as an operator starts it: any configuration, any options, its output and its exit status."""

import ctypes
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from process_log import PATIENCE_S, ProcessLog

from auth.secrets import Secret
from auth.verifiers.files import set_user
from auth.verifiers.hashes import Argon2idCost
from router.management.client import ManagementClient
from router.tools.connection_options import ConnectionOptions
from router.tools.transport import SocketTransport

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = (sys.executable, "-m", "router.io.daemon")
AUTHD = (sys.executable, "-c", "import sys; from router.io.daemon import main_of_auth_service as m; sys.exit(m())")

# Many peers in tests send no empty frames: on a busy machine they would be idle for more than the 16 s of the schema.
LISTENER = """
listener {
    name: plain
    host: 127.0.0.1
    port: 0
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
    idleTimeoutSeconds: 120
}
"""
LISTENING = r"SERVER \(notice\) Listening on 127\.0\.0\.1:(\d+) \({name}\)"


def write_users(folder: Path, passwords: Mapping[str, str], mechanisms: str = "PLAIN ANONYMOUS") -> Path:
    """Writes a user file to `folder`, with cheap password hashes. Returns the value for `saslConfigDir`."""
    users, sasl = folder / "users", folder / "sasl"
    for user, password in passwords.items():
        cost = Argon2idCost(memory_kib=8, iterations=1, lanes=1)
        set_user(str(users), user, Secret(password), cost=cost, must_exist=False)
    sasl.mkdir(parents=True)
    (sasl / "qdrouterd.conf").write_text(
        f"pwcheck_method: auxprop\nauxprop_plugin: userfile\nuserfile_path: {users}\nmech_list: {mechanisms}\n"
    )
    return sasl


@dataclass(slots=True, kw_only=True)
class Daemon(ProcessLog):
    """A started router."""

    folder: Path

    def _catch_up(self) -> None:
        """Waits until everything that the router has written so far has been read."""
        assert self.process.stderr is not None
        while not self.has_ended:
            count = len(self.lines)
            time.sleep(0.02)
            waiting = fcntl.ioctl(self.process.stderr.fileno(), termios.FIONREAD, b"\0" * 4)
            if waiting == b"\0" * 4 and len(self.lines) == count:
                return

    def mark(self) -> int:
        self._catch_up()
        with self.grew:
            return len(self.lines)

    def log(self, pattern: str = "", since: int = 0) -> list[str]:
        """Returns the lines from number `since` on that match the pattern."""
        self._catch_up()
        with self.grew:
            return [line for line in self.lines[since:] if re.search(pattern, line)]

    def port(self, name: str = "plain") -> int:
        return int(self.wait_for_log(LISTENING.replace("{name}", re.escape(name)))[1])

    def client(self, name: str = "plain", **options: Any) -> ManagementClient:
        """Returns a management client through one of the listeners."""
        given = {"host": "127.0.0.1", "port": self.port(name), "timeout_s": PATIENCE_S, **options}
        return ManagementClient(SocketTransport(ConnectionOptions(**given)))

    def tool(self, tool: str, *arguments: str, name: str = "plain", stdin: str | None = None) -> "Ran":
        """Runs qdstat or qdmanage against a listener."""
        return run_tool(tool, "-b", f"127.0.0.1:{self.port(name)}", *arguments, stdin=stdin)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Returns the exit status, negative for a signal."""
        return self.process.wait(PATIENCE_S)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@dataclass(frozen=True, slots=True)
class Ran:
    """A process that has ended."""

    status: int
    out: str
    err: str


def write_configuration(folder: Path, text: str, name: str = "qdrouterd.conf") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def start(
    folder: Path,
    configuration: str,
    *options: str,
    environment: Mapping[str, str] | None = None,
    preparation: Callable[[], None] | None = None,
    stdout: Any = subprocess.DEVNULL,
    command: Sequence[str] | None = None,
) -> Daemon:
    """Starts it in the foreground; does not wait."""
    path = write_configuration(folder, configuration)

    def before_exec() -> None:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # dies with the test run
        if preparation is not None:
            preparation()

    process = subprocess.Popen(
        [*(command or COMMAND), "-c", str(path), *options],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        preexec_fn=before_exec,
    )
    made = Daemon(process=process, folder=folder)
    threading.Thread(target=made.read_log, daemon=True).start()
    return made


Started = Callable[..., Daemon]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Started]:
    """Returns `daemon(configuration, *options)`, which starts a qdrouterd in tmp_path. It ends with the test."""
    started: list[Daemon] = []

    def run(configuration: str, *options: str, **settings: Any) -> Daemon:
        made = start(tmp_path, configuration, *options, **settings)
        started.append(made)
        made.wait_for_log(r"SERVER \(notice\) Operational")
        return made

    yield run
    for each in started:
        each.end()


def run(*arguments: str, cwd: Path = ROOT, environment: Mapping[str, str] | None = None) -> Ran:
    """Runs qdrouterd to its end; it must end by itself."""
    return _run([*COMMAND, *arguments], cwd=cwd, environment={"PYTHONPATH": str(ROOT), **(environment or {})})


def run_python(*arguments: str) -> Ran:
    return _run([sys.executable, *arguments])


def run_configuration(folder: Path, configuration: str, *options: str, **settings: Any) -> Ran:
    """Runs qdrouterd with a configuration that it must refuse."""
    return run("-c", str(write_configuration(folder, configuration)), *options, **settings)


def run_tool(tool: str, *arguments: str, stdin: str | None = None) -> Ran:
    return _run([sys.executable, "-m", f"router.tools.{tool}", *arguments], stdin=stdin)


def _run(
    command: Sequence[str], *, cwd: Path = ROOT, environment: Mapping[str, str] | None = None, stdin: str | None = None
) -> Ran:
    found = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        input=stdin if stdin is not None else "",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * 2,
        check=False,
    )
    return Ran(found.returncode, found.stdout, found.stderr)


def audit_events(folder: Path) -> list[dict[str, Any]]:
    """Returns the events of the audit log in the folder, without the mark of its end."""
    files = sorted(folder.glob("*.jsonl"))
    events = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [event for event in events if event["reason"] != "log_closed"]


def denials(folder: Path) -> list[dict[str, Any]]:
    """Returns the events that refuse something, without changes."""
    return [event for event in audit_events(folder) if event["decision"] != "allow"]


def eventually(claim: Callable[[], Any]) -> Any:
    """Returns the first true result of `claim`, or its last result when PATIENCE_S ends."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := claim()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return value
