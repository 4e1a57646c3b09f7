"""Floods of refusals are summed up: within a budget in full, beyond it as numbers that add up (issue 11)."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.decision import Decision, Reason
from policy.usage import UsageLedger
from router.admission import folding as folding_module
from router.admission.denials import Denied, Recorder, line
from router.admission.folding import OF_CONNECTION, OF_PARTY, Budget, Folding, Owner
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
    samples = json.loads(summed["folded"]["samples"])
    assert len(samples) > 300
    assert len(summed["folded"]["samples"]) <= 8192
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


# Budgets, names and words, one by one

AMPLE = Budget(burst_bytes=10**9, reserve_bytes=10**6, bytes_per_s=1)
T0, T1 = "2023-11-14T22:13:20.000000Z", "2023-11-14T22:13:21.500000Z"
DETAIL = "the same again and again, not written one by one: `folded` has the times, and some of the names"


class Small(Scene):
    """A scene with budgets of the test's. The clock does not begin at 0, and the wall clock does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, party: Budget = AMPLE, connection: Budget = AMPLE) -> None:
        monkeypatch.setattr(folding_module, "OF_PARTY", party)
        monkeypatch.setattr(folding_module, "OF_CONNECTION", connection)
        super().__init__()
        self.now = 50.0
        self.wall_s = 0.0
        self.folding = Folding(self.effects.append, lambda: self.now, lambda: START_S + self.wall_s)

    def cost(self, size: int = 200, *, stage: AuditStage = "open", what: str = "w", **facts: Any) -> bool:
        """A refusal that is a line alone, and costs so many bytes. Is it written in full?"""
        before = len(self.effects)
        lines = (Log(module="SERVER", level="notice", text="x" * (size - 160)),)
        self.folding.record(Refused(stage=stage, facts=self.facts(**facts), lines=lines, what=what))
        return len(self.effects) > before

    def ask(self, stage: AuditStage = "attach", facts: dict[str, Any] | None = None, **asked: Any) -> None:
        """A refusal with an event of these members, and without a line."""
        whose = {**self.facts(), **(facts or {})}
        event = made_event(stage, "deny", "r", whose, asked)  # type: ignore[arg-type]
        self.folding.record(Refused(stage=stage, facts=whose, event=event))  # type: ignore[arg-type]

    def one_sum(self) -> dict[str, Any]:
        """What the last round writes, which is one event."""
        self.effects.clear()
        self.end()
        (event,) = self.events
        return event


# Nothing fits but the first: it takes all of the budget, and of the reserve.
NOTHING = Budget(burst_bytes=1, reserve_bytes=1, bytes_per_s=0)


def of_two(monkeypatch: pytest.MonkeyPatch, stage: AuditStage, one: dict[str, Any], other: dict[str, Any]) -> Any:
    """The sum of two refusals behind the first."""
    scene = Small(monkeypatch, NOTHING, NOTHING)
    scene.ask(stage, operation="first")
    scene.ask(stage, **one)
    scene.ask(stage, **other)
    return scene.one_sum()


def test_a_budget_is_spent_to_its_last_byte_and_comes_back_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Small(monkeypatch, Budget(burst_bytes=1000, reserve_bytes=400, bytes_per_s=10))
    assert [scene.cost() for _ in range(5)] == [True] * 5
    assert scene.cost()  # the first of its sort is written from the reserve
    assert not scene.cost()
    scene.now += 39
    assert not scene.cost()
    scene.now += 1
    assert scene.cost()
    assert not scene.cost()
    scene.now += 10_000  # no more than the burst comes back
    assert [scene.cost() for _ in range(6)] == [True] * 5 + [False]


