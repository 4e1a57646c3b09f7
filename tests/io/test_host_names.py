"""Looking host names up (router.io.host_names), with a resolver that takes its time or never answers."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from router.io import host_names
from router.io.host_names import addresses_of, look_up, names_of, numeric

PATIENCE_S = 30.0
NO_ANSWER = r"no answer from the name server in 0\.1 s"


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A name server that is not there: names that end in `.silent` are waited for until the end of the test."""
    over = threading.Event()
    real = socket.getaddrinfo

    def ask(name: str, *arguments: Any, **options: Any) -> Any:
        if name.endswith(".silent"):
            over.wait(PATIENCE_S * 2)
            raise socket.gaierror(-3, "over")
        return real(name, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", ask)
    monkeypatch.setattr(host_names, "LOOK_UP_LIMIT_S", 0.1)
    yield
    over.set()


@pytest.mark.usefixtures("silent")
def test_a_name_server_that_does_not_answer_is_not_waited_for() -> None:
    began = time.monotonic()
    resolve = look_up(f"host-{number}.silent" for number in range(100))
    for number in (0, 99):
        with pytest.raises(OSError, match=NO_ANSWER):
            resolve(f"host-{number}.silent")
    with pytest.raises(OSError, match=NO_ANSWER):
        asyncio.run(addresses_of("other.silent"))
    assert time.monotonic() - began < PATIENCE_S / 2


@pytest.mark.usefixtures("silent")
def test_names_that_were_answered_are_not_lost_by_one_that_is_not() -> None:
    resolve = look_up(["127.0.0.1", "host.silent"])
    assert resolve("127.0.0.1") == ["127.0.0.1"]
    with pytest.raises(OSError, match=NO_ANSWER):
        resolve("host.silent")


def test_names_are_looked_up_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the three waits until all three have been asked for."""
    together = threading.Barrier(3, timeout=PATIENCE_S)

    def ask(name: str, *_: Any, **__: Any) -> Any:
        together.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (f"10.0.0.{name}", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", ask)
    resolve = look_up(["1", "2", "3", "3"])
    assert [resolve(name) for name in ("1", "2", "3")] == [["10.0.0.1"], ["10.0.0.2"], ["10.0.0.3"]]


def test_what_can_be_no_name_is_an_error_of_the_system() -> None:
    for name in ("x" * 300, "a..b"):
        with pytest.raises(OSError, match=r"no host name|not known|resolution"):
            asyncio.run(addresses_of(name))
        with pytest.raises(OSError, match=r"no host name|not known|resolution"):
            look_up([name])(name)


def test_numeric_addresses_are_asked_of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("asked"))
    for host in ("127.0.0.1", "::1", "0.0.0.0"):
        assert asyncio.run(numeric(host)) == [host]


def test_the_names_of_rules() -> None:
    """Malformed ones are left to the compiler, which says what is wrong with them."""
    groups = {
        "a": {"remoteHosts": "10.0.0.1, alpha.example, 10.0.0.1-beta.example, *, 10.0.0.0/8, ::1"},
        "b": {"remoteHosts": ["gamma.example", "alpha.example"]},
        "c": {"remoteHosts": 7},
        "d": {},
        "e": "no map",
    }
    assert names_of([{"groups": groups}, {"groups": None}, {}]) == ["alpha.example", "beta.example", "gamma.example"]
