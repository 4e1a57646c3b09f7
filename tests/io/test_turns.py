"""Everyone has a turn: who has more to do than fits into it goes on later, and is not read meanwhile."""

import asyncio
from collections.abc import Callable

from router.io.sockets import Hold, Socket
from router.io.turns import TURN_S, Turns


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
        story = await stage.passes(8)
        assert stage.written == 6
        return story

    assert asyncio.run(play()) == "a|b|c|a|b|c|||"


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
        stage.member("a", 1, 0)
        second = stage.member("b", 1, 0)
        stage.turns._after = lambda: stage.turns.discard(second)
        return await stage.passes(2)

    assert asyncio.run(play()) == "a||"


def test_nobody_has_a_turn_after_the_end() -> None:
    async def play() -> str:
        stage = Play()
        stage.member("a", 9, 0)
        stage.turns.stop()
        return await stage.passes(2)

    assert asyncio.run(play()) == "||"


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
    end = Socket(None)  # type: ignore[arg-type]
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
    end = Socket(None)  # type: ignore[arg-type]
    transport = end._transport = Transport()
    transport.is_ending = True
    end.hold(Hold.TURN)
    end.release(Hold.TURN)
    assert transport.is_read
