"""The owner of the bans: what happens to many connections at once, and when automatic bans are too many.

Spec: docs/spec/policy-and-auth.md §3.15.
"""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from policy import ban_set as bans
from policy.configuration.schema import load_schema
from policy.failures import FailureRule
from policy.hosts import parse_hosts
from policy.ruleset import compile_ruleset
from policy.usage import UsageLedger
from router.admission.connection_gate import Gate
from router.control.bans_in_force import SLICE, Bans
from router.control.reporting import AT_ONCE, INTERVAL_S, Reporting
from router.effects import Audit, Effect, Log
from router.management.entities import EntityStore


class Peer(SimpleNamespace):
    """As much of a Connection as a ban looks at."""


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, limit: int = 2, allowed: str = "192.0.2.200") -> None:
        self.now = 100.0
        self.effects: list[Effect] = []
        self.expelled: list[int] = []
        self.passes = 0
        self.gate = Gate(compile_ruleset({}, (), resolve=lambda _: ()), UsageLedger(), self.effects.append)
        self.connections: dict[int, Any] = {}
        router: Any = SimpleNamespace(
            gate=self.gate,
            clock=lambda: self.now,
            connections=self.connections,
            work=SimpleNamespace(finish=self._finish),
        )
        self.store = EntityStore(load_schema(), self.effects.append)
        rule = FailureRule(limit=limit, window_s=60, ban_s=10, allowed=parse_hosts([allowed], lambda _: ()))
        self.bans = Bans(router, self.store, rule, self.effects.append, choose=lambda _count: 0)
        self.store.own(self.bans.owner)
        monkeypatch.setattr("router.control.bans_in_force.Connection", Peer)

    def _finish(self) -> None:
        self.passes += 1

    def connect(self, number: int, host: str) -> None:
        def expel(_condition: object) -> None:
            self.expelled.append(number)
            peer.is_closed = True

        gate = SimpleNamespace(
            remote_host=host,
            identity=SimpleNamespace(user=None),
            facts=lambda: {"connection": number, "connection_name": f"{host}:{number}"},
        )
        peer = Peer(gate=gate, is_closed=False, audit_stage="engine", expel=expel)
        self.connections[number] = peer

    def attempt(self, host: str) -> None:
        """A banned host connects."""
        ban = self.gate.bans.ban_of(host)
        assert ban is not None
        name = f"{host}:1"
        self.gate.bans.record_accept(ban, connection_id=1, remote_host=host, connection_name=name, listener="l")

    def ban(self, **attributes: Any) -> None:
        self.store.create(load_schema().types["ban"], attributes)

    def names(self) -> list[str]:
        return [str(each["name"]) for each in self.store.attributes("ban")]

    @property
    def audits(self) -> list[Any]:
        return [effect.event for effect in self.effects if isinstance(effect, Audit)]

    def logs(self, part: str) -> list[str]:
        return [effect.text for effect in self.effects if isinstance(effect, Log) and part in effect.text]


def on_loop(monkeypatch: pytest.MonkeyPatch, script: Callable[[Scene], Any], **options: Any) -> None:
    async def run() -> None:
        await script(Scene(monkeypatch, **options))

    asyncio.run(run())


async def turn(times: int = 1) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


def test_many_connections_are_closed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a ban of a network with thousands of connections holds up everybody else."""

    async def script(scene: Scene) -> None:
        for number in range(3 * SLICE):
            scene.connect(number, f"192.0.2.{number % 2 + 1}")
        scene.ban(remoteHost="192.0.2.1", name="b")
        assert scene.expelled == []  # whoever asked is answered first
        await turn()
        assert len(scene.expelled) == SLICE / 2
        await turn(3)
        assert scene.expelled == list(range(0, 3 * SLICE, 2))
        assert len(scene.audits) == len(scene.expelled)
        assert scene.passes == 4

    on_loop(monkeypatch, script)


def test_a_ban_that_is_lifted_meanwhile_closes_nobody_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(scene: Scene) -> None:
        scene.connect(1, "192.0.2.1")
        scene.ban(remoteHost="192.0.2.1", name="b")
        entity = scene.store.find(name="b")
        assert entity is not None
        scene.store.delete(entity)
        scene.ban(remoteHost="192.0.2.2", name="b")
        await turn(3)
        assert scene.expelled == []

    on_loop(monkeypatch, script)


def test_a_ban_by_rule_closes_nobody_and_spares_the_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: ban after ban, to have thousands of connections looked through each time."""

    async def script(scene: Scene) -> None:
        scene.connect(1, "2001:db8::1")
        for _ in range(2):
            scene.bans.note_failure("2001:db8::1")
        await turn(3)
        assert scene.expelled == []
        assert scene.passes == 0
        assert scene.gate.bans.bans.of_host("2001:db8::1") is not None
        assert scene.gate.bans.bans.of_host("2001:db8::5") is None
        assert scene.names() == ["automatic-2001:db8::/64"]
        (ban,) = scene.store.attributes("ban")
        assert (ban["origin"], ban["reason"]) == ("automatic", "2 failures within 60 seconds")

    on_loop(monkeypatch, script, allowed="2001:db8::5")


