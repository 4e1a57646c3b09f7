"""Who changed what by management, and who tried to (issue 9, rights)."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from literal_events import FOLDED, change_line, line, table_of

pytest.importorskip("pyspark")

from spark.jobs import reports
from spark.jobs.changes import CHANGES
from spark.jobs.denials import DENIALS
from spark.jobs.reports import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
BAN = "org.apache.qpid.dispatch.ban"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("changes") / "denials-1.jsonl"
    refused = {"decision": "deny", "reason": "management_not_allowed", "user": "monitor"}
    lines = [
        line(event_id="1" * 32),
        line(event_id="2" * 32, stage="policy", decision="allow", reason="allowed", rule=None),
        change_line(event_id="3" * 32, user="chief"),
        change_line(event_id="4" * 32, user="chief", management={"status": 400}),
        change_line(event_id="5" * 32, **refused, management={"status": 403}),
        change_line(event_id="6" * 32, **refused, management={"status": 403}),
    ]
    file.write_text("".join(f"{text}\n" for text in lines))
    return file


@pytest.fixture(scope="module")
def report(session: "SparkSession", file: Path) -> Report:
    return reports.report(session, table_of(session, file), CHANGES, out=file.parent)


def test_requests_are_counted_by_what_came_of_them(report: Report) -> None:
    assert report.totals == {"asked": 4, "refused": 2, "denials": 3}
    assert report.heading == "4 requests for changes, 2 of them refused; 1 other denial"
    rows = {name: [row[:-2] for row in table.rows] for name, table in report.tables.items()}
    assert rows["changes_by_user"] == [("chief", 1, 1, 0), ("monitor", 0, 0, 2)]
    assert rows["changes_by_entity"] == [("CREATE", BAN, "b", 1, 1, 2)]
    assert rows["changes_refused"] == [("monitor", "management_not_allowed", "CREATE", BAN, 0, 0, 2)]
    assert report.tables["changes_by_user"].columns == ("user", "done", "failed", "refused", "first", "last")


def test_what_was_allowed_is_no_denial_and_stands_in_the_balance(session: "SparkSession", file: Path) -> None:
    report = reports.report(session, table_of(session, file), DENIALS)
    assert report.totals == {"denials": 3, "repeated": 0, "shadow_events": 0, "changes": 3}
    assert report.heading == "3 denials and 3 events of changes"


def test_a_flood_of_requests_counts_as_often_as_it_stands_for(session: "SparkSession", tmp_path: Path) -> None:
    refused = {"decision": "deny", "reason": "management_not_allowed", "user": "monitor"}
    texts = [
        change_line(event_id="1" * 32, **refused, management={"status": 403}),
        change_line(event_id="2" * 32, **refused, management={"status": 403}, attempts=40, folded=FOLDED),
        change_line(event_id="3" * 32, user="chief", management={"status": 400}, attempts=5, folded=FOLDED),
    ]
    (tmp_path / "denials-1.jsonl").write_text("\n".join(texts) + "\n")
    report = reports.report(session, table_of(session, tmp_path / "denials-1.jsonl"), CHANGES)
    assert report.totals == {"asked": 46, "refused": 41, "denials": 41}
    rows = [row[:-2] for row in report.tables["changes_by_user"].rows]
    assert rows == [("monitor", 0, 0, 41), ("chief", 0, 5, 0)]
