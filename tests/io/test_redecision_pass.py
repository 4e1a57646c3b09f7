"""The pass over open connections takes its turns with the loop, and begins anew when the rules change. Issue 5."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from policy.ruleset import Ruleset, compile_ruleset
from policy.usage import UsageLedger
from policy.windows import shown_instant
from router.admission.connection_gate import Gate
from router.control import redecision
from router.control.redecision import LONGEST_SLICE_S, SLICE_SHARE, Expiry, Redecision
from router.effects import Effect, Log
from router.io.turns import TURN_S

COUNT = 100


class Connection:
    """Takes its time over each of three steps."""

    def __init__(self, number: int, done: list[str], work: Callable[[], None]) -> None:
        self.number = number
        self.done = done
        self.work = work

    def redecide(self) -> Iterator[None]:
        for _ in range(3):
            self.work()
            yield
        self.done.append(f"decided {self.number}")

    def keep_within_limits(self) -> None:
        self.done.append(f"limited {self.number}")


class House:
    def __init__(self, work: Callable[[], None], clock: Callable[[], float] = time.perf_counter) -> None:
        self.effects: list[Effect] = []
        self.done: list[str] = []
        self.flushed = 0
        ruleset = compile_ruleset({}, (), resolve=lambda _name: ())
        self.gate = Gate(ruleset, UsageLedger(), self.effects.append)
        self.connections: dict[int, Any] = {number: Connection(number, self.done, work) for number in range(COUNT)}
        self.redecision = Redecision(self.gate, self.connections, self.flush, self.effects.append, lambda: 1e9, clock)

    def flush(self) -> None:
        self.flushed += 1

    @property
    def texts(self) -> list[str]:
        return [effect.text for effect in self.effects if isinstance(effect, Log)]

    async def until_over(self) -> int:
        """How often the loop had its turn until then."""
        turns = 0
        while not any("decided again" in text or "Deciding" in text for text in self.texts):
            await asyncio.sleep(0)
            turns += 1
        return turns


def waste() -> None:
    end = asyncio.get_running_loop().time() + TURN_S / 2
    while asyncio.get_running_loop().time() < end:
        pass


def test_the_loop_has_its_turn_between_slices() -> None:
    """However long all of it takes, nobody waits for more than a slice and a step."""

    async def run() -> tuple[House, int]:
        house = House(waste)
        house.redecision.begin("policy_change")
        return house, await house.until_over()

    house, turns = asyncio.run(run())
    assert turns > COUNT / 2
    assert house.flushed > COUNT / 2
    assert house.done[:COUNT] == [f"decided {number}" for number in range(COUNT)]


def test_a_busy_loop_puts_nothing_off() -> None:
    """Attack: a flood of messages makes every turn of the loop long; a millisecond in each would take for ever."""

    async def run() -> int:
        now = 0.0

        def step() -> None:
            nonlocal now
            now += TURN_S

        house = House(step, lambda: now)
        house.redecision.begin("policy_change")
        turns = 0
        while not any("decided again" in text for text in house.texts):
            now += LONGEST_SLICE_S / SLICE_SHARE
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(run()) < COUNT * 3 * TURN_S / LONGEST_SLICE_S * 2


def passed(house: House) -> None:
    async def run() -> None:
        house.redecision.begin("policy_change")
        await house.until_over()

    asyncio.run(run())


def test_the_audit_log_is_given_time_to_write() -> None:
    """Thousands of closures in a moment are not to be more than its queue takes."""
    house = House(waste)
    waiting = [0]

    def has_much_to_write() -> bool:
        if len(house.done) > COUNT // 2 and waiting[0] < 3:
            waiting[0] += 1
            return True
        return False

    house.redecision.has_much_to_write = has_much_to_write
    passed(house)
    assert waiting[0] == 3
    assert len(house.done) == 2 * COUNT


def test_an_audit_log_that_cannot_write_keeps_nobody_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redecision, "AUDIT_PATIENCE_S", 0.05)
    house = House(waste)
    house.redecision.has_much_to_write = lambda: True
    passed(house)
    assert len(house.done) == 2 * COUNT


def test_limits_are_asked_about_from_the_newest_to_the_oldest_when_all_are_decided() -> None:
    async def run() -> House:
        house = House(lambda: None)
        house.redecision.begin("policy_change")
        await house.until_over()
        return house

    house = asyncio.run(run())
    assert house.done[COUNT:] == [f"limited {number}" for number in reversed(range(COUNT))]
    assert not house.gate.is_concerned(object())  # type: ignore[arg-type]


def test_rules_that_change_during_the_pass_begin_it_anew() -> None:
    """With the connection it had come to: rules that change all the time spare nobody."""

    async def run() -> House:
        house = House(waste)
        house.redecision.begin("policy_change")
        while len(house.done) < 3:
            await asyncio.sleep(0)
        house.redecision.begin("policy_change")
        await house.until_over()
        return house

    house = asyncio.run(run())
    decided = [int(each.removeprefix("decided ")) for each in house.done if each.startswith("decided")]
    again = decided[-COUNT:]
    reached = len(decided) - COUNT
    assert 3 <= reached < COUNT
    assert decided[:reached] == list(range(reached))
    assert sorted(again) == list(range(COUNT))
    assert again[0] in (reached, reached - 1)
    assert len([text for text in house.texts if "decided again" in text]) == 1


def test_a_fault_of_ours_leaves_nobody_with_more_than_the_rules_allow() -> None:
    """What was not reached is outdated still, and gets nothing new."""

    async def run() -> House:
        house = House(lambda: None)
        house.connections[3] = None
        house.redecision.begin("policy_change")
        await house.until_over()
        return house

    house = asyncio.run(run())
    assert house.texts[-1].startswith("Deciding open connections again: ")
    assert house.gate.is_concerned(object())  # type: ignore[arg-type]


NOON = 1_900_000_000.0


def valid_until(*ends_s: float) -> Ruleset:
    groups = {
        f"g{number}": {"users": f"u{number}", "validUntil": shown_instant(end)} for number, end in enumerate(ends_s)
    }
    policy = {"enableVhostPolicy": True}
    return compile_ruleset(policy, [({"hostname": "v", "groups": groups}, None)], resolve=lambda _name: ())


class Clock:
    def __init__(self) -> None:
        self.now = NOON
        self.begun: list[float] = []

    def begin(self, occasion: str, concerns: Callable[[Any], bool]) -> None:
        assert occasion == "expiry"
        self.begun.append(self.now - NOON)

    def until(self, expiry: Expiry, at: float) -> None:
        """Seconds pass, one by one."""
        while self.now - NOON < at:
            self.now += 1
            expiry.on_second()


def expiry_of(clock: Clock, ruleset: Ruleset) -> tuple[Gate, Expiry]:
    gate = Gate(ruleset, UsageLedger(), lambda _effect: None)
    return gate, Expiry(gate, clock, lambda: clock.now)  # type: ignore[arg-type]


def test_connections_are_decided_again_when_a_group_is_over_and_only_then() -> None:
    clock = Clock()
    _, expiry = expiry_of(clock, valid_until(NOON + 3, NOON + 3.5, NOON + 7, NOON - 5))
    clock.until(expiry, 20)
    assert clock.begun == [3, 4, 7]


def test_the_end_of_a_group_that_is_replaced_is_not_forgotten() -> None:
    """Who keeps the settings of its Open keeps their end."""
    clock = Clock()
    gate, expiry = expiry_of(clock, valid_until(NOON + 5))
    gate.ruleset = valid_until(NOON + 9)
    expiry.learn(gate.ruleset)
    clock.until(expiry, 20)
    assert clock.begun == [5, 9]


@pytest.mark.parametrize("step", [3600, -3600])
def test_a_clock_that_is_set_misses_no_end(step: float) -> None:
    clock = Clock()
    _, expiry = expiry_of(clock, valid_until(NOON + 5))
    clock.until(expiry, 6)
    assert clock.begun == [5]
    clock.now += step
    expiry.on_second()
    clock.begun.clear()
    clock.until(expiry, 10)
    assert clock.begun == ([5] if step < 0 else [])
