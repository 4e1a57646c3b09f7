"""Sockets that are not open have turns by host; a pass of the loop does a bounded time of them (router.io.arrivals)."""

import asyncio
import select
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.io.arrivals import AT_ONCE, Arrivals
from router.io.host_turns import HostTurns
from router.io.shaking import Shaking, Step


class Member:
    """Writes its name when it is served. `wants`: how often it has more to do."""

    def __init__(self, host: str, end: socket.socket, story: list[str], wants: int = 0) -> None:
        self.host = host
        self.descriptor = end.fileno()
        self._end, self._story, self._wants = end, story, wants
        self.arrivals: Arrivals | None = None

    def serve(self) -> None:
        assert self.arrivals is not None
        self._story.append(self.host)
        if self._wants:
            self._wants -= 1
            self.arrivals.ready(self)
        else:
            self._end.recv(100)
            self.arrivals.arm(self)


def play(hosts: str, passes: int, *, seconds: float, wants: int = 0) -> list[str]:
    """What happened after all have spoken at the same moment; `|` stands for the end of a pass of the loop."""

    async def run() -> list[str]:
        story: list[str] = []
        arrivals = Arrivals(lambda: None, seconds=seconds)
        with ExitStack() as stack:
            for host in hosts:
                here, there = (stack.enter_context(each) for each in socket.socketpair())
                member = Member(host, here, story, wants)
                member.arrivals = arrivals
                arrivals.add(member)
                there.send(b"hello")
            for _ in range(passes):
                await asyncio.sleep(0)
                story.append("|")
            arrivals.close()
        return story

    return asyncio.run(run())


def test_attack_all_speak_at_the_same_moment_and_one_pass_does_a_bounded_time_of_it() -> None:
    """A turn that is over at once: one member in a pass, whatever waits."""
    passes = "".join(play("a" * 50, 60, seconds=0)).split("|")
    assert max(map(len, passes)) == 1
    assert sum(map(len, passes)) == 50


def test_attack_one_host_has_hundreds_and_the_next_host_waits_for_one_of_them() -> None:
    served = [each for each in play("a" * 30 + "b" * 3 + "c", 60, seconds=0) if each != "|"]
    assert served[:7] == list("abcabab")
    assert sorted(served) == list("a" * 30 + "b" * 3 + "c")


def test_who_has_more_to_do_waits_for_its_next_turn() -> None:
    served = [each for each in play("ab", 20, seconds=0, wants=2) if each != "|"]
    assert served == list("ababab")


def test_one_alone_is_served_in_the_pass_that_sees_it() -> None:
    """Every read of a login took two passes of the loop."""
    alone, two = ("".join(play(hosts, 20, seconds=1.0)) for hosts in ("a", "ab"))
    assert alone.index("a") < two.index("a")


def test_asking_for_many_takes_the_time_of_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside 2,500 headers at once a pass that asked for 128 sockets lasted for two turns: it has one for both."""
    now = 0.0

    class Slow:
        """Asking takes the whole turn."""

        def __init__(self, selector: select.epoll) -> None:
            self._selector = selector

        def poll(self, timeout: float, most: int) -> list[tuple[int, int]]:
            nonlocal now
            now += 1.0
            return self._selector.poll(timeout, most)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._selector, name)

    def begun(*, seconds: float) -> Callable[[], bool]:
        end = now + seconds
        return lambda: now < end

    async def run() -> list[str]:
        story: list[str] = []
        monkeypatch.setattr("router.io.arrivals.turn", begun)
        arrivals = Arrivals(lambda: None, seconds=1.0)
        monkeypatch.setattr(arrivals, "_selector", Slow(arrivals._selector))
        with ExitStack() as stack:
            for _ in range(20):
                here, there = (stack.enter_context(each) for each in socket.socketpair())
                member = Member("a", here, story)
                member.arrivals = arrivals
                arrivals.add(member)
                there.send(b"hello")
            while len(story) < 20:
                story.append("|")
                await asyncio.sleep(0)
            arrivals.close()
        return story

    first, *_ = (each for each in "".join(asyncio.run(run())).split("|") if each)
    assert first == "a"


def test_only_so_many_are_asked_for_at_once() -> None:
    async def run() -> int:
        story: list[str] = []
        arrivals = Arrivals(lambda: None, seconds=0)
        with ExitStack() as stack:
            for _ in range(AT_ONCE + 20):
                here, there = (stack.enter_context(each) for each in socket.socketpair())
                member = Member("a", here, story)
                member.arrivals = arrivals
                arrivals.add(member)
                there.send(b"hello")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            waiting = len(arrivals)
            arrivals.close()
        return waiting

    assert AT_ONCE - 2 <= asyncio.run(run()) <= AT_ONCE


def test_who_left_is_not_served_and_its_descriptor_may_be_anothers() -> None:
    async def run() -> list[str]:
        story: list[str] = []
        arrivals = Arrivals(lambda: None, seconds=0)
        here, there = socket.socketpair()
        with here, there:
            first, second = Member("first", here, story), Member("second", here, story)
            first.arrivals = second.arrivals = arrivals
            arrivals.add(first)
            arrivals.ready(first)
            arrivals.remove(first)
            arrivals.add(second)
            arrivals.remove(first)
            arrivals.ready(first)
            there.send(b"hello")
            for _ in range(5):
                await asyncio.sleep(0)
            arrivals.close()
            arrivals.close()
        return story

    assert asyncio.run(run()) == ["second"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.booleans())))
def test_turns_lose_nobody(steps: list[tuple[str, int, bool]]) -> None:
    turns: HostTurns[tuple[str, int]] = HostTurns()
    waiting: set[tuple[str, int]] = set()
    for host, number, adds in steps:
        if adds:
            turns.add(host, (host, number))
            waiting.add((host, number))
        else:
            turns.discard((host, number))
            waiting.discard((host, number))
        assert len(turns) == len(waiting)
    taken = []
    while (member := turns.take()) is not None:
        taken.append(member)
    assert sorted(taken) == sorted(waiting)
    hosts = [host for host, _ in taken]
    assert len(set(hosts[: len(set(hosts))])) == len(set(hosts)), "each host had its turn before any had a second"


def test_steps_of_a_host_that_is_banned_meanwhile_are_not_made() -> None:
    async def run() -> list[str]:
        story: list[str] = []
        over = asyncio.Event()
        shaking = Shaking(threads=1)

        def step(host: str, number: int) -> Step:
            def note(what: str) -> Callable[[], None]:
                return lambda: story.append(f"{what} {host}{number}")

            def is_wanted() -> bool:
                if host == "b":
                    note("declined")()
                return host != "b"

            done = over.set if (host, number) == ("a", 1) else note("done")
            return Step(host, is_wanted, note("run"), done)

        for host, number in (("a", 0), ("b", 0), ("b", 1), ("a", 1)):
            shaking.submit(step(host, number))
        await asyncio.wait_for(over.wait(), 10)
        shaking.close()
        return story

    story = asyncio.run(run())
    assert [each for each in story if each.startswith("run")] == ["run a0", "run a1"]
    assert "declined b0" in story
