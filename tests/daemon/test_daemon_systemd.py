"""What systemd is told (sd_notify(3)), against a real notify socket. Issue 39."""

import asyncio
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemon_process import LISTENER, Daemon, start
from process_log import PATIENCE_S

from router.io.service_manager import ServiceManager

pytestmark = pytest.mark.interop


@pytest.fixture
def abstract_name() -> str:
    return f"palisade-test-{os.getpid()}-{time.monotonic_ns()}"


@pytest.fixture(params=["path", "abstract"])
def notify(request: pytest.FixtureRequest, tmp_path: Path, abstract_name: str) -> Iterator[tuple[socket.socket, str]]:
    """A notify socket, and what NOTIFY_SOCKET is to say of it."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.settimeout(PATIENCE_S)
        receiver.bind(path if request.param == "path" else f"\0{abstract_name}")
        yield receiver, path if request.param == "path" else f"@{abstract_name}"


def told(receiver: socket.socket) -> dict[str, str]:
    """The next message."""
    return dict(line.split("=", 1) for line in receiver.recv(4096).decode().splitlines())


def test_ready_reload_and_end(daemon: Callable[..., Daemon], notify: tuple[socket.socket, str]) -> None:
    receiver, name = notify
    router = daemon(LISTENER, environment={"NOTIFY_SOCKET": name})
    assert told(receiver) == {"READY": "1", "STATUS": "Operational"}
    assert router.log(r"Listening on")  # whoever is started after it can connect
    before_us = time.monotonic_ns() // 1000
    router.signal(signal.SIGHUP)
    reloading = told(receiver)
    assert reloading.pop("RELOADING") == "1"
    assert before_us <= int(reloading["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
    assert told(receiver) == {"READY": "1", "STATUS": "Operational"}
    router.signal(signal.SIGTERM)
    assert told(receiver)["STOPPING"] == "1"
    assert router.wait() == 0


def test_watchdog_is_fed_at_half_of_its_time(daemon: Callable[..., Daemon], notify: tuple[socket.socket, str]) -> None:
    receiver, name = notify
    daemon(LISTENER, environment={"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "400000"})
    assert told(receiver)["READY"] == "1"
    started = time.monotonic()
    assert [told(receiver) for _ in range(4)] == [{"WATCHDOG": "1"}] * 4
    assert time.monotonic() - started >= 3 * 0.2 - 0.05


def test_a_stuck_event_loop_feeds_nothing(notify: tuple[socket.socket, str]) -> None:
    receiver, name = notify
    environment = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "100000"}

    async def run() -> None:
        ServiceManager(environment, pytest.fail).ready()
        assert told(receiver)["READY"] == "1"
        assert told(receiver) == {"WATCHDOG": "1"}
        receiver.settimeout(0.5)  # the loop stands still meanwhile
        with pytest.raises(TimeoutError):
            receiver.recv(4096)
        receiver.settimeout(PATIENCE_S)
        await asyncio.to_thread(told, receiver)  # it runs again

    asyncio.run(run())
    assert environment == {}  # a process that the router starts does not speak for it


def test_the_watchdog_of_another_process_is_not_fed(
    daemon: Callable[..., Daemon], notify: tuple[socket.socket, str]
) -> None:
    receiver, name = notify
    more = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}
    router = daemon(LISTENER, environment=more)
    assert told(receiver)["READY"] == "1"
    router.signal(signal.SIGTERM)
    assert "STOPPING" in told(receiver)


def test_a_router_that_cannot_listen_is_not_ready(tmp_path: Path, notify: tuple[socket.socket, str]) -> None:
    receiver, name = notify
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listener = LISTENER.replace("port: 0", f"port: {taken.getsockname()[1]}")
        router = start(tmp_path, listener, environment={"NOTIFY_SOCKET": name})
        assert router.wait() == 1
    assert "STOPPING" in told(receiver)


def test_systemd_is_told_how_long_a_drain_may_take(
    daemon: Callable[..., Daemon], notify: tuple[socket.socket, str]
) -> None:
    """Else it kills the router after TimeoutStopSec."""
    receiver, name = notify
    router = daemon("router {\n shutdownTimeout: 600\n}\n" + LISTENER, environment={"NOTIFY_SOCKET": name})
    assert told(receiver)["READY"] == "1"
    router.signal(signal.SIGTERM)
    ending = told(receiver)
    assert (ending["STOPPING"], ending["EXTEND_TIMEOUT_USEC"]) == ("1", str(615 * 10**6))
    assert router.wait() == 0


@pytest.mark.parametrize("name", ["/nowhere/notify", "relative", "@nobody", "/" + "x" * 200])
def test_a_socket_that_nobody_has_stops_nothing(daemon: Callable[..., Daemon], name: str) -> None:
    router = daemon(LISTENER, environment={"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "1000000"})
    assert router.wait_for_log(r"SERVER \(warning\) NOTIFY_SOCKET: READY=1 could not be sent: .")
    router.signal(signal.SIGTERM)
    assert router.wait() == 0


def test_the_authentication_service_speaks_as_well(tmp_path: Path, notify: tuple[socket.socket, str]) -> None:
    receiver, name = notify
    code = "import sys; from router.io.daemon import main_of_auth_service as m; sys.exit(m())"
    router = start(tmp_path, LISTENER, environment={"NOTIFY_SOCKET": name}, command=(sys.executable, "-c", code))
    try:
        assert told(receiver)["READY"] == "1"
    finally:
        router.end()
    assert re.match("STOPPING=1", receiver.recv(4096).decode())
