"""What the router does each second goes on, whatever a part of it raises (docs/spec/policy-and-auth.md §2.8, §3.15)."""

import asyncio
from collections.abc import Iterator

import pytest
from test_ports import made_router

from router.control.router import Router
from router.effects import Effect, Log


def seconds_of(router: Router, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each of the next timers of the loop would wait; one of them is the next second."""
    waits: list[float] = []
    loop = asyncio.get_running_loop()
    real = loop.call_later

    def call_later(delay: float, *rest: object) -> asyncio.TimerHandle:
        waits.append(delay)
        return real(delay, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "call_later", call_later)
    return waits


def test_the_next_second_comes_after_a_fault_and_the_other_parts_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bans and groups end by this clock: were it to stop, they would go on for ever, and nobody would notice."""
    effects: list[Effect] = []
    told: list[float] = []

    def fail(_now: float) -> None:
        raise RuntimeError("secret")

    async def play() -> None:
        router = made_router(effects.append)
        try:
            router.on_second += [fail, told.append]
            monkeypatch.setattr(router.expiry, "on_second", lambda: fail(0.0))
            waits = seconds_of(router, monkeypatch)
            router._tick()
            assert waits == [1.0]
        finally:
            monkeypatch.undo()
            await router.stop()

    asyncio.run(play())
    assert len(told) == 1
    texts = [effect.text for effect in effects if isinstance(effect, Log) and effect.level == "error"]
    assert len(texts) == 2
    assert not any("secret" in text for text in texts)


def test_what_is_watched_each_second_is_watched_again_after_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    def watch() -> Iterator[None]:
        begun.append(1)
        raise RuntimeError
        yield

    async def play() -> None:
        router = made_router(lambda effect: None)
        try:
            monkeypatch.setattr(router.watch, "on_second", watch)
            router._tick()
            router._tick()
        finally:
            await router.stop()

    asyncio.run(play())
    assert len(begun) == 2
