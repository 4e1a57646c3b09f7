"""What candidate policies would have decided otherwise, counted (issue 5, Shadow)."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from literal_events import line, shadow_line, table_of

pytest.importorskip("pyspark")

from spark.jobs import reports
from spark.jobs.denials import DENIALS
from spark.jobs.reports import Report
from spark.jobs.shadow import kind
from spark.tables import _summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

OTHER = "ef" * 32
NO_RULE = {"item": None, "file": None, "line": None, "vhost": None, "group": None}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("shadow") / "denials-1.jsonl"
    lines = [
        line(event_id="1" * 32),
        line(event_id="2" * 32, reason="events_lost", stage="audit", lost=7),
        shadow_line(event_id="3" * 32),
        shadow_line(event_id="4" * 32, shadow={"count": 40}, time="2026-11-20T15:00:00.000000Z"),
        shadow_line(event_id="4" * 32, shadow={"count": 40}, time="2026-11-20T15:00:00.000000Z"),
        shadow_line(
            event_id="5" * 32, decision="shadow_allow", reason="no_vhost", user="bob", vhost=None,
            requested_vhost="shop", shadow={"reason": "allowed", **NO_RULE, "ruleset_digest": OTHER, "count": 2},
        ),
        shadow_line(
            event_id="6" * 32, decision="shadow_error", reason="invalid_policy", stage="policy", user=None,
            shadow={"reason": "invalid_policy"},
        ),
    ]  # fmt: skip
    file.write_text("".join(f"{text}\n" for text in lines))
    return file


@pytest.fixture(scope="module")
def report(session: "SparkSession", file: Path) -> Report:
    return reports.report(session, table_of(session, file), kind(), out=file.parent)


def test_equal_decisions_told_as_one_event_count_each(report: Report) -> None:
    assert report.totals == {"would_deny": 41, "would_allow": 2, "errors": 1, "shadow_events": 4, "denials": 1}
    assert (report.lines, report.duplicates, report.quarantined, report.lost) == (7, 1, 0, 7)


def test_they_are_counted_by_reason_rule_vhost_user_host_address_and_candidate(report: Report) -> None:
    def rows(name: str) -> list[tuple[object, ...]]:
        return [row[:-2] for row in report.tables[f"shadow_by_{name}"].rows]

    assert rows("reason") == [("allowed", "target_not_allowed", 41, 0), ("no_vhost", "allowed", 0, 2)]
    assert rows("rule") == [("acme", "staff", "targets", "next.json", 7, 41, 0), ("shop", None, None, None, None, 0, 2)]
    assert rows("vhost") == [("acme", 41, 0), ("shop", 0, 2)]
    assert rows("user") == [("eve", 41, 0), ("bob", 0, 2)]
    assert rows("host") == [("192.0.2.7", 41, 2)]
    assert rows("address") == [("send", "b.c", 41, 2)]
    assert rows("candidate") == [("cd" * 32, 41, 0), (OTHER, 0, 2)]
    assert report.tables["shadow_by_user"].columns == ("user", "would_deny", "would_allow", "first", "last")
    assert report.tables["shadow_by_user"].rows[0][3:] == ("2026-11-20T14:05:06.000007Z", "2026-11-20T15:00:00.000000Z")


def test_one_candidate_is_asked_for_by_the_beginning_of_its_digest(session: "SparkSession", file: Path) -> None:
    report = reports.report(session, table_of(session, file), kind("ef"))
    assert (report.totals["would_deny"], report.totals["would_allow"]) == (0, 2)
    assert report.tables["shadow_by_candidate"].rows[0][0] == OTHER
    assert len(report.tables["shadow_by_candidate"].rows) == 1


def test_they_are_no_denials(session: "SparkSession", file: Path) -> None:
    report = reports.report(session, table_of(session, file), DENIALS)
    assert report.totals == {"denials": 1, "repeated": 0, "shadow_events": 4, "changes": 0}
    assert [row[:2] for row in report.tables["by_user"].rows] == [("eve", 1)]
    # Every line is in the balance: the seventh is the events_lost line.
    assert report.totals["denials"] + report.totals["shadow_events"] + report.duplicates + 1 == report.lines
    assert _summary(report).startswith("1 denial and 4 events of candidate policies in 7 lines of 1 file; 1 duplicate;")


def test_the_first_lines_say_what_was_found_and_what_failed(report: Report) -> None:
    assert _summary(report).splitlines()[:3] == [
        "41 decisions that a candidate policy would have denied, 2 that it would have allowed; 4 events of candidates "
        "and 1 denial in 7 lines of 1 file; 1 duplicate; 0 quarantined",
        "WARNING: 1 time a candidate could not be loaded or asked",
        "WARNING: 7 events could not be written by the routers: counts are too low",
    ]


def test_reports_of_both_kinds_may_be_in_one_folder(report: Report, file: Path) -> None:
    names = {path.name for path in file.parent.iterdir()} - {file.name, "quarantine.parquet", "quarantine.csv"}
    assert all(name.startswith("shadow_") for name in names)
    assert {"shadow_summary.json", "shadow_by_rule.parquet", "shadow_by_rule.csv"} <= names
