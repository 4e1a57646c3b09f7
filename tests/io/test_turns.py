"""Everyone has a turn: who has more to do than fits into it goes on later, and is not read meanwhile."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from router.io.sockets import Hold, Socket
from router.io.turns import PASSES_PER_WRITE, TURN_S, Slices, Turns, take, turn


class Member:
    """Needs so many turns, each of which takes `takes_s` on the clock."""

    def __init__(self, name: str, needs: int, log: list[str], tick: Callable[[float], None], takes_s: float) -> None:
        self.name, self.needs, self.log, self.tick, self.takes_s = name, needs, log, tick, takes_s

    def go_on(self) -> bool:
        self.log.append(self.name)
        self.tick(self.takes_s)
        self.needs -= 1
        return self.needs > 0


class Play:
    """A clock, and what happened in what order: names of members, and `|` where a pass of the loop ended."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []
        self.written = 0
        self.turns = Turns(lambda: self.now, self._written)

    def _written(self) -> None:
        self.written += 1

    def tick(self, seconds: float) -> None:
        self.now += seconds

    def member(self, name: str, needs: int, takes_s: float) -> Member:
        made = Member(name, needs, self.log, self.tick, takes_s)
        self.turns.add(made)
        return made

    async def passes(self, count: int) -> str:
        for _ in range(count):
            await asyncio.sleep(0)
            self.log.append("|")
        return "".join(self.log)


def test_long_turns_are_one_a_pass_and_come_in_order() -> None:
    async def play() -> str:
        stage = Play()
        for name in "abc":
            stage.member(name, 2, TURN_S)
        return await stage.passes(8)

    assert asyncio.run(play()) == "a|b|c|a|b|c|||"


def test_turns_are_written_together_every_few_passes_and_at_the_end() -> None:
    async def play() -> list[int]:
        stage = Play()
        stage.member("a", 2 * PASSES_PER_WRITE + 3, TURN_S)
        written: list[int] = []
        for _ in range(2 * PASSES_PER_WRITE + 4):
            await stage.passes(1)
            written.append(stage.written)
        return written

    few = PASSES_PER_WRITE
    assert asyncio.run(play()) == [0] * (few - 1) + [1] * few + [2] * 3 + [3] * 2


def test_what_a_discarded_member_left_is_written() -> None:
    async def play() -> int:
        stage = Play()
        member = stage.member("a", 9, TURN_S)
        await stage.passes(1)
        stage.turns.discard(member)
        await stage.passes(1)
        return stage.written

    assert asyncio.run(play()) == 1


def test_short_turns_share_a_pass() -> None:
    async def play() -> str:
        stage = Play()
        for name in "abc":
            stage.member(name, 2, TURN_S / 10)
        return await stage.passes(3)

    assert asyncio.run(play()) == "abc|abc||"


def test_a_turn_has_time_until_it_is_over() -> None:
    stage = Play()
    has_time = stage.turns.begin()
    assert has_time()
    stage.tick(TURN_S)
    assert not has_time()


def test_what_is_read_while_nobody_is_behind_has_turns_of_its_own() -> None:
    stage = Play()
    stage.turns.begin()
    stage.tick(TURN_S)
    assert stage.turns.begin()()


def test_while_somebody_is_behind_all_that_are_read_in_a_pass_share_a_turn() -> None:
    async def play() -> None:
        stage = Play()
        stage.member("a", 3, TURN_S)
        stage.turns.begin()
        stage.tick(TURN_S)
        assert not stage.turns.begin()()
        await stage.passes(1)
        assert stage.turns.begin()(), "the next pass has a turn of its own"

    asyncio.run(play())


def test_a_fault_in_one_turn_keeps_the_others_theirs() -> None:
    async def play() -> str:
        stage = Play()
        asyncio.get_running_loop().set_exception_handler(lambda _, what: stage.log.append("!"))

        def fail(_: float) -> None:
            raise RuntimeError

        stage.turns.add(Member("a", 2, stage.log, fail, 0))
        stage.member("b", 2, TURN_S / 10)
        return await stage.passes(4)

    assert asyncio.run(play()) == "a!|b|b||"


def test_a_member_that_was_discarded_has_no_turn() -> None:
    async def play() -> str:
        stage = Play()
        members = [stage.member(name, 9, TURN_S / 10) for name in "ab"]
        stage.turns.discard(members[0])
        stage.turns.discard(members[0])
        return await stage.passes(1)

    assert asyncio.run(play()) == "b|"


