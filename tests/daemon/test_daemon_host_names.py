"""A name server that does not answer: what does not need it works, and the process ends when it is told to."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from daemon_process import LISTENER, Daemon, run_configuration
from process_log import PATIENCE_S

pytestmark = pytest.mark.interop

# Python runs it before anything of ours.
SILENT = """
import socket, time
real = socket.getaddrinfo
def ask(name, *arguments, **options):
    if isinstance(name, str) and name.endswith(".silent"):
        time.sleep(600)
    return real(name, *arguments, **options)
socket.getaddrinfo = ask
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "python"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SILENT)
    return {"PYTHONPATH": str(folder)}


def test_a_silent_name_server_holds_up_neither_other_listeners_nor_the_end(
    daemon: Callable[..., Daemon], environment: dict[str, str]
) -> None:
    connectors = "".join(f"connector {{\n name: c{number}\n host: c{number}.silent\n}}\n" for number in range(40))
    listener = "listener {\n name: named\n host: host.silent\n port: 0\n}\n"
    router = daemon(connectors + listener + LISTENER, environment=environment)
    began = time.monotonic()
    with router.client() as client:
        assert client.query("connector", ["connectionStatus"]).rows == (("CONNECTING",),) * 40
    router.process.send_signal(signal.SIGTERM)
    assert router.process.wait(PATIENCE_S) == 0
    assert time.monotonic() - began < PATIENCE_S


def test_a_rule_whose_host_name_does_not_resolve_stops_the_start(tmp_path: Path) -> None:
    """Fail closed: a router without the rule would let in whom it was to keep out, or the other way round."""
    ran = run_configuration(
        tmp_path,
        "policy {\n enableVhostPolicy: yes\n}\nvhost {\n hostname: v\n groups: {\n  g: {\n   users: u\n"
        "   remoteHosts: 10.0.0.1, nosuchhost.invalid\n  }\n }\n}\n",
    )
    assert ran.status == 1
    assert "Looking up the host names of remoteHosts, 1 in number: nosuchhost.invalid" in ran.err
    assert "PolicyError: Policy 'v' is invalid" in ran.err
    assert "'nosuchhost.invalid' failed to resolve" in ran.err
    assert ".conf:9)" in ran.err