def test_what_is_larger_than_the_budget_takes_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a refusal so large that it were never written, or left its owner with a debt for days."""
    scene = Small(monkeypatch, Budget(burst_bytes=1000, reserve_bytes=400, bytes_per_s=10))
    assert scene.cost(1500)
    assert not scene.cost(what="another")  # the reserve is gone as well
    scene.now += 59
    assert not scene.cost(what="another")
    scene.now += 1
    assert scene.cost(what="another")
    assert scene.cost(1500, what="a third")  # the whole reserve is there
    assert not scene.cost(what="a fourth")


def test_of_two_owners_both_pay_and_both_must_afford_it(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Budget(burst_bytes=1000, reserve_bytes=400, bytes_per_s=0)
    scene = Small(monkeypatch, party=Budget(burst_bytes=1600, reserve_bytes=400, bytes_per_s=0), connection=small)
    assert [scene.cost(stage="attach") for _ in range(7)] == [True] * 6 + [False]
    assert [scene.cost(stage="attach", connection=8) for _ in range(4)] == [True, True, True, False]
    assert scene.cost(stage="attach", connection=9, what="new")  # from the user's reserve, which is now gone
    assert not scene.cost(stage="attach", connection=9, what="newer")


def test_the_widest_owner_whose_budget_is_spent_has_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Small(monkeypatch, NOTHING, NOTHING)
    for connection in range(5):
        scene.cost(stage="attach", connection=connection)
    scene.effects.clear()
    scene.end()
    assert scene.texts == [f"4 times from {T0} to {T0}, not told one by one, of user 'eve': w"]


def test_a_refusal_is_written_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Small(monkeypatch)
    event = made_event("open", "deny", "r", scene.facts(), {})
    lines = (line("info", "one"), line("debug", "two"))
    scene.folding.record(Refused(stage="open", facts=scene.facts(), lines=lines, event=event, time_s=17.5))
    assert scene.effects == [*lines, Audit(event=event, time_s=17.5)]


@pytest.mark.parametrize("ending", [{"is_ending": True}, {"request": {"redecision": "policy_change"}}])
def test_what_the_router_ends_is_no_flood_even_of_one_whose_budget_is_spent(
    monkeypatch: pytest.MonkeyPatch, ending: dict[str, Any]
) -> None:
    """Attack: to spend one's budget first, so that nobody reads which of one's links were ended."""
    scene = Small(monkeypatch, NOTHING, NOTHING)
    recorder = Recorder(UsageLedger(), scene.effects.append, scene.folding)
    decision = Decision(is_allowed=False, reason=Reason.SOURCE_NOT_ALLOWED)
    scene.cost(stage="attach")
    scene.cost(stage="attach")
    for number in range(5):
        lines = (line("info", f"ended {number}"),)
        denied = Denied(stage="attach", decision=decision, refusal=LINK_REFUSED, lines=lines, **ending)
        recorder.record(denied, scene.facts())
    assert len(scene.events) == 5
    assert scene.texts[-5:] == [f"ended {number}" for number in range(5)]


def test_a_sum_of_a_connection_word_for_word(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Small(monkeypatch, connection=NOTHING)
    scene.cost(1000, stage="attach")
    for number, at_s in enumerate((0.0, 1.0, 1.5)):
        scene.wall_s = at_s
        event = made_event("attach", "deny", "r", scene.facts(), {"address": f"a{number % 2}", "link_name": "l"})
        lines = (line("debug", "not this"), line("warning", "this"), line("info", "nor this"))
        scene.folding.record(Refused(stage="attach", facts=scene.facts(), lines=lines, event=event))
    scene.effects.clear()
    scene.end()
    told = f"[C7] 3 times from {T0} to {T1}, not told one by one, of connection '7': DENY attach r: 'a0', 'a1'"
    folded = {"first": T0, "last": T1, "owner": "connection", "samples": '["a0", "a1"]'}
    own = {"stage": "attach", "decision": "deny", "reason": "r", "rule": None, "link_name": "l"}
    assert scene.effects == [
        Log(module="POLICY", level="warning", text=told),
        Audit(event={**scene.facts(), **own, "attempts": 3, "folded": folded, "detail": DETAIL}),  # type: ignore[typeddict-item]
    ]


def test_a_sum_of_what_was_allowed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Small(monkeypatch, NOTHING)
    event = made_event("open", "allow", "allowed", scene.facts(), {})
    for _ in range(4):
        scene.folding.record(Refused(stage="open", facts=scene.facts(), event=event))
    scene.effects.clear()
    scene.end()
    assert scene.effects[0] == Log(
        module="POLICY",
        level="info",
        text=f"3 times from {T0} to {T0}, not told one by one, of user 'eve': ALLOW open allowed",
    )


def test_a_sum_of_lines_alone_is_a_line_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Small(monkeypatch, NOTHING)
    for _ in range(3):
        scene.cost(user=None, host="192.0.2.9", what="lost before its Open")
    scene.effects.clear()
    scene.end()
    text = f"2 times from {T0} to {T0}, not told one by one, of host '192.0.2.9': lost before its Open"
    assert scene.effects == [Log(module="SERVER", level="notice", text=text)]


def test_more_connections_of_a_host_are_told_until_its_refusals_are_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Small(monkeypatch, NOTHING)
    accepted = Log(module="SERVER", level="notice", text="Accepted connection")
    for _ in range(5):
        scene.folding.report_accepted(accepted, scene.facts())
    assert scene.effects == [accepted] * 5
    scene.cost(stage="sasl", host="192.0.2.8")
    scene.cost(stage="sasl", host="192.0.2.8")
    scene.folding.report_accepted(accepted, scene.facts())
    assert scene.effects.count(accepted) == 6  # another host's flood
    scene.cost(stage="sasl")
    scene.cost(stage="sasl")
    scene.effects.clear()
    for _ in range(3):
        scene.folding.report_accepted(accepted, scene.facts())
    assert scene.effects == [accepted]
    scene.end()
    text = f"2 times from {T0} to {T0}, not told one by one, of host '192.0.2.7': more connections of the host"
    assert Log(module="SERVER", level="notice", text=text) in scene.effects


def test_a_sum_shows_each_new_name_once_and_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Small(monkeypatch, connection=NOTHING)
    scene.ask(address="first")
    for number in range(12):
        for _ in range(2):
            scene.ask(address=f"{number:02}" + "x" * 100)
    samples = json.loads(scene.one_sum()["folded"]["samples"])
    assert samples == [f"{number:02}" + "x" * 62 for number in range(12)]


def test_attack_twelve_hundred_refusals_do_not_hide_the_one_that_mattered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked for again and again was refused before; what was not is shown, wherever in the flood it stands."""
    scene = Small(monkeypatch, connection=NOTHING)
    for number in range(1_200):
        scene.ask(address="payroll" if number == 700 else f"junk.{number % 30}")
    samples = json.loads(scene.one_sum()["folded"]["samples"])
    assert "payroll" in samples
    assert len(samples) < 40


