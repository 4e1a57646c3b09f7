"""Deadlines of connections (router.io.timers)."""

import asyncio
import gc
import time
import weakref

from router.io.timers import Timers
from router.io.turns import TURN_S


class Member:
    def on_timer(self, now: float) -> float | None:
        return None


def test_a_member_that_is_discarded_is_let_go_of_at_once() -> None:
    """Attack: connections that come and go within their handshake's time must not stay in memory until it is over."""

    async def come_and_go() -> bool:
        timers = Timers(asyncio.get_running_loop().time, lambda: None)
        member = Member()
        seen = weakref.ref(member)
        timers.set(member, asyncio.get_running_loop().time() + 60)
        timers.discard(member)
        del member
        gc.collect()
        return seen() is None

    assert asyncio.run(come_and_go())


def test_moving_a_deadline_leaves_only_the_new_one() -> None:
    async def move() -> list[float]:
        loop = asyncio.get_running_loop()
        called: list[float] = []
        done = asyncio.Event()

        class Counted(Member):
            def on_timer(self, now: float) -> float | None:
                called.append(now)
                done.set()
                return None

        timers = Timers(loop.time, lambda: None)
        member = Counted()
        timers.set(member, loop.time() + 60)
        timers.set(member, loop.time())
        await asyncio.wait_for(done.wait(), 5)
        return called

    assert len(asyncio.run(move())) == 1


def test_members_that_are_due_together_do_not_hold_up_the_loop_together() -> None:
    """Attack: thousands of peers that connect at the same moment are due at the same moment, again and again."""

    async def be_due() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        called, passes = 0, 0
        done = asyncio.Event()

        class Slow(Member):
            def on_timer(self, now: float) -> float | None:
                nonlocal called
                called += 1
                began = time.perf_counter()
                while time.perf_counter() - began < TURN_S:
                    pass
                return None

        def after() -> None:
            nonlocal passes
            passes += 1
            if called == 10:
                done.set()

        timers = Timers(loop.time, after)
        deadline = loop.time()
        members = [Slow() for _ in range(10)]
        for member in members:
            timers.set(member, deadline)
        await asyncio.wait_for(done.wait(), 5)
        return called, passes

    called, passes = asyncio.run(be_due())
    assert called == 10
    assert passes >= 10
