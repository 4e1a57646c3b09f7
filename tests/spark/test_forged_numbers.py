"""Attack: huge numbers in forged events overflow no sum, whether they are ingested now or stand in an older table."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from literal_events import FOLDED, change_line, frame, line, shadow_line, table_of

pytest.importorskip("pyspark")

from policy.ruleset import compile_ruleset
from spark.compliance.queries import QUERIES, findings
from spark.detectors import DETECTORS
from spark.detectors.thresholds import defaults
from spark.event_table import read_events, read_quarantine
from spark.jobs.changes import CHANGES
from spark.jobs.denials import DENIALS
from spark.jobs.detection import detect, looked_at
from spark.jobs.reports import Kind
from spark.jobs.shadow import kind as shadow_kind
from spark.sums.trail import trail_of_events
from spark.transforms.continuity import continuity
from spark.transforms.events import MOST, lost
from spark.transforms.ocsf import ocsf
from spark.transforms.replay import changed, replayed
from spark.transforms.replay import totals as replay_totals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

HUGE = 2**63 - 1
# One reason for each detector that adds requests up.
REASONS = {
    "sasl": ("sasl_failed", "too_many_guesses", "verifier_unavailable"),
    "attach": ("target_not_allowed", "forbidden_operation", "sender_limit"),
    "header": ("idle_timeout", "handshake_aborted"),
}
KINDS: Mapping[str, Callable[[], Kind]] = {
    "denials": lambda: DENIALS,
    "changes": lambda: CHANGES,
    "shadow": shadow_kind,
}


def identified(number: int) -> str:
    return f"{number:032x}"


def forged() -> list[str]:
    """Of each kind three: two are enough to overflow, and a running sum needs one more."""
    lines: list[dict[str, Any]] = []
    for stage, reasons in REASONS.items():
        for reason in reasons:
            for at in range(3):
                when = f"2026-11-20T14:0{at}:00.000000Z"
                members = {"stage": stage, "reason": reason, "time": when, "attempts": HUGE}
                lines += [members, {**members, "folded": FOLDED, "address": None}]
    # The ruleset changes, with huge numbers of denials before and after.
    for at in range(4):
        when = f"2026-11-20T1{at}:00:00.000000Z"
        lines.append({"time": when, "attempts": HUGE, "ruleset_digest": f"{at // 2:064x}"})
    for stage, reason in (("open", "allowed"), ("attach", "allowed"), ("accept", "banned")):
        decision = "allow" if reason == "allowed" else "deny"
        lines += [{"stage": stage, "reason": reason, "decision": decision, "attempts": HUGE}] * 2
    lost_ones = {"stage": "audit", "reason": "events_lost", "lost": HUGE, "start": "2" * 32}
    lines += [{**lost_ones, "sequence": number} for number in (0, HUGE)]
    texts = [line(**{**members, "event_id": identified(at)}) for at, members in enumerate(lines)]
    changes = [change_line(event_id=identified(1000 + at), attempts=HUGE, sequence=at * HUGE) for at in range(2)]
    shadows = [shadow_line(event_id=identified(2000 + at), shadow={"count": HUGE}) for at in range(2)]
    return texts + changes + shadows


@pytest.fixture(scope="module")
def older(session: "SparkSession") -> "DataFrame":
    """As an older `qdaudit ingest` took them in."""
    return frame(session, *forged()).persist()


@pytest.mark.parametrize("name", sorted(KINDS))
def test_attack_no_report_is_ended(older: "DataFrame", name: str) -> None:
    report, trail = KINDS[name](), trail_of_events(older, has_denials=True)
    totals = report.totals(trail).first()
    assert totals is not None
    assert all(0 <= value <= HUGE for value in totals.asDict().values())
    assert max(totals.asDict().values()) >= 2 * MOST
    for _, table in report.tables(trail).values():
        table.collect()


def test_attack_no_detector_is_ended(older: "DataFrame") -> None:
    trail = trail_of_events(older, watch=looked_at(defaults()))
    found = {row.detector for row in detect(trail, defaults()).collect()}
    adding = {"brute_force", "denied_then_allowed", "authenticator_outage", "limit_saturation", "denial_surge"}
    assert adding <= found <= {detector.name for detector in DETECTORS}


def test_attack_no_evidence_is_ended(older: "DataFrame") -> None:
    for query in QUERIES.values():
        query(older).collect()
    trail = trail_of_events(older, watch=looked_at(defaults()))
    findings(trail).collect()
    row = trail.facts().agg(lost().alias("lost")).first()
    assert row is not None
    assert row["lost"] == 2 * MOST
    numbers = continuity(trail).first()
    assert numbers is not None
    assert numbers["missing"] > 2**62


def test_attack_no_replay_and_no_export_is_ended(older: "DataFrame") -> None:
    ruleset = compile_ruleset({"enableVhostPolicy": True}, [], resolve=lambda _: [])
    replays = replayed(older, ruleset)
    assert sum(row["requests"] for row in replay_totals(replays).collect()) >= 4 * MOST
    assert changed(replays).collect()
    assert {json.loads(row.value)["count"] for row in ocsf(older).collect()} == {MOST}


@pytest.mark.parametrize("is_ascii", [True, False])
def test_attack_ingest_takes_no_huge_count(session: "SparkSession", tmp_path: Path, is_ascii: bool) -> None:
    """By columns, and line by line (a line beyond ASCII is judged so)."""
    (tmp_path / "made").mkdir()
    good = line(event_id="a" * 32, attempts=MOST, user="eve" if is_ascii else "eve\u00e9")
    bad = [
        line(event_id="b" * 32, attempts=MOST + 1),
        line(event_id="c" * 32, stage="audit", reason="events_lost", lost=MOST + 1),
    ]
    file = tmp_path / "made" / "denials-1.jsonl"
    texts = [json.dumps(json.loads(text), ensure_ascii=is_ascii, separators=(",", ":")) for text in (good, *bad)]
    file.write_text("".join(f"{text}\n" for text in texts), "utf-8")
    table = table_of(session, file)
    assert [row.event_id for row in read_events(session, table).collect()] == ["a" * 32]
    assert {row.reason.partition(":")[0] for row in read_quarantine(session, table).collect()} == {"attempts", "lost"}
