"""Listening sockets and the process's descriptors (docs/spec/policy-and-auth.md §8.9), on a real event loop."""

import asyncio
import errno
import resource
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from router.io import descriptors, listening
from router.io.descriptors import RESERVED, Descriptors
from router.io.listening import Listening, bound


class Port(socket.socket):
    """Accepting fails with these errors, one after the other."""

    errors: list[int]
    asked = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.asked += 1
        if self.errors:
            raise OSError(self.errors.pop(0), "test")
        return super().accept()


def failing(*errors: int) -> Port:
    made = Port(socket.AF_INET, socket.SOCK_STREAM)
    made.errors = list(errors)
    made.setblocking(False)
    made.bind(("127.0.0.1", 0))
    made.listen(10)
    return made


def play(body: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(body(), 20))


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINVAL])
def test_attack_no_descriptor_is_left_and_the_loop_does_nothing_else(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "PAUSE_S", 0.05)

    async def body() -> None:
        port, failures = failing(number, number), list[OSError]()
        arrived: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
        made = Listening([port], lambda accepted, _: arrived.set_result(accepted), failures.append)
        with socket.create_connection(port.getsockname()):
            (await arrived).close()
        made.close()
        assert [error.errno for error in failures] == [number, number]
        assert port.asked <= 4

    play(body)


def test_a_peer_that_has_gone_meanwhile_holds_nobody_up() -> None:
    async def body() -> None:
        port, failures = failing(errno.ECONNABORTED, errno.EPROTO), list[OSError]()
        arrived: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
        made = Listening([port], lambda accepted, _: arrived.set_result(accepted), failures.append)
        with socket.create_connection(port.getsockname()):
            (await arrived).close()
        made.close()
        assert failures == []

    play(body)


def test_a_port_closed_while_it_pauses_stays_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "PAUSE_S", 0.01)

    async def body() -> None:
        port = failing(errno.EMFILE)
        failed = asyncio.Event()
        made = Listening([port], lambda *_: pytest.fail("nobody is accepted"), lambda _: failed.set())
        with socket.create_connection(port.getsockname()):
            await failed.wait()
            made.close()
            await asyncio.sleep(0.03)
        assert port.fileno() == -1

    play(body)


def test_an_address_of_another_host_cannot_be_bound() -> None:
    with pytest.raises(OSError, match="error while attempting to bind on address"):
        bound(["192.0.2.1"], 0, socket.AF_UNSPEC)


def test_no_host_means_every_address() -> None:
    sockets = bound(None, 0, socket.AF_INET)
    assert [each.getsockname()[0] for each in sockets] == ["0.0.0.0"]
    for each in sockets:
        each.close()


@pytest.mark.parametrize(
    ("limit", "connectors", "for_peers"),
    [(1024, 0, 1024 - RESERVED), (1024, 10, 1024 - RESERVED - 10), (100, 0, 75), (100, 90, 0)],
)
def test_attack_a_reserve_is_kept(limit: int, connectors: int, for_peers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert Descriptors().for_peers(connectors) == for_peers


def test_the_descriptors_in_use_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Descriptors().in_use()
    with socket.socket(), socket.socket():
        assert Descriptors().in_use() == before + 2
    monkeypatch.setattr(descriptors, "_OPEN", "/nowhere")
    assert Descriptors().in_use() == 0
