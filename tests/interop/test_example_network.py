"""What `make network` promises: its commands are run as they are printed, by a shell, against the routers it started.

The example of policies/network is started as it is, used for what it is for, and attacked by its neighbours.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from free_ports import free_ports

from policy.cli.main import main as qdpolicy

pytestmark = pytest.mark.interop

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 60.0
# Of the ports in policies/network: the last is so much above the first.
PORTS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleNetwork:
    """Where it keeps its files, and what it printed."""

    folder: Path
    output: Path
    environment: dict[str, str]

    def command(self, what: str) -> str:
        """The one that was printed under the comment `# <what>`."""
        found = re.search(rf"^  # {what}[^\n]*\n  (.*)$", self.output.read_text(), re.MULTILINE)
        assert found is not None, f"nothing was printed for: {what}"
        return found[1]

    def paste(self, command: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def result(self, command: str) -> tuple[int, str]:
        process = self.paste(command)
        output, _ = process.communicate(timeout=PATIENCE_S)
        return process.returncode, output

    def denials(self, router: str) -> list[dict[str, Any]]:
        lines = [line for path in self.folder.glob(f"audit/{router}/*") for line in path.read_text().splitlines()]
        return [event for event in map(json.loads, lines) if event["decision"] == "deny"]


def eventually(claim: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (value := claim()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return value


@pytest.fixture(scope="module")
def network(router_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExampleNetwork]:
    home = tmp_path_factory.mktemp("network")
    folder, output = home / "run", home / "output"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [str(router_python), "deploy/network.py", "--folder", str(folder), "--port", str(free_ports(PORTS))]
    with output.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=file, start_new_session=True)
    try:
        assert eventually(lambda: process.poll() is not None or "Ctrl-C stops" in output.read_text())
        assert process.poll() is None, output.read_text()
        yield ExampleNetwork(folder=folder, output=output, environment=environment)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=PATIENCE_S) == 0
    assert not any(re.search(r" \(critical\) ", path.read_text()) for path in folder.glob("*.log"))


def test_a_message_goes_from_one_end_to_the_other(network: ExampleNetwork) -> None:
    receiving = network.paste(network.command("receive at "))
    status, output = network.result(network.command("send at "))
    assert (status, "5 messages to demo.orders accepted" in output) == (0, True), output
    output, _ = receiving.communicate(timeout=PATIENCE_S)
    assert output.splitlines() == [f"order {number}" for number in range(1, 6)], output


def test_the_operator_sees_the_ring(network: ExampleNetwork) -> None:
    """network 102"""

    def seen() -> list[list[str]]:
        _, output = network.result(network.command("the routers of the network, as A sees them"))
        return [line.split()[:2] for line in output.splitlines() if re.match(r"  [ABC] ", line)]

    ring = [["A", "(self)"], ["B", "-"], ["C", "-"]]
    assert eventually(lambda: seen() == ring), seen()
    status, output = network.result(network.command("the connections of B, asked by way of A"))
    assert status == 0, output
    assert output.splitlines()[1] == "B"
    assert output.count("inter-router") == 2
    status, output = network.result(network.command("every router's addresses"))
    assert (status, output.count("Router Addresses")) == (0, 3), output


def test_the_example_is_free_of_mistakes(network: ExampleNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    lint = ("lint", "--fleet", "--fail-level", "note")
    assert qdpolicy([*lint, str(network.folder)]) == 0
    # The file of users is made with the network.
    assert qdpolicy([*lint, str(ROOT / "policies" / "network"), "--ignore", "PAL166"]) == 0


def test_the_client_may_not_join_as_a_router(network: ExampleNetwork) -> None:
    """Attack: its certificate is of the authority of the routers. It says the id of B."""
    command = network.command("send at ")
    port = re.search(r"port: (\d+)", (network.folder / "A.conf").read_text().partition("routers")[2])
    assert port is not None
    asked = re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{port[1]}", command)
    status, output = network.result(asked)
    assert (status, "amqp:unauthorized-access" in output) == (1, True), output
    event = eventually(lambda: [each for each in network.denials("A") if each["reason"] == "router_id_not_allowed"])[0]
    assert event["user"] == "demo"


@pytest.mark.parametrize("address", ["secret", "$management", "_topo/0/B/$management", "_topo/0/C/demo.orders"])
def test_the_client_reaches_its_addresses_only(network: ExampleNetwork, address: str) -> None:
    """Attack: an address of another router by its topological name."""
    asked = network.command("send at ").replace("demo.orders", f"'{address}'")
    status, output = network.result(asked)
    assert (status, "amqp:unauthorized-access" in output) == (1, True), output


def test_the_operator_changes_nothing_on_another_router(network: ExampleNetwork) -> None:
    """Attack: rights that the operator has at A, used on B."""
    command = network.command("the connections of B, asked by way of A").replace("qdstat", "qdmanage", 1)
    base = command.removesuffix(" -c")
    status, output = network.result(f"{base} create --type ban --name b user=demo")
    assert (status, "Forbidden" in output) == (1, True), output
    event = eventually(lambda: [each for each in network.denials("B") if each["reason"] == "management_not_allowed"])[0]
    assert event["rule"]["item"] == "policy, networkManagement: observer"


def test_it_stops_while_it_starts(router_python: Path, tmp_path: Path) -> None:
    """The routers that run by then end with it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [str(router_python), "deploy/network.py", "--folder", str(tmp_path), "--port", str(free_ports(PORTS))]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        assert eventually((tmp_path / "A.log").exists)
        process.terminate()
        assert process.wait(timeout=PATIENCE_S) == 0
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
