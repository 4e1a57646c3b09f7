"""The list of settled deliveries is looked for in the engine's memory, and nothing is touched where it is not found."""

import ctypes
from collections.abc import Iterator

import pytest

from router.amqp.engine import pool
from router.amqp.engine.library import Pointer, ffi, lib


@pytest.fixture
def connection() -> Iterator[Pointer]:
    made = lib.pn_connection()
    yield made
    lib.pn_connection_release(made)
    lib.pn_decref(made)


def deliveries(connection: Pointer, count: int) -> list[Pointer]:
    link = lib.pn_sender(lib.pn_session(connection), b"l")
    tags = [ffi.from_buffer(b"%d" % number) for number in range(count)]
    return [lib.pn_delivery(link, ffi.new("pn_bytes_t *", (len(tag), tag))[0]) for tag in tags]


def test_settled_deliveries_are_counted_and_released_in_steps(connection: Pointer) -> None:
    count = 3 * pool._AT_ONCE
    for delivery in deliveries(connection, count):
        lib.pn_delivery_settle(delivery)
    assert pool.kept(connection) == count
    left = [pool.kept(connection) for _ in pool.releasing(connection)]
    assert left == [2 * pool._AT_ONCE, pool._AT_ONCE, 0]
    for delivery in deliveries(connection, 2):
        lib.pn_delivery_settle(delivery)
    assert pool.kept(connection) == 2


def test_where_the_list_is_not_found_nothing_is_touched(connection: Pointer, monkeypatch: pytest.MonkeyPatch) -> None:
    for delivery in deliveries(connection, 2):
        lib.pn_delivery_settle(delivery)
    monkeypatch.setattr(pool, "_AT", None)
    assert pool.kept(connection) == 0
    assert list(pool.releasing(connection)) == []
    monkeypatch.undo()
    assert pool.kept(connection) == 2


@pytest.mark.parametrize("address", [0, 1, 8, 1 << 47, (1 << 64) - 8])
def test_memory_that_is_not_there_is_no_crash(address: int) -> None:
    assert pool._read(address, 8) == b""


def test_memory_that_is_there_is_read() -> None:
    text = ctypes.create_string_buffer(b"palisade")
    assert pool._read(ctypes.addressof(text), 8) == b"palisade"