def test_who_fails_on_a_connection_from_before_the_ban_is_not_banned_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(scene: Scene) -> None:
        for _ in range(4):
            scene.bans.note_failure("192.0.2.1")
        assert scene.names() == ["automatic-192.0.2.1"]

    on_loop(monkeypatch, script)


def test_a_ban_by_rule_and_its_end_are_on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asked for it by management, where it would have a record."""

    async def script(scene: Scene) -> None:
        for _ in range(2):
            scene.bans.note_failure("192.0.2.1")
        scene.ban(user="eve", name="by hand")
        (entity,) = [each for each in (scene.store.find(name="automatic-192.0.2.1"),) if each is not None]
        scene.store.delete(entity)
        made, lifted = [effect.event for effect in scene.effects if isinstance(effect, Audit)]
        assert (made["stage"], made["decision"], made["reason"]) == ("policy", "allow", "allowed")
        assert made["detail"].startswith("Ban 'automatic-192.0.2.1' of 192.0.2.1 for ")
        assert made["rule"] == {"item": "ban automatic-192.0.2.1"}
        assert (made["remote_host"], lifted["remote_host"]) == ("192.0.2.1", "192.0.2.1")
        assert lifted["detail"].endswith("is lifted")

    on_loop(monkeypatch, script)


def test_a_name_that_is_taken_keeps_nobody_from_being_banned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: none; an operator may call his own ban so."""

    async def script(scene: Scene) -> None:
        scene.ban(user="eve", name="automatic-192.0.2.1")
        for _ in range(2):
            scene.bans.note_failure("192.0.2.1")
        assert scene.gate.bans.bans.of_host("192.0.2.1") is not None

    on_loop(monkeypatch, script)


def test_too_many_automatic_bans_make_way_for_further_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: endless addresses fill the memory, or, once it is full, go on without being banned."""
    monkeypatch.setattr(bans, "MAX_AUTOMATIC", 2)

    async def script(scene: Scene) -> None:
        scene.ban(remoteHost="198.51.100.1", name="by hand")
        for number in (1, 2, 3):
            scene.bans.note_failure(f"192.0.2.{number}")
            scene.bans.note_failure(f"192.0.2.{number}")
        assert scene.names() == ["by hand", "automatic-192.0.2.2", "automatic-192.0.2.3"]
        assert scene.logs("makes way") == ["Too many automatic bans: 'automatic-192.0.2.1' makes way"]

    on_loop(monkeypatch, script)


def test_a_ban_ends_with_its_entity_and_not_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(scene: Scene) -> None:
        scene.ban(remoteHost="192.0.2.1", seconds=10, name="b")
        scene.bans.on_second(109.9)
        assert scene.names() == ["b"]
        scene.now = 110.0
        scene.bans.on_second(110.0)
        assert scene.names() == []
        assert scene.gate.bans.bans.of_host("192.0.2.1") is None
        assert scene.logs("has ended") == ["Ban 'b' of 192.0.2.1 has ended"]

    on_loop(monkeypatch, script)


def test_reports_come_each_minute_a_few_in_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: thousands of banned hosts fill the audit log's queue at one stroke."""

    async def script(scene: Scene) -> None:
        count = AT_ONCE + 50
        for number in range(count):
            host = f"10.0.{number // 250}.{number % 250}"
            scene.ban(remoteHost=host, name=str(number))
            for _ in range(3):
                scene.attempt(host)
        told = len(scene.audits)
        assert told == count
        reporting = Reporting(scene.gate, 100.0)
        reporting.on_second(100.0 + INTERVAL_S - 1)
        assert len(scene.audits) == told
        reporting.on_second(100.0 + INTERVAL_S)
        assert len(scene.audits) == told + AT_ONCE
        reporting.on_second(100.0 + INTERVAL_S + 1)
        assert len(scene.audits) == told + count
        assert sum(event.get("attempts", 1) for event in scene.audits) == 3 * count
        scene.attempt("10.0.0.0")
        reporting.stop()
        assert sum(event.get("attempts", 1) for event in scene.audits) == 3 * count + 1

    on_loop(monkeypatch, script)
