"""Floods of refusals are summed up: within a budget in full, beyond it as numbers that add up (issue 11)."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.decision import Decision, Reason
from policy.usage import UsageLedger
from router.admission import folding as folding_module
from router.admission.denials import Denied, Recorder, line
from router.admission.folding import OF_CONNECTION, OF_PARTY, Folding, Owner
from router.admission.refusals import LINK_REFUSED
from router.audit import event as audit_event
from router.effects import Audit, AuditStage, ConnectionMembers, Effect, Log, Refused, RequestMembers
from router.effects import audit_event as made_event
from router.management.logrules import visible_text

START_S = 1_700_000_000.0


class Scene:
    """A folding with clocks of the test's, and what it writes."""

    def __init__(self) -> None:
        self.now = 0.0
        self.effects: list[Effect] = []
        self.folding = Folding(self.effects.append, lambda: self.now, lambda: START_S + self.now)
        self.refused = 0

    def facts(self, connection: int = 7, user: str | None = "eve", host: str = "192.0.2.7") -> ConnectionMembers:
        return {
            "connection": connection, "connection_name": f"{host}:40000", "remote_host": host, "user": user,
            "mechanism": "PLAIN" if user is not None else None, "vhost": "acme", "is_encrypted": True,
        }  # fmt: skip

    def refuse(
        self,
        times: int = 1,
        *,
        stage: AuditStage = "attach",
        reason: str = "source_not_allowed",
        address: str = "a",
        **facts: Any,
    ) -> None:
        for number in range(times):
            whose = self.facts(**facts)
            asked: RequestMembers = {"address": f"{address}{number}", "link_name": "l"}
            event = made_event(stage, "deny", reason, whose, asked if stage == "attach" else {})
            lines = (line("info", f"[C7] DENY {address}{number}"),)
            self.folding.record(Refused(stage=stage, facts=whose, lines=lines, event=event))
        self.refused += times

    def report(self) -> None:
        for _ in self.folding.reports():
            pass

    def end(self) -> None:
        for _ in self.folding.reports(is_end=True):
            pass

    @property
    def events(self) -> list[dict[str, Any]]:
        return [dict(each.event) for each in self.effects if isinstance(each, Audit)]

    @property
    def sums(self) -> list[dict[str, Any]]:
        return [event for event in self.events if "folded" in event]

    @property
    def texts(self) -> list[str]:
        return [each.text for each in self.effects if isinstance(each, Log)]

    @property
    def told(self) -> int:
        """Refusals that are on record."""
        return sum(event.get("attempts", 1) for event in self.events)

    def written_bytes(self) -> int:
        """To the audit log and the log, with a line's time, module, level and source."""
        stamp = audit_event.Stamp(event_id="0" * 32, start="1" * 32, sequence=10**9, time_s=START_S, router_id="R" * 64)
        audit = sum(len(audit_event.encode(audit_event.complete(event, stamp))) for event in self.events)
        return audit + sum(120 + len(visible_text(text).encode()) for text in self.texts)


def test_an_ordinary_client_is_written_in_full() -> None:
    scene = Scene()
    scene.refuse(20)
    scene.end()
    assert scene.sums == []
    assert len(scene.events) == len(scene.texts) == 20


def test_attack_one_connection_asks_for_ever() -> None:
    """20,000 denied attaches are a few lines in full, and a number."""
    scene = Scene()
    scene.refuse(20_000)
    assert 40 < len(scene.events) < 80
    scene.now += 10
    scene.report()
    (summed,) = scene.sums
    assert scene.told == 20_000
    assert summed["folded"]["first"] == "2023-11-14T22:13:20.000000Z"
    assert summed["folded"]["owner"] == "connection"
    assert len(json.loads(summed["folded"]["samples"])) == 8
    assert (summed["connection"], summed["user"], summed["link_name"]) == (7, "eve", "l")
    assert "address" not in summed  # they differ
    assert f"[C7] {summed['attempts']} times from" in scene.texts[-1]
    assert "DENY attach source_not_allowed" in scene.texts[-1]


