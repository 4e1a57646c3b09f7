"""Each detector finds what it is for, and leaves alone what only looks like it (issue 15)."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from literal_events import FOLDED, frame, line, table_of

pytest.importorskip("pyspark")

import schemas
from spark.detectors import DETECTORS
from spark.detectors import focus as focus_module
from spark.detectors.finding import FINDING, MAX_EVIDENCE, Detector
from spark.detectors.focus import focused, watch
from spark.detectors.thresholds import ThresholdsError, defaults, parse
from spark.jobs import detection
from spark.sums.trail import Trail, trail_of_events, trail_of_table

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.spark

BEGIN = datetime(2026, 11, 20, 12, tzinfo=UTC)
_IDS = count(1)
# For a few rows, compiling the code of a query takes longer than running it.
_UNCOMPILED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.fixture(autouse=True, scope="module")
def _uncompiled(session: "SparkSession") -> Iterator[None]:
    kept = {name: session.conf.get(name, None) for name in _UNCOMPILED}
    for name, value in _UNCOMPILED.items():
        session.conf.set(name, value)
    yield
    for name, before in kept.items():
        session.conf.unset(name) if before is None else session.conf.set(name, before)


def at(seconds: float, **changes: Any) -> str:
    """An event so many seconds after BEGIN."""
    time = (BEGIN + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return line(**{"event_id": f"{next(_IDS):032x}", "time": time, **changes})


def failed(seconds: float, user: str | None, host: str = "192.0.2.7", **changes: Any) -> str:
    facts = {"stage": "sasl", "reason": "sasl_failed", "vhost": None, "group": None, "address": None, "rule": None}
    return at(seconds, user=user, remote_host=host, **{**facts, **changes})


def let_in(seconds: float, user: str, host: str = "192.0.2.7", **changes: Any) -> str:
    return at(seconds, stage="open", decision="allow", reason="allowed", user=user, remote_host=host, **changes)


def found(session: "SparkSession", name: str, *lines: str, **thresholds: int) -> "list[Row]":
    """Of the whole trail, and the same of what the detector is said to need of it."""
    detector = next(each for each in DETECTORS if each.name == name)
    numbers = {**defaults(), name: {**defaults()[name], **thresholds}}
    trail = trail_of_events(frame(session, *lines), watch=watch([detector], numbers))
    told = detection.found(trail, [detector], numbers)
    assert told.schema.fieldNames() == FINDING.fieldNames()
    rows = told.orderBy("first").collect()
    few = focused(trail, [detector], numbers)
    assert detection.found(few, [detector], numbers).orderBy("first").collect() == rows
    few.events.unpersist()
    return rows


def kept(trail: Trail, *detectors: Detector) -> "list[Row]":
    """The events that these detectors are said to need."""
    return focused(trail, detectors, defaults()).events.collect()


def test_every_detector_has_its_thresholds_and_their_source() -> None:
    properties = schemas.load("detect_thresholds")["properties"]
    assert {detector.name for detector in DETECTORS} == set(properties)
    assert all("description" in of for of in properties.values())


def test_thresholds_are_validated() -> None:
    assert parse('{"brute_force": {"min_failures": 3}}')["brute_force"] == {
        "enabled": True, "window_s": 1800, "min_failures": 3,
    }  # fmt: skip
    for text, said in (
        ("[", "is not JSON"),
        ("[]", "the file: "),
        ('{"brute_forse": {}}', "the file: Additional properties"),
        ('{"brute_force": {"window_s": 0}}', "brute_force.window_s: 0 is less than"),
        ("[" * 100_000, "is not JSON"),
    ):
        with pytest.raises(ThresholdsError, match=said):
            parse(text)


def test_brute_force_is_ten_failures_of_one_user_with_its_evidence(session: "SparkSession") -> None:
    lines = [failed(60 * n, "alice", f"192.0.2.{n % 3}") for n in range(10)]
    others = [failed(60 * n, "bob") for n in range(9)] + [failed(7200 * n, "carol") for n in range(12)]
    (row,) = found(session, "brute_force", *lines, *others)
    assert (row.user, row["count"], row.events, row.distinct) == ("alice", 10, 10, 3)
    assert row.hosts == ["192.0.2.0", "192.0.2.1", "192.0.2.2"]
    assert (row.remote_host, row.router, row.severity) == (None, "R1", "high")
    assert len(row.evidence) == len(set(row.evidence)) == 10
    assert row.evidence == sorted(row.evidence)


def test_a_flood_that_is_summed_up_counts_for_all_it_stands_for(session: "SparkSession") -> None:
    (row,) = found(session, "brute_force", failed(0, "alice", attempts=5000, folded=FOLDED))
    assert (row["count"], row.events) == (5000, 1)


def test_bursts_that_touch_are_one_finding_and_others_two(session: "SparkSession") -> None:
    lines = [failed(100 * n, "alice") for n in range(100)]
    (row,) = found(session, "brute_force", *lines)
    assert row["count"] == 100
    apart = [failed(start + n, "alice") for start in (0, 40_000) for n in range(10)]
    assert [each["count"] for each in found(session, "brute_force", *apart)] == [10, 10]


def test_attack_a_burst_on_the_edge_of_a_window_is_found(session: "SparkSession") -> None:
    shifts = range(0, 1800, 150)
    # Of each user 1791 s from first to last.
    lines = [failed(shift + 199 * n, f"shifted by {shift}") for shift in shifts for n in range(10)]
    assert Counter(row.user for row in found(session, "brute_force", *lines)) == {
        f"shifted by {shift}": 1 for shift in shifts
    }


def test_spraying_is_many_users_from_one_host_at_one_router(session: "SparkSession") -> None:
    spray = [failed(10 * n, f"u{n}") for n in range(10)]
    stuffing = [failed(10 * n, f"u{n}", "192.0.2.9", router=f"R{n % 3}") for n in range(10)]
    busy = [failed(10 * n, "u1", "192.0.2.10") for n in range(30)]
    (row,) = found(session, "password_spraying", *spray, *stuffing, *busy)
    assert (row.remote_host, row.distinct, row.users) == ("192.0.2.7", 10, sorted(f"u{n}" for n in range(10)))
    (row,) = found(session, "credential_stuffing", *spray, *stuffing, *busy)
    assert (row.remote_host, row.routers, row.router) == ("192.0.2.9", ["R0", "R1", "R2"], None)


def test_the_names_of_a_flood_are_users_of_the_spraying(session: "SparkSession") -> None:
    sampled = {**FOLDED, "owner": "host", "samples": '["a", "b", "c", "d", "e", "f", "g", "h"]'}
    lines = [failed(0, "x"), failed(1, "y"), failed(2, None, attempts=900, folded=sampled)]
    (row,) = found(session, "password_spraying", *lines)
    assert (row.distinct, row["count"], row.events) == (10, 902, 3)
    assert found(session, "password_spraying", failed(2, None, attempts=9, folded={**sampled, "samples": "["})) == []


def test_attack_an_ipv6_network_is_one_host(session: "SparkSession") -> None:
    inside = [failed(10 * n, f"u{n}", f"2001:db8:0:7:{n:x}::{n:x}") for n in range(10)]
    outside = [failed(10 * n, f"u{n}", f"2001:db8:0:{n + 8:x}::1") for n in range(9)]
    mapped = [failed(10 * n, f"u{n}", ("::ffff:" if n % 2 else "") + "192.0.2.9") for n in range(10)]
    rows = found(session, "password_spraying", *inside, *outside, *mapped)
    assert sorted(len(row.hosts) for row in rows) == [2, 10]
    assert [row.remote_host for row in rows] == [None, None]


def test_address_probing_is_many_addresses_not_one_often(session: "SparkSession") -> None:
    probing = [at(n, address=f"secret.{n}", user="eve") for n in range(10)]
    wrong = [at(n, address="orders", user="app") for n in range(50)]
    (row,) = found(session, "address_probing", *probing, *wrong)
    assert (row.user, row.distinct, len(row.addresses)) == ("eve", 10, 10)


def test_privilege_probing_is_several_privileges_of_one_who_was_let_in(session: "SparkSession") -> None:
    probing = [
        let_in(0, "eve"),
        at(1, user="eve", reason="waypoint_capability"),
        at(2, user="eve", stage="management", reason="management_not_allowed"),
        at(3, user="eve", reason="source_not_allowed", address="amqp://h/_topo/0/R2/$management"),
    ]
    plain = [at(n, user="app", reason="source_not_allowed", address=f"orders.{n}") for n in range(5)]
    again = [at(n, user="tool", stage="management", reason="management_not_allowed") for n in range(5)]
    (row,) = found(session, "privilege_probing", *probing, *plain, *again)
    assert (row.user, row.distinct, row["count"], row.events) == ("eve", 3, 3, 4)


def test_failures_and_then_an_open_from_the_same_host(session: "SparkSession") -> None:
    guessed = [*(failed(n, "alice") for n in range(5)), let_in(60, "alice"), let_in(70, "alice")]
    mistyped = [*(failed(n, "bob") for n in range(4)), let_in(60, "bob")]
    elsewhere = [*(failed(n, "carol") for n in range(9)), let_in(60, "carol", "192.0.2.8")]
    before = [let_in(0, "dan"), *(failed(n + 1, "dan") for n in range(5))]
    late = [*(failed(n, "erin") for n in range(5)), let_in(20_000, "erin")]
    (row,) = found(session, "denied_then_allowed", *guessed, *mistyped, *elsewhere, *before, *late)
    assert (row.user, row["count"], row.events) == ("alice", 5, 6)


def test_first_seen_wants_a_history(session: "SparkSession") -> None:
    day = 86400
    old = [let_in(n * day, "alice", "192.0.2.1") for n in range(10)]
    new = [let_in(8 * day, "alice", "192.0.2.2"), let_in(9 * day, "bob", "192.0.2.1"), let_in(10 * day, "bob")]
    rows = found(session, "first_seen", *old, *new)
    assert [(row.user, row.remote_host, row.what) for row in rows] == [
        ("alice", "192.0.2.2", ["remote_host"]),
        ("bob", "192.0.2.1", ["user"]),
        ("bob", "192.0.2.7", ["remote_host"]),
    ]
    assert found(session, "first_seen", let_in(0, "alice"), let_in(3 * day, "bob")) == []


def test_a_name_that_was_only_claimed_is_nobody(session: "SparkSession") -> None:
    day = 86400
    assert found(session, "first_seen", let_in(0, "alice"), failed(9 * day, "root", "192.0.2.1")) == []
    assert found(session, "dormant_user", let_in(0, "alice"), failed(99 * day, "alice")) == []


def test_a_user_wakes_after_ninety_days(session: "SparkSession") -> None:
    day = 86400
    lines = [
        let_in(0, "alice"),
        let_in(5, "alice"),
        let_in(91 * day, "alice"),
        let_in(0, "bob"),
        let_in(89 * day, "bob"),
    ]
    (row,) = found(session, "dormant_user", *lines)
    assert (row.user, row.first.replace(tzinfo=None) - row["last"].replace(tzinfo=None)) == ("alice", timedelta())


def test_a_limit_that_refuses_again_and_again(session: "SparkSession") -> None:
    full = [at(n, stage="open", reason="vhost_connection_limit", user=f"u{n}") for n in range(10)]
    other = [at(n, stage="open", reason="vhost_connection_limit", vhost="other") for n in range(9)]
    (row,) = found(session, "limit_saturation", *full, *other)
    assert (row.vhost, row.reason, row["count"], row.distinct) == ("acme", "vhost_connection_limit", 10, 10)


def test_a_client_that_comes_and_goes(session: "SparkSession") -> None:
    flaps = [let_in(20 * n, "app", connection=n) for n in range(10)]
    one = [at(n, stage="transfer", reason="message_stalled", user="b", connection=7) for n in range(30)]
    (row,) = found(session, "flapping", *flaps, *one)
    assert (row.user, row.distinct) == ("app", 10)


def test_an_authenticator_that_does_not_answer(session: "SparkSession") -> None:
    down = [failed(n, f"u{n}", reason="verifier_unavailable") for n in range(5)]
    elsewhere = [failed(n, "u", reason="verifier_unavailable", router="R2") for n in range(4)]
    (row,) = found(session, "authenticator_outage", *down, *elsewhere)
    assert (row.router, row["count"], row.severity) == ("R1", 5, "critical")


def test_a_surge_after_another_ruleset(session: "SparkSession") -> None:
    new = "cd" * 32
    before = [at(100 * n) for n in range(6)]
    after = [at(700 + n, ruleset_digest=new) for n in range(20)]
    (row,) = found(session, "denial_surge", *before, *after)
    assert (row.router, row["count"], row.ruleset_digest) == ("R1", 20, new)
    steady = [at(100 + n) for n in range(10)]
    assert found(session, "denial_surge", *before, *steady, *after) == []
    assert found(session, "denial_surge", *[at(n) for n in range(50)]) == []


def test_a_surge_after_going_back_to_an_older_ruleset(session: "SparkSession") -> None:
    other = "cd" * 32
    lines = [at(0), at(5000, ruleset_digest=other), *(at(10_000 + n) for n in range(20))]
    (row,) = found(session, "denial_surge", *lines)
    assert row.ruleset_digest == "ab" * 32


def test_a_candidates_denials_are_nobodys_incident(session: "SparkSession") -> None:
    from literal_events import shadow_line

    lines = [shadow_line(event_id=f"{n:032x}", address=f"a{n}") for n in range(20)]
    assert found(session, "address_probing", *lines) == []


def test_attack_a_flood_of_events_does_not_make_a_long_row(session: "SparkSession") -> None:
    lines = [failed(n / 10, f"user{n:04}") for n in range(3 * MAX_EVIDENCE)]
    (row,) = found(session, "password_spraying", *lines)
    assert (row.distinct, row.events, len(row.evidence), len(row.users)) == (300, 300, MAX_EVIDENCE, MAX_EVIDENCE)


def test_the_same_events_make_the_same_findings_whatever_their_order(session: "SparkSession") -> None:
    lines = [failed(n, "alice") for n in range(12)]
    (one,), (other,) = (found(session, "brute_force", *each) for each in (lines, lines[::-1]))
    assert one == other


def test_of_a_quiet_trail_nothing_is_read_twice(
    session: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    burst = [failed(60 * n, "alice") for n in range(10)]
    quiet = [failed(7200 * n, f"u{n}", f"198.51.100.{n}") for n in range(20)] + [let_in(n, "carol") for n in range(4)]
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "denials-1.jsonl").write_text("".join(f"{each}\n" for each in (*burst, *quiet)), "utf-8")
    table = table_of(session, tmp_path / "audit" / "denials-1.jsonl")
    trail = trail_of_table(session, table, watch=watch(DETECTORS, defaults()))
    assert [row.user for row in kept(trail, *DETECTORS)] == ["alice"] * 10
    monkeypatch.setattr(focus_module, "MAX_KEYS", 0)  # more than can be held: all that could matter is kept
    assert len([row for row in kept(trail, *DETECTORS) if row.stage == "sasl"]) == 30


def test_a_table_has_the_findings_of_its_events(session: "SparkSession", tmp_path: Path) -> None:
    """Events of several days and routers, of which none is needed twice and none is left out."""
    lines = [failed(60 * n, "alice", router=f"R{n % 3}") for n in range(11)] + [let_in(700, "alice")]
    lines += [let_in(86_400 * day, "carol", "192.0.2.8", router="R2") for day in (0, 1, 120)]
    lines += [failed(43_000 + 60 * n, "bob", f"2001:db8::{n}") for n in range(12)]  # over midnight
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "denials-1.jsonl").write_text("".join(f"{each}\n" for each in lines), "utf-8")
    table = table_of(session, tmp_path / "audit" / "denials-1.jsonl")
    watched = watch(DETECTORS, defaults())
    (by_table, by_events) = (
        detection.detect(trail, defaults()).collect()
        for trail in (
            trail_of_table(session, table, watch=watched),
            trail_of_events(frame(session, *lines), watch=watched),
        )
    )
    assert by_table == by_events
    found = Counter((row.detector, row.user) for row in by_table)
    assert found == {
        ("brute_force", "alice"): 1, ("brute_force", "bob"): 1, ("denied_then_allowed", "alice"): 1,
        ("dormant_user", "carol"): 1,
    }  # fmt: skip
    until = BEGIN + timedelta(seconds=400)
    trail = trail_of_table(session, table, until=until, watch=watched)
    assert detection.detect(trail, defaults()).collect() == []


def test_attack_numbers_of_a_forged_event_do_not_end_the_detectors(session: "SparkSession") -> None:
    lines = [failed(n, "alice", attempts=2**63 - 1) for n in range(1)]
    assert found(session, "brute_force", *lines)[0].user == "alice"
    several = frame(session, *lines, *lines, failed(0, "alice", attempts=2**63 - 1))
    detectors = [detector for detector in DETECTORS if detector.name == "brute_force"]
    assert len(kept(trail_of_events(several, watch=watch(detectors, defaults())), *detectors)) == 3


@pytest.mark.parametrize("name", [detector.name for detector in DETECTORS])
def test_no_events_no_findings(session: "SparkSession", name: str) -> None:
    assert found(session, name) == []


def test_attack_small_findings_of_made_up_names_bury_nothing(
    session: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was shown were the first ones: whoever began early enough, at names of his own, hid all that came later."""
    early = [
        failed(user * 10 + n / 10, f"made up {user}", f"198.51.100.{user}") for user in range(8) for n in range(10)
    ]
    guessed = [failed(4000 + n, "alice", "192.0.2.9") for n in range(12)]
    late = [*guessed, let_in(4100, "alice", "192.0.2.9")]
    trail = trail_of_events(frame(session, *early, *late), watch=detection.looked_at(defaults()))
    all_of_them = detection.detect(trail, defaults())
    shown, is_all = detection.foremost(all_of_them, 3)
    found = [(row.detector, row.user) for row in shown.collect()]
    assert not is_all
    assert sorted(found[1:]) == [("brute_force", "alice"), ("denied_then_allowed", "alice")]
    assert found[0][1] != "alice"  # the earliest of those shown
    shown, is_all = detection.foremost(all_of_them, 100)
    assert is_all
    assert len(shown.collect()) == 10
