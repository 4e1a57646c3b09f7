"""What `make run` promises: its commands are run as they are printed, by a shell, against the router it started."""

import contextlib
import json
import os
import pty
import re
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from free_ports import free_ports

pytestmark = pytest.mark.smoke

ROOT = Path(__file__).resolve().parent.parent.parent
START_TIMEOUT_S = 20.0
COMMAND_TIMEOUT_S = 240.0  # Spark on a busy machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Quickstart:
    """A running quick start: where it keeps its files, what it printed, what to call it with."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    output: Path

    def text(self) -> str:
        return self.output.read_text()

    def passwords(self) -> dict[str, str]:
        """By user."""
        return {path.name: path.read_text().strip() for path in (self.folder / "passwords").iterdir()}

    def paste(self, what: str) -> subprocess.CompletedProcess[str]:
        """Run the command printed under the comment `# <what>`."""
        command = self.text().partition(f"  # {what}\n")[2].partition("\n")[0]
        assert command, f"nothing was printed for: {what}"
        return subprocess.run(
            command,
            shell=True,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )

    def denials(self) -> list[dict[str, object]]:
        lines = [line for path in self.folder.glob("audit/*") for line in path.read_text().splitlines()]
        return [event for event in map(json.loads, lines) if event["decision"] == "deny"]


def eventually(claim: Callable[[], bool], timeout_s: float) -> bool:
    """True once `claim` holds; false when it still does not at the end of `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not claim():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def is_listening(output: Path, port: int) -> bool:
    text = output.read_text()
    return all(f"Listening on 127.0.0.1:{number}" in text for number in (port, port + 2))


@contextlib.contextmanager
def running(python: Path, folder: Path, output: Path, port: int | None = None) -> Iterator[Quickstart]:
    command = [str(python), "deploy/quickstart.py", "--folder", str(folder)]
    if port is not None:
        command += ["--port", str(port)]
    with output.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file, start_new_session=True)
    try:
        configuration = folder / "qdrouterd.conf"

        def is_ready() -> bool:
            ports = re.findall(r"^ +port: (\d+)", configuration.read_text(), re.M) if configuration.exists() else []
            return process.poll() is not None or (bool(ports) and is_listening(output, int(ports[0])))

        assert eventually(is_ready, START_TIMEOUT_S), output.read_text()
        assert process.poll() is None, output.read_text()
        found = int(re.findall(r"^ +port: (\d+)", configuration.read_text(), re.M)[0])
        yield Quickstart(folder=folder, port=found, process=process, output=output)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=START_TIMEOUT_S)


@pytest.fixture(scope="module")
def quickstart(router_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quickstart]:
    home = tmp_path_factory.mktemp("quickstart")
    with running(router_python, home / "run", home / "output", free_ports(4)) as started:
        yield started


ALICE_EXCHANGES = "alice receives five messages, which she sends"


def assert_exchanged(result: subprocess.CompletedProcess[str]) -> None:
    assert result.returncode == 0, result.stdout + result.stderr
    assert sorted(result.stdout.splitlines()) == [
        "5 messages to orders.new accepted",
        *(f"message {number}" for number in range(1, 6)),
    ]


def test_the_console_is_at_the_address_that_is_printed(quickstart: Quickstart) -> None:
    """`make run` had no HTTP listener. Without npm a page in its place says how to get the console."""
    found = re.search(r"web console.* (https://127\.0\.0\.1:\d+/) ", quickstart.text())
    assert found is not None, quickstart.text()
    context = ssl.create_default_context(cafile=str(quickstart.folder / "tls" / "ca.crt"))
    with urllib.request.urlopen(found[1], context=context, timeout=START_TIMEOUT_S) as response:
        assert b"<title>Palisade Router</title>" in response.read()
        assert "script-src" not in response.headers["content-security-policy"]
        assert "unsafe-inline" not in response.headers["content-security-policy"]


def test_alice_sends_and_receives(quickstart: Quickstart) -> None:
    assert_exchanged(quickstart.paste(ALICE_EXCHANGES))


def test_alice_is_denied_and_the_denial_recorded(quickstart: Quickstart) -> None:
    result = quickstart.paste("alice is denied an address")
    assert result.returncode == 1, result.stderr
    assert "closed the sender to secret: amqp:unauthorized-access" in result.stdout
    denial = quickstart.denials()[-1]
    assert (denial["user"], denial["address"]) == ("alice", "secret")


def test_a_wrong_password_is_refused_and_recorded(quickstart: Quickstart) -> None:
    file = quickstart.folder / "passwords" / "alice"
    right = file.read_text()
    file.write_text("wrong")
    try:
        result = quickstart.paste(ALICE_EXCHANGES)
    finally:
        file.write_text(right)
    assert result.returncode == 1, result.stdout + result.stderr
    assert any(denial["stage"] == "sasl" for denial in quickstart.denials())


def test_a_certificate_is_an_identity(quickstart: Quickstart) -> None:
    assert_exchanged(quickstart.paste("client, whose certificate is its identity"))


def test_management_answers_the_operator(quickstart: Quickstart) -> None:
    result = quickstart.paste("the operator asks for connections")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "operator" in result.stdout


def test_policy_has_no_findings(quickstart: Quickstart) -> None:
    result = quickstart.paste("are there mistakes in the policy?")
    assert result.returncode == 0, result.stdout + result.stderr


def test_denials_are_reported(quickstart: Quickstart, require_tool: Callable[[str, str], Path]) -> None:
    require_tool("java", "openjdk-17-jre-headless")
    quickstart.paste("alice is denied an address")
    result = quickstart.paste("what was denied to whom?")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "alice" in result.stdout


def test_secrets_are_stored_once_and_for_their_owner(quickstart: Quickstart) -> None:
    """A password is in one file and shown nowhere, and the key of the certificate authority is in none."""
    files = [path for path in quickstart.folder.rglob("*") if path.is_file()]
    assert sorted(quickstart.passwords()) == ["alice", "operator"]
    for user, password in quickstart.passwords().items():
        assert [path.name for path in files if password.encode() in path.read_bytes()] == [user]
        assert password not in quickstart.text()
    assert sorted(path.name for path in files if path.suffix == ".key") == ["client.key", "server.key"]
    assert not [path for path in files if path.suffix != ".crt" and path.stat().st_mode & 0o077]


def test_a_second_run_keeps_what_is_there(router_python: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def kept() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.parent.name != "audit"}

    with running(router_python, folder, tmp_path / "first", free_ports(4)) as first:
        before = kept()
    with running(router_python, folder, tmp_path / "second") as second:
        assert kept() == before
        assert second.port == first.port
        assert_exchanged(second.paste(ALICE_EXCHANGES))


def test_users_of_an_older_quick_start_get_a_password_that_is_kept(router_python: Path, tmp_path: Path) -> None:
    """Its passwords were shown once, and in no file: the commands of a second run failed."""
    folder = tmp_path / "run"
    with running(router_python, folder, tmp_path / "first", free_ports(3)):
        (folder / "passwords" / "alice").unlink()
    with running(router_python, folder, tmp_path / "second") as second:
        assert_exchanged(second.paste(ALICE_EXCHANGES))


def test_another_port_is_put_into_an_existing_configuration(router_python: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with running(router_python, folder, tmp_path / "first", free_ports(4)):
        edited = (folder / "qdrouterd.conf").read_text() + "# mine\n"
        (folder / "qdrouterd.conf").write_text(edited)
    port = free_ports(4)
    with running(router_python, folder, tmp_path / "second", port) as second:
        assert second.port == port
        assert "# mine" in (folder / "qdrouterd.conf").read_text()


def test_a_used_port_is_named_before_anything_is_shown(router_python: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        folder = str(tmp_path / "run")
        command = [str(router_python), "deploy/quickstart.py", "--folder", folder, "--port", str(port)]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False)
    assert result.returncode == 1
    assert f"127.0.0.1:{port} is in use" in result.stderr
    assert f"make run PORT={port + 100}" in result.stderr
    assert "qdsend" not in result.stdout


def test_ctrl_c_stops_make_with_status_0(router_python: Path, tmp_path: Path) -> None:
    """On a real terminal: Ctrl-C goes to its foreground process group, and make reports an interrupt as an error."""
    port, output = free_ports(4), tmp_path / "output"
    recipe = f"{router_python} deploy/quickstart.py --folder {tmp_path / 'run'} --port {port} > {output} 2>&1"
    (tmp_path / "Makefile").write_text(f"run:\n\t@{recipe}\n")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execvp("make", ["make", "-f", str(tmp_path / "Makefile"), "run"])
    try:
        assert eventually(lambda: output.exists() and is_listening(output, port), START_TIMEOUT_S), output.read_text()
        os.write(terminal, b"\x03")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, output.read_text()
    finally:
        os.close(terminal)