@pytest.mark.parametrize("address", ["a" * 3000, "\U0001f600" * 3000, "\x00" * 3000])
def test_attack_long_names_cost_as_many_bytes_as_short_ones(address: str) -> None:
    """The bound of docs/security.md holds for whatever a connection names, and for whatever reasons."""
    scene = Scene()
    for _ in range(1000):
        for reason in list(Reason)[:12]:
            scene.refuse(1, reason=reason.value, address=address)
        scene.now += 1
        if scene.now % 10 == 0:
            scene.report()
    bound = OF_CONNECTION.burst_bytes + OF_CONNECTION.reserve_bytes + 1000 * OF_CONNECTION.bytes_per_s
    assert scene.written_bytes() < bound
    scene.end()
    assert scene.told == scene.refused


def test_attack_many_connections_of_one_user_with_a_few_refusals_each() -> None:
    scene = Scene()
    for connection in range(3000):
        scene.refuse(5, connection=connection)
        scene.folding.forget(connection)
    bound = OF_PARTY.burst_bytes + OF_PARTY.reserve_bytes
    assert scene.written_bytes() < bound
    scene.end()
    assert scene.told == 15_000
    assert {summed["folded"]["owner"] for summed in scene.sums} <= {"user", "connection"}
    assert scene.sums[-1]["user"] == "eve"


def test_attack_a_host_without_a_login_comes_again_and_again() -> None:
    scene = Scene()
    for connection in range(4000):
        facts = scene.facts(connection, user=f"claimed{connection}")
        scene.folding.report_accepted(Log(module="SERVER", level="info", text="Accepted connection"), facts)
        scene.refuse(stage="sasl", reason="sasl_failed", connection=connection, user=f"claimed{connection}")
        scene.folding.forget(connection)
    assert scene.written_bytes() < OF_PARTY.burst_bytes + OF_PARTY.reserve_bytes
    scene.end()
    assert scene.told == 4000
    assert scene.sums[-1]["remote_host"] == "192.0.2.7"
    assert json.loads(scene.sums[-1]["folded"]["samples"])[0].startswith("claimed")
    accepted = [text for text in scene.texts if "more connections of the host" in text]
    assert sum(int(text.split()[0]) for text in accepted) + scene.texts.count("Accepted connection") == 4000


def test_an_ipv6_host_is_its_network() -> None:
    """Attack: a new address of one's own /64 for each try."""
    scene = Scene()
    for number in range(4000):
        scene.refuse(stage="tls", reason="tls_handshake_failed", host=f"2001:db8::{number:x}", user=None)
    assert scene.written_bytes() < OF_PARTY.burst_bytes + OF_PARTY.reserve_bytes
    scene.end()
    assert scene.told == 4000
    assert "of host '2001:db8::/64'" in scene.texts[-1]


def test_a_flood_costs_nobody_else_his_lines() -> None:
    scene = Scene()
    scene.refuse(20_000)
    before = len(scene.events)
    scene.refuse(10, connection=8)
    scene.refuse(10, connection=9, user="bob")
    assert len(scene.events) == before + 20
    assert scene.sums == []


def test_another_kind_is_written_at_once_in_the_middle_of_a_flood() -> None:
    scene = Scene()
    scene.refuse(20_000)
    scene.refuse(1, reason="target_not_allowed")
    assert scene.events[-1]["reason"] == "target_not_allowed"
    assert "folded" not in scene.events[-1]


def test_a_connection_that_ends_leaves_its_sum() -> None:
    scene = Scene()
    scene.refuse(500)
    assert scene.told < 500
    scene.folding.forget(7)
    assert scene.told == 500


def test_who_has_been_quiet_is_written_in_full_again() -> None:
    scene = Scene()
    scene.refuse(500)
    scene.now += 3600
    scene.report()
    before = len(scene.events)
    scene.report()
    scene.refuse(20)
    assert len(scene.events) == before + 20
    assert scene.folding._sums == {}


