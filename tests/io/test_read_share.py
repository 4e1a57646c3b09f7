"""Busy sockets share what one pass of the loop reads: nobody who waits for one answer waits for all of theirs."""

from collections.abc import Callable

from router.amqp.buffers import READ_BYTES
from router.io.read_share import LEAST_BYTES, ReadShare


class Loop:
    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def end_pass(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


def read_in_a_pass(share: ReadShare, loop: Loop, full_reads: int) -> int:
    for _ in range(full_reads):
        share.is_full()
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


def test_a_pass_is_counted_once() -> None:
    loop = Loop()
    share = ReadShare(loop.call_soon)
    share.is_full()
    share.is_full()
    assert len(loop.calls) == 1
