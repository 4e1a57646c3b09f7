"""Busy sockets share what one pass of the loop reads: nobody who waits for one answer waits for all of theirs."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from router.amqp.buffers import MOST_READ_BYTES, READ_BYTES
from router.io.read_share import LEAST_BYTES, LITTLE_WORK_S, ReadShare, next_read_bytes
from router.io.sockets import Socket


class Loop:
    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def end_pass(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class End:
    """Counts how often it is read again."""

    def __init__(self) -> None:
        self.count = 0

    def read_again(self) -> None:
        self.count += 1


def read_in_a_pass(share: ReadShare, loop: Loop, busy_sockets: int) -> int:
    for _ in range(busy_sockets):
        share.is_full(End())
    loop.end_pass()
    return share.size


def test_one_busy_socket_has_a_whole_buffer() -> None:
    loop = Loop()
    share = ReadShare(loop.call_soon)
    assert share.size == READ_BYTES
    assert read_in_a_pass(share, loop, 1) == READ_BYTES


def test_busy_sockets_share_one_buffer_in_the_next_pass() -> None:
    loop = Loop()
    share = ReadShare(loop.call_soon)
    assert read_in_a_pass(share, loop, 4) == READ_BYTES // 4


def test_a_read_is_never_too_small_to_be_worth_its_price() -> None:
    loop = Loop()
    share = ReadShare(loop.call_soon)
    assert read_in_a_pass(share, loop, 1000) == LEAST_BYTES


def test_the_share_grows_again_when_fewer_are_busy() -> None:
    loop = Loop()
    share = ReadShare(loop.call_soon)
    read_in_a_pass(share, loop, 8)
    assert read_in_a_pass(share, loop, 2) == READ_BYTES // 2
    assert read_in_a_pass(share, loop, 1) == READ_BYTES


def test_each_is_read_again_in_the_next_pass() -> None:
    loop = Loop()
    share = ReadShare(loop.call_soon)
    ends = End(), End()
    for end in ends:
        share.is_full(end)
    assert len(loop.calls) == 1
    loop.end_pass()
    assert [end.count for end in ends] == [1, 1]
    assert not loop.calls


class Transport(asyncio.Transport):
    """Remembers whether it is read."""

    is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def is_closing(self) -> bool:
        return False


@pytest.mark.parametrize(("size", "is_read"), [(READ_BYTES, False), (READ_BYTES - 1, True)])
def test_a_socket_that_has_more_is_read_once_in_a_pass(size: int, is_read: bool) -> None:
    """uvloop reads up to 32 times in a pass what is full: a peer alone would hold up all others for 32 buffers."""
    loop = Loop()
    router = SimpleNamespace(reads=ReadShare(loop.call_soon))
    end = Socket[Any](router)
    transport = end._transport = Transport()
    end.get_buffer(-1)
    end.buffer_updated(size)
    assert transport.is_read == is_read
    loop.end_pass()
    assert transport.is_read


def test_reads_that_are_little_work_bring_more_and_those_of_much_work_less() -> None:
    size = READ_BYTES
    for _ in range(10):
        size = next_read_bytes(size, LITTLE_WORK_S / 4)
    assert size == MOST_READ_BYTES
    assert next_read_bytes(size, 1.5 * LITTLE_WORK_S) == size
    for _ in range(10):
        size = next_read_bytes(size, 3 * LITTLE_WORK_S)
    assert size == READ_BYTES
    assert next_read_bytes(LEAST_BYTES, LITTLE_WORK_S) == READ_BYTES


def test_a_socket_whose_messages_are_large_is_read_more_at_once_while_it_is_alone() -> None:
    loop = Loop()
    share = ReadShare(loop.call_soon)
    end = Socket[Any](SimpleNamespace(reads=share))
    end._transport = Transport()
    for _ in range(3):
        end.buffer_updated(len(end.get_buffer(-1)))  # nobody has it: no work at all
        loop.end_pass()
    assert len(end.get_buffer(-1)) == MOST_READ_BYTES
    assert read_in_a_pass(share, loop, 2) == READ_BYTES // 2
    assert len(end.get_buffer(-1)) == READ_BYTES // 2