def test_attack_endless_new_names_leave_the_first_the_last_and_some_that_are_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Small(monkeypatch, connection=NOTHING)
    chance = Random(1)
    scene.folding._choose = chance.randrange
    for number in range(3_000):
        scene.ask(address=f"{number:04}" + "\U0001f600" * 70)
    samples = json.loads(scene.one_sum()["folded"]["samples"])
    assert len(json.dumps(samples)) <= 8192
    numbers = [int(name[:4]) for name in samples]
    assert (numbers[0], numbers[-1]) == (1, 2999)  # the very first is written in full
    assert len([number for number in numbers if number > 100]) >= 3


def test_what_was_refused_of_anybody_is_not_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding_module, "MAX_KNOWN", 2)
    made = Folding(lambda _effect: None)
    assert [made._is_new(name) for name in "aab"] == [True, False, True]
    assert [made._is_new(name) for name in "caab"] == [True, True, False, True]
    assert len(made._known) == 2


NAMES: list[tuple[AuditStage, dict[str, Any], list[str]]] = [
    ("sasl", {"facts": {"user": "claimed", "requested_vhost": "v"}}, ["claimed"]),
    ("open", {"facts": {"user": "eve", "requested_vhost": "v"}}, ["v"]),
    ("open", {"facts": {"user": "eve"}}, []),
    ("attach", {"address": "a", "facts": {"requested_vhost": "v"}}, ["a"]),
    ("attach", {"address": "", "facts": {"requested_vhost": "v"}}, [""]),
    ("management", {"management": {"operation": "READ", "entity_type": "t", "entity_name": "n"}}, ["n"]),
    ("management", {"management": {"operation": "READ", "entity_type": "t", "entity_name": None}}, ["t"]),
    ("management", {"management": {"operation": "READ"}, "address": "$management"}, ["READ"]),
]


@pytest.mark.parametrize(("stage", "asked", "samples"), NAMES)
def test_the_names_of_a_sum_are_what_the_peer_wanted_or_claimed_to_be(
    stage: AuditStage, asked: dict[str, Any], samples: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"facts": {}, **asked}
    if "management" in asked:
        asked["management"]["status"] = 403
    assert json.loads(of_two(monkeypatch, stage, asked, asked)["folded"]["samples"]) == samples


def test_members_in_which_refusals_differ_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    one = {"address": "a" * 2000, "link_name": "l", "usage": {"open_links": 1}, "limit": 1}
    other = {"address": "".join(["a"] * 2000), "link_name": "m", "usage": {"open_links": 1}}
    summed = of_two(monkeypatch, "attach", one, other)
    assert "link_name" not in summed
    assert "limit" not in summed
    assert summed["usage"] == {"open_links": 1}
    assert summed["address"] == "a" * 1025  # not all of it is kept, and so much is equal


