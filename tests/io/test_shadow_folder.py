"""The owner of shadowPolicyDir: what goes wrong in it is told, and costs nobody else anything (issue 5, Shadow)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from policy.ruleset import compile_ruleset
from policy.usage import UsageLedger
from router.admission.candidate import Shadow
from router.admission.connection_gate import Gate
from router.control import shadow_folder
from router.control.shadow_folder import ShadowFolder
from router.effects import Audit, Effect

POLICY = {"shadowPolicyDir": "/nowhere", "policyDirWatchSeconds": 0}


async def eventually(claim: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not claim():
            await asyncio.sleep(0)


def folder(effects: list[Effect]) -> tuple[ShadowFolder, Shadow]:
    shadow = Shadow(effects.append)
    gate = Gate(compile_ruleset({}, (), resolve=lambda _: ()), UsageLedger(), effects.append, shadow=shadow)
    return ShadowFolder(POLICY, shadow, gate, {}, effects.append), shadow


def state(made: ShadowFolder) -> Any:
    rows = made.owners[0].rows
    assert rows is not None
    (row,) = rows.make()
    assert row is not None
    return row["state"]


def test_a_fault_of_ours_while_reading_is_told_and_the_next_reload_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    effects: list[Effect] = []
    ruleset = compile_ruleset({"enableVhostPolicy": True}, (), resolve=lambda _: ())

    async def broken(_self: ShadowFolder) -> Any:
        raise RuntimeError("secret")

    async def read(_self: ShadowFolder) -> Any:
        return ruleset

    async def run() -> None:
        monkeypatch.setattr(ShadowFolder, "_read", broken)
        made, shadow = folder(effects)
        assert state(made) == "loading"
        await eventually(lambda: state(made) == "unusable")
        monkeypatch.setattr(ShadowFolder, "_read", read)
        made.reload()
        await eventually(lambda: state(made) == "active")
        assert shadow.ruleset is ruleset
        await made.stop()

    asyncio.run(run())
    (event,) = [effect.event for effect in effects if isinstance(effect, Audit)]
    assert (event["decision"], event["stage"], event["reason"]) == ("shadow_error", "policy", "invalid_policy")
    assert "RuntimeError at " in event["detail"]
    assert "secret" not in event["detail"]


def test_repeats_are_told_at_intervals_and_a_fault_in_that_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    effects: list[Effect] = []
    flushes: list[None] = []

    def flushing() -> Any:
        flushes.append(None)
        raise RuntimeError

    async def run() -> None:
        monkeypatch.setattr(shadow_folder, "FLUSH_S", 0.0)
        made, shadow = folder(effects)
        monkeypatch.setattr(shadow.disagreements, "flushing", flushing)
        await eventually(lambda: len(flushes) > 2)
        assert shadow.faults > 1
        monkeypatch.undo()
        await made.stop()

    asyncio.run(run())