def test_a_member_may_be_discarded_by_the_turn_of_another() -> None:
    async def play() -> str:
        stage = Play()
        stage.turns.add(Member("a", 1, stage.log, lambda _: stage.turns.discard(second), 0))
        second = stage.member("b", 1, 0)
        return await stage.passes(2)

    assert asyncio.run(play()) == "a||"


def test_nobody_has_a_turn_after_the_end() -> None:
    async def play() -> str:
        stage = Play()
        stage.member("a", 9, 0)
        stage.turns.stop()
        return await stage.passes(2)

    assert asyncio.run(play()) == "||"


def test_a_slice_takes_steps_for_as_long_as_a_turn_lasts() -> None:
    now, done = 0.0, []

    def steps() -> Iterator[None]:
        nonlocal now
        for number in range(7):
            now += TURN_S / 3
            done.append(number)
            yield

    made, lengths = steps(), []
    while take(made, turn(lambda: now)):
        lengths.append(len(done))
    assert lengths == [3, 6]
    assert done == list(range(7))


def test_a_slice_has_one_step_at_least() -> None:
    assert take(iter("ab"), lambda: False)


class Story:
    """Steps `1` to `count` that run in slices; `/` after each slice, `|` where a pass of the loop ended."""

    def __init__(self, count: int, *, fault_at: int = 0, takes_s: float = 0.0, **options: Any) -> None:
        self.log = ""
        self.takes_s = takes_s
        self.slices = Slices(self.steps(count, fault_at), self.after, **options)

    def steps(self, count: int, fault_at: int) -> Iterator[None]:
        for number in range(1, count + 1):
            self.log += str(number)
            if number == fault_at:
                raise ValueError
            until = time.perf_counter() + self.takes_s
            while time.perf_counter() < until:
                pass
            yield

    def after(self) -> None:
        self.log += "/"

    async def passes(self, count: int) -> str:
        for _ in range(count):
            await asyncio.sleep(0)
            self.log += "|"
        return self.log


async def told(story: Callable[[], Story], passes: int) -> str:
    return await story().passes(passes)


def test_a_slice_is_a_step_where_steps_say_how_much_is_done_at_once() -> None:
    assert asyncio.run(told(lambda: Story(3, seconds=0), 5)) == "1/2/|3/|/|||"


def test_long_steps_have_a_pass_each() -> None:
    assert asyncio.run(told(lambda: Story(3, takes_s=TURN_S), 5)) == "1/2/|3/|/|||"


def test_slices_that_are_cancelled_do_nothing_more() -> None:
    async def play() -> str:
        story = Story(3, seconds=0)
        story.slices.cancel()
        assert story.slices.is_over
        return await story.passes(2)

    assert asyncio.run(play()) == "1/||"


def test_a_fault_is_reported_and_ends_the_slices() -> None:
    faults: list[Exception] = []

    async def play() -> str:
        story = Story(3, fault_at=2, seconds=0, on_fault=faults.append)
        assert not story.slices.is_over
        log = await story.passes(3)
        assert story.slices.is_over
        return log

    assert asyncio.run(play()) == "1/2/|||"
    assert [type(fault) for fault in faults] == [ValueError]


def test_a_fault_that_nobody_takes_reaches_the_loops_handler() -> None:
    heard: list[Any] = []

    async def play() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: heard.append(context["exception"]))
        await Story(3, fault_at=2, seconds=0).passes(3)

    asyncio.run(play())
    assert [type(fault) for fault in heard] == [ValueError]
    with pytest.raises(ValueError, match=r"^$"):
        asyncio.run(told(lambda: Story(1, fault_at=1), 1))


class Transport(asyncio.Transport):
    """Remembers whether it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.is_read = True
        self.is_ending = False

    def pause_reading(self) -> None:
        assert self.is_read
        self.is_read = False

    def resume_reading(self) -> None:
        assert not self.is_read
        self.is_read = True

    def is_closing(self) -> bool:
        return self.is_ending


def test_a_socket_is_read_when_no_reason_against_it_is_left() -> None:
    end = Socket[Any](None)  # type: ignore[arg-type]
    transport = end._transport = Transport()
    end.release(Hold.TURN)
    assert transport.is_read
    end.hold(Hold.TURN)
    end.hold(Hold.TURN)
    assert not transport.is_read
    end.release(Hold.TURN)
    assert transport.is_read


def test_a_socket_that_closes_is_left_alone() -> None:
    """uvloop raises for one that is paused or read again while it closes."""
    end = Socket[Any](None)  # type: ignore[arg-type]
    transport = end._transport = Transport()
    transport.is_ending = True
    end.hold(Hold.TURN)
    end.release(Hold.TURN)
    assert transport.is_read