def test_what_requests_to_management_have_in_common_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    one = {"operation": "DELETE", "entity_type": "listener", "entity_name": "l", "entity_identity": "listener/l"}
    same = {"management": {**one, "status": 403}}
    assert of_two(monkeypatch, "management", same, same)["management"] == {**one, "status": 403}
    other = {**one, "entity_name": "m", "entity_identity": "listener/m"}
    both = of_two(monkeypatch, "management", same, {"management": {**other, "status": 404}})
    assert both["management"] == {
        "operation": "DELETE", "status": 403, "entity_type": "listener",
    }  # fmt: skip
    update = {"management": {**one, "operation": "UPDATE", "status": 403}}
    assert of_two(monkeypatch, "management", same, update)["management"] == {
        **one,
        "operation": "various",
        "status": 403,
    }


def test_refusals_of_another_stage_reason_or_vhost_are_another_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Small(monkeypatch, NOTHING)
    scene.cost(1000)
    sorts: list[tuple[AuditStage, str, str]] = [("open", "r", "a"), ("sasl", "r", "a"), ("open", "s", "a")]
    for stage, reason, vhost in [*sorts, ("open", "r", "b")]:
        for _ in range(3):
            facts: ConnectionMembers = {**scene.facts(), "vhost": vhost}
            event = made_event(stage, "deny", reason, facts, {})
            scene.folding.record(Refused(stage=stage, facts=facts, event=event))
    scene.end()
    assert sorted((each["stage"], each["reason"], each["vhost"], each["attempts"]) for each in scene.sums) == [
        ("open", "r", "a", 3), ("open", "r", "b", 3), ("open", "s", "a", 3), ("sasl", "r", "a", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "host"),
    [
        ({"remote_host": "192.0.2.7", "listener": "l"}, "192.0.2.7"),
        ({"remote_host": "2001:db8:0:1:2::3"}, "2001:db8:0:1::/64"),
        ({"remote_host": "unix", "listener": "l"}, "unix"),
        ({"remote_host": "", "listener": "broker:5672"}, "broker:5672"),
        ({"remote_host": None, "listener": "broker:5672"}, "broker:5672"),
        ({}, ""),
    ],
)
def test_a_host_pays_under_its_address_or_network(facts: ConnectionMembers, host: str) -> None:
    scene = Scene()
    scene.folding.record(Refused(stage="header", facts=facts, lines=(line("info", "x"),)))
    assert list(scene.folding._hosts.purses) == [Owner("host", host)]


@pytest.mark.parametrize("stage", ["begin", "attach", "transfer", "management"])
def test_a_connection_pays_for_what_it_may_repeat(stage: AuditStage) -> None:
    scene = Scene()
    facts = scene.facts()
    both = (Owner("connection", "7"), Owner("user", "eve"))
    assert scene.folding._owners(Refused(stage=stage, facts=facts), 0.0) == both
    del facts["connection"]
    assert scene.folding._owners(Refused(stage=stage, facts=facts), 0.0) == both[1:]


@pytest.mark.parametrize("stage", ["accept", "header", "tls", "sasl"])
def test_whom_a_peer_claims_to_be_pays_nothing_before_the_login(stage: AuditStage) -> None:
    """Attack: to spend another user's budget without his password, so that his own refusals are not written."""
    scene = Scene()
    host = (Owner("host", "192.0.2.7"),)
    assert scene.folding._owners(Refused(stage=stage, facts=scene.facts()), 0.0) == host
    assert not scene.folding._users.purses


def test_owners_without_room_share_one_budget_of_their_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding_module, "MAX_OWNERS", 2)
    scene = Small(monkeypatch, NOTHING, NOTHING)
    for name in "abcd":
        for _ in range(3):
            scene.cost(stage="attach", connection=ord(name), user=name)
            scene.cost(stage="header", host=name)
    folding = scene.folding
    assert list(folding._users.purses) == [Owner("user", "a"), Owner("user", "b"), Owner("various", "user")]
    assert list(folding._hosts.purses) == [Owner("host", "a"), Owner("host", "b"), Owner("various", "host")]
    assert list(folding._connections.purses) == [Owner("connection", "97"), Owner("connection", "98")]
    scene.effects.clear()
    scene.end()
    assert sorted(text.partition(", ")[0].split(" ")[0] + text.rpartition("one, ")[2] for text in scene.texts) == [
        "2of host 'a': w", "2of host 'b': w", "2of user 'a': w", "2of user 'b': w",
        "5of various hosts: w", "5of various users: w",
    ]  # fmt: skip


