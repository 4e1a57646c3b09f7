"""Work that waits for a disk: nobody waits for it, and it costs one thread. Issue 11, section 2."""

import asyncio
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from router.io import aside
from router.io.aside import Aside


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A disk that answers when it is set."""
    monkeypatch.setattr(aside, "ANSWER_S", 0.05)
    event = threading.Event()
    yield event
    event.set()


def test_the_result_and_the_error_come_back() -> None:
    async def run() -> None:
        one = Aside()
        assert await one.run(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            await one.run(lambda: 1 // 0)
        assert await one.run(lambda: 8) == 8

    asyncio.run(run())


def test_a_disk_that_hangs_costs_one_thread(released: threading.Event) -> None:
    async def run() -> None:
        one = Aside()
        calls: list[int] = []
        with pytest.raises(TimeoutError):
            await one.run(released.wait)
        for number in range(3):
            with pytest.raises(TimeoutError):
                await one.run(partial(calls.append, number))
        assert [each.name for each in threading.enumerate()].count("aside") == 1
        assert calls == []
        released.set()
        assert await one.run(lambda: 8) == 8

    asyncio.run(run())


def test_a_thread_that_ends_after_the_loop_disturbs_nobody(released: threading.Event) -> None:
    one = Aside()
    with pytest.raises(TimeoutError):
        asyncio.run(one.run(released.wait))
    (thread,) = [each for each in threading.enumerate() if each.name == "aside"]
    assert thread.daemon
    released.set()
    thread.join(20)
    assert not thread.is_alive()
