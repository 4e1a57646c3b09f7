"""`maxSessionSeconds`: users of authenticators that cannot be asked again are disconnected (policy-and-auth §8.7)."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemon_process import LISTENER, Daemon
from raw_peer import AMQP, CLOSE, SASL, RawPeer, begin, frame, open_frame, plain
from server_peer import serving
from test_daemon_auth_service import at, configuration, good, sub

from auth.session_ends import session_end
from router.management.client import BadRequestStatus
from router.values import Described

pytestmark = pytest.mark.interop

SESSION_S = 2
EXPIRED = ("amqp:connection:forced", "The credentials have expired")


@pytest.fixture
def saslauthd(tmp_path: Path) -> Iterator[str]:
    """The socket of a saslauthd that takes any password."""
    path = str(tmp_path / "mux")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()

    def serve() -> None:
        while True:
            try:
                asked, _ = listening.accept()
            except OSError:
                return
            with asked:
                asked.recv(4096)
                asked.sendall(b"\0\2OK")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield path
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join(10)


def logged_in(router: Daemon, listener: str) -> RawPeer:
    peer = RawPeer(socket.create_connection(("127.0.0.1", router.port(listener))), 0)
    peer.send(SASL + plain("alice", "right") + AMQP + open_frame("localhost") + begin())
    return peer


def ends(peer: RawPeer) -> tuple[tuple[str, str], float]:
    """The error of the router's Close, and after how many seconds it came."""
    started = time.monotonic()
    (error,) = peer.read_until(CLOSE, 20)
    assert isinstance(error, Described)
    return (str(error.value[0]), str(error.value[1])), time.monotonic() - started


def asking(name: str, path: str, seconds: int) -> str:
    return (
        f"saslauthdAuthenticator {{\n name: {name}\n path: {path}\n maxSessionSeconds: {seconds}\n}}\n"
        f"listener {{\n name: for-{name}\n host: 127.0.0.1\n port: 0\n authenticatePeer: yes\n"
        f" authenticators: {name}\n}}\n"
    )


def test_users_of_saslauthd_are_disconnected_in_time_and_others_stay(
    daemon: Callable[..., Daemon], saslauthd: str
) -> None:
    router = daemon(asking("bounded", saslauthd, SESSION_S) + asking("endless", saslauthd, 0) + LISTENER)
    stays, goes = logged_in(router, "for-endless"), logged_in(router, "for-bounded")
    what, after_s = ends(goes)
    assert what == EXPIRED
    assert 0.85 * SESSION_S - 0.5 < after_s < 20
    stays.send(frame(CLOSE))
    assert not any(stays.read_until(CLOSE, 20)), "it was open until it said Close itself"


def test_users_of_a_service_are_disconnected_in_time(daemon: Callable[..., Daemon]) -> None:
    with serving(good(sub("alice@EXAMPLE.COM"))) as service:
        router = daemon(configuration(at(service), plugin=f" maxSessionSeconds: {SESSION_S}"))
        what, _ = ends(logged_in(router, "login"))
        assert what == EXPIRED
        # And can come again.
        assert ends(logged_in(router, "login"))[0] == EXPIRED


@pytest.mark.parametrize("seconds", [-1, 2**31])
def test_a_time_out_of_range_is_refused(daemon: Callable[..., Daemon], saslauthd: str, seconds: int) -> None:
    router = daemon(LISTENER)
    with router.client() as operator:
        for kind, where in (("saslauthdAuthenticator", {"path": saslauthd}), ("authServicePlugin", {"host": "::1"})):
            with pytest.raises(BadRequestStatus, match=f"maxSessionSeconds: '{seconds}': expected 0"):
                operator.create({**where, "maxSessionSeconds": seconds}, type=kind, name="new")


@pytest.mark.parametrize(
    ("seconds", "ends_at_s", "chance", "expected"),
    [
        (0, None, 0.0, None),
        (0, 1500.0, 0.0, 1500.0),
        (100, None, 0.0, 1100.0),
        (100, None, 1.0, 1090.0),
        (100, 1050.0, 0.0, 1050.0),
        (100, 1500.0, 0.5, 1095.0),
    ],
)
def test_the_sooner_end_counts(seconds: int, ends_at_s: float | None, chance: float, expected: float | None) -> None:
    assert session_end(seconds, ends_at_s, wall_clock=lambda: 1000.0, chance=lambda: chance) == expected