def test_memory_is_bounded_and_nothing_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: endless hosts. Those beyond the bound share a budget and a sum."""
    monkeypatch.setattr(folding_module, "MAX_OWNERS", 50)
    scene = Scene()
    for number in range(2000):
        host = f"10.0.{number // 250}.{number % 250}"
        scene.refuse(60 if number < 60 else 1, stage="header", reason="unexpected_header", host=host, user=None)
    assert len(scene.folding._hosts.purses) <= 51
    scene.end()
    assert scene.told == scene.refused
    assert "various" in {summed["folded"]["owner"] for summed in scene.sums}


def test_attack_hosts_without_a_login_leave_users_their_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: so many hosts, or connections, that there is no room for another's budget or sum."""
    monkeypatch.setattr(folding_module, "MAX_OWNERS", 50)
    monkeypatch.setattr(folding_module, "MAX_SUMS", 20)
    scene = Scene()
    for number in range(100):
        scene.refuse(300, stage="header", reason="unexpected_header", host=f"10.0.0.{number}", user=None)
    for number in range(1000, 1100):
        scene.refuse(1, connection=number)  # of one user
    before = len(scene.events)
    scene.refuse(10, user="bob", connection=7)
    scene.refuse(5, user="carol", stage="open")
    assert len(scene.events) == before + 15
    scene.end()
    assert scene.told == scene.refused


def test_what_the_router_ends_is_recorded_one_by_one() -> None:
    """A change of the rules, or a ban, ends what was allowed: as much as that was, and no more."""
    scene = Scene()
    recorder = Recorder(UsageLedger(), scene.effects.append, scene.folding)
    decision = Decision(is_allowed=False, reason=Reason.BANNED)
    endings: list[dict[str, Any]] = [{"is_ending": True}, {"request": {"redecision": "policy_change"}}]
    for number in range(1000):
        denied = Denied(stage="open", decision=decision, refusal=LINK_REFUSED, **endings[number % 2])
        recorder.record(denied, scene.facts())
    assert len(scene.events) == 1000


def test_counters_stay_exact() -> None:
    scene = Scene()
    ledger = UsageLedger()
    recorder = Recorder(ledger, scene.effects.append, scene.folding)
    decision = Decision(is_allowed=False, reason=Reason.SOURCE_NOT_ALLOWED)
    denied = Denied(stage="attach", decision=decision, refusal=LINK_REFUSED, counter="receive")
    for _ in range(5000):
        assert recorder.record(denied, scene.facts()) == LINK_REFUSED
    assert ledger.vhost_denials("acme")["receiverDenied"] == 5000


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("refuse"), st.integers(1, 300), st.integers(0, 3), st.sampled_from(["eve", "bob", None]),
            st.sampled_from(["attach", "open", "sasl", "transfer"]), st.sampled_from(["source_not_allowed", "banned"]),
        ),
        st.tuples(st.just("forget"), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.integers(0, 200)),
        st.tuples(st.just("report")),
        st.tuples(st.just("begin a report")),
    ),
    max_size=40,
)  # fmt: skip


@settings(deadline=None)
@given(STEPS, st.integers(1, 6), st.integers(1, 6))
def test_whatever_happens_the_numbers_add_up(steps: list[tuple[Any, ...]], owners: int, sums: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folding_module, "MAX_OWNERS", owners)
        patch.setattr(folding_module, "MAX_SUMS", sums)
        scene = Scene()
        for step in steps:
            match step:
                case ("refuse", times, connection, user, stage, reason):
                    scene.refuse(times, connection=connection, user=user, stage=stage, reason=reason)
                case ("forget", connection):
                    scene.folding.forget(connection)
                case ("wait", seconds):
                    scene.now += seconds
                case ("report",):
                    scene.report()
                case _:
                    next(scene.folding.reports(), None)  # given up after one step
            assert len(scene.folding._sums) <= sums + 40
        scene.end()
        assert scene.told == scene.refused
        assert scene.folding._sums == {}


def test_owners_are_connection_user_and_host() -> None:
    scene = Scene()
    now = 0.0
    facts = scene.facts()
    owners = scene.folding._owners(Refused(stage="attach", facts=facts), now)
    assert owners == (Owner("connection", "7"), Owner("user", "eve"))
    assert scene.folding._owners(Refused(stage="open", facts=facts), now) == (Owner("user", "eve"),)
    assert scene.folding._owners(Refused(stage="sasl", facts=facts), now) == (Owner("host", "192.0.2.7"),)
    anonymous: ConnectionMembers = {**facts, "mechanism": "ANONYMOUS"}
    assert scene.folding._owners(Refused(stage="open", facts=anonymous), now) == (Owner("host", "192.0.2.7"),)
    outgoing: ConnectionMembers = {**facts, "mechanism": None, "remote_host": "", "listener": "broker:5672"}
    owners = scene.folding._owners(Refused(stage="attach", facts=outgoing), now)
    assert owners == (Owner("connection", "7"), Owner("host", "broker:5672"))