def test_sums_without_room_are_summed_up_by_their_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who share such a sum do not pay for it: it has a budget of its own."""
    monkeypatch.setattr(folding_module, "MAX_SUMS", 1)
    scene = Small(monkeypatch, Budget(burst_bytes=200, reserve_bytes=2000, bytes_per_s=10))
    for host in "abc":
        for _ in range(5):
            scene.cost(stage="header", host=host)
    assert set(scene.folding._hosts.purses) == {*(Owner("host", each) for each in "abc"), Owner("various", "host")}
    before = {owner: purse._left for owner, purse in scene.folding._hosts.purses.items()}
    assert before[Owner("various", "host")] == 200
    scene.effects.clear()
    scene.report()
    assert [text.rpartition("one, ")[2] for text in scene.texts] == ["of host 'a': w", "of various hosts: w"]
    after = {owner: purse._left for owner, purse in scene.folding._hosts.purses.items()}
    assert {owner.name for owner in before if before[owner] != after[owner]} == {"a", "host"}


def test_a_sum_costs_its_owners_and_waits_until_they_afford_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: many sorts, each of which has a sum in each round."""
    scene = Small(monkeypatch, Budget(burst_bytes=200, reserve_bytes=1600, bytes_per_s=8))
    for what in ("one", "two"):
        for _ in range(3):
            scene.cost(what=what)  # 200 in full, then one of each sort from the reserve
    scene.effects.clear()
    scene.report()
    scene.now += 41
    scene.report()
    assert scene.effects == []  # 1200 were left of the reserve, 328 have come back, and a sum takes 1536
    scene.now += 1
    scene.report()
    assert [text.split()[0] for text in scene.texts] == ["1"]
    scene.now += 191
    scene.report()
    assert len(scene.texts) == 1
    scene.now += 1
    scene.report()
    assert [text.split()[0] for text in scene.texts] == ["1", "2"]


def test_an_owner_is_forgotten_when_its_budget_is_whole_and_its_flood_over(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Small(monkeypatch, Budget(burst_bytes=1000, reserve_bytes=400, bytes_per_s=10))
    scene.cost(user="once")
    for _ in range(8):
        scene.cost()
    scene.report()
    assert [owner.name for owner in scene.folding._users.purses] == ["once", "eve"]
    scene.now += 20
    scene.report()
    assert [owner.name for owner in scene.folding._users.purses] == ["eve"]
    assert len(scene.sums) == 0
    scene.now += 1000
    scene.report()
    assert not scene.folding._users.purses


def test_each_step_of_a_round_writes_one_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Small(monkeypatch, NOTHING)
    for what in ("one", "two", "three"):
        for _ in range(3):
            scene.cost(what=what)
    scene.effects.clear()
    steps = [len(scene.effects) for _ in scene.folding.reports(is_end=True)]
    assert steps[:3] == [1, 2, 3]
    assert len(scene.effects) == 3


def test_the_sums_of_a_connection_that_ends_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Small(monkeypatch, connection=NOTHING)
    for what in ("one", "two"):
        for _ in range(4):
            scene.cost(stage="attach", what=what)
            scene.cost(stage="attach", what=what, connection=8)
    scene.effects.clear()
    left = scene.folding._users.purses[Owner("user", "eve")]._left
    scene.folding.forget(7)
    told = [text.replace(T0, "now") for text in scene.texts]
    start = "times from now to now, not told one by one, of connection '7':"
    assert sorted(told) == [f"[C7] 3 {start} one", f"[C7] 4 {start} two"]
    assert scene.folding._users.purses[Owner("user", "eve")]._left == left - 2 * 1536  # its user pays
    assert list(scene.folding._connections.purses) == [Owner("connection", "8")]
    assert {owner.name for owner, _ in scene.folding._sums} == {"8"}
    scene.folding.forget(7)
    assert len(scene.texts) == 2


def test_a_connection_that_ends_leaves_all_its_sums_beside_sorts_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Small(monkeypatch, connection=Budget(burst_bytes=200, reserve_bytes=2000, bytes_per_s=0))
    scene.cost(stage="attach")
    for number in range(10):
        assert scene.cost(stage="attach", what=f"w{number}")  # the first of its sort, from the reserve
    for number in range(5):
        assert not scene.cost(stage="attach", what=f"w{number}")
    scene.effects.clear()
    scene.folding.forget(7)
    assert sorted(text[-2:] for text in scene.texts) == [f"w{number}" for number in range(5)]
    assert scene.folding._sums == {}


def test_connections_without_room_for_their_sums_have_one_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding_module, "MAX_SUMS", 1)
    scene = Small(monkeypatch, connection=NOTHING)
    for connection in (1, 2, 3):
        for _ in range(3):
            scene.cost(stage="attach", connection=connection)
    scene.effects.clear()
    scene.folding.forget(2)
    scene.end()
    assert sorted(text.partition(" times")[0] + text.rpartition("one, ")[2] for text in scene.texts) == [
        "4of various connections: w", "[C1] 2of connection '1': w",
    ]  # fmt: skip


def test_the_sums_of_connections_that_end_become_one_of_their_user_who_is_spent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Attack: a flood on each of many connections, one after the other."""
    scene = Small(monkeypatch, Budget(burst_bytes=100_000, reserve_bytes=1000, bytes_per_s=0), NOTHING)
    for connection, at_s in ((1, 0.5), (2, 0.0), (3, 1.5), (4, 1.0)):
        for number in range(3):
            scene.wall_s = at_s
            event = made_event("attach", "deny", "r", scene.facts(connection), {"address": f"{connection}.{number}"})
            scene.folding.record(Refused(stage="attach", facts=scene.facts(connection), event=event))
    while scene.cost(2000):
        pass
    scene.effects.clear()
    for connection in (1, 2, 3, 4):
        scene.folding.forget(connection)
    assert scene.effects == []
    assert {owner for owner, _ in scene.folding._sums} == {Owner("user", "eve")}
    summed = scene.one_sum()
    assert "connection" not in summed
    assert summed["user"] == "eve"
    assert (summed["folded"]["first"], summed["folded"]["last"], summed["folded"]["owner"]) == (T0, T1, "user")
    assert summed["attempts"] == 8
    assert json.loads(summed["folded"]["samples"]) == ["1.1", "1.2", "2.1", "2.2", "3.1", "3.2", "4.1", "4.2"]


def test_the_sum_of_a_connection_that_ends_finds_the_crowd_where_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(folding_module, "MAX_SUMS", 1)
    scene = Small(monkeypatch, Budget(burst_bytes=1000, reserve_bytes=400, bytes_per_s=0), NOTHING)
    for _ in range(3):
        scene.cost(stage="attach")
    while scene.cost():
        pass
    scene.folding.forget(7)
    assert {owner for owner, _ in scene.folding._sums} == {Owner("user", "eve"), Owner("various", "user")}
    assert Owner("various", "user") in scene.folding._flooding


@pytest.mark.parametrize(
    ("lines", "event", "size"),
    [
        (("x" * 40,), None, 200),
        (("x" * 40, "y" * 10), None, 370),
        (("x" * 5000,), None, 160 + 2048),
        (("\x00" * 10,), None, 160 + 120),
        (("é" * 10,), None, 160 + 120),
        (("é" * 5000,), None, 160 + 2048),
        ((), {"address": "a" * 10}, 910),
        ((), {"address": "é" * 10}, 1020),
        ((), {"address": "\n" * 10, "link_name": "l" * 5}, 1025),
        ((), {"address": "a" * 5000}, 900 + 1024),
        ((), {"rule": {"vhost": "v" * 7, "line": 3}}, 907),
        ((), {"rule": None, "limit": 5}, 900),
        ((), {"management": {"operation": "READ", "status": 403}}, 907),
        (("x" * 40,), {"address": "a" * 10}, 1110),
    ],
)
def test_what_a_refusal_costs(lines: tuple[str, ...], event: Any, size: int) -> None:
    """At least as many bytes as it may take in the log and the audit log, whatever characters it has."""
    assert folding_module._size([line("info", text) for text in lines], event) == size


@pytest.mark.parametrize("time_s", [1e20, -1e20, float("nan"), float("inf")])
def test_what_is_no_time_is_none(time_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Small(monkeypatch, NOTHING)
    scene.wall_s = time_s
    scene.ask("open")
    scene.ask("open")
    folded = scene.one_sum()["folded"]
    assert (folded["first"], folded["last"]) == (None, None)
