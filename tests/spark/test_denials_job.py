"""From files to reports (issue 2, part 8: Audit)."""

import json
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from literal_events import DELETED, FOLDED, line, table_of

pytest.importorskip("pyspark")

from spark import event_table
from spark.jobs import reports
from spark.jobs.denials import DENIALS
from spark.jobs.reports import Continuity, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files in a folder whose name Hadoop would take for a pattern."""
    folder = tmp_path_factory.mktemp("audit") / "a[b] {c,d}* é"
    folder.mkdir()
    (folder / "denials-1.jsonl").write_bytes(
        b"\n".join(
            [
                line(event_id="1" * 32, user="eve").encode(),
                line(event_id="2" * 32, user="=1+1", reason="no_vhost", vhost=None).encode() + b"\r",
                line(event_id="1" * 32, user="eve").encode(),
                line(event_id="3" * 32).encode().replace(b'"eve"', b'"e\xff\xfee"'),
                line(event_id="4" * 32, reason="events_lost", stage="audit", lost=7).encode(),
                b'{"schema_version": 1, "event_id": "torn',
            ]
        )
    )
    (folder / "denials-2.jsonl").write_text(
        line(event_id="5" * 32, user='a\n"b', time="2026-11-20T15:00:00.000000Z") + "\n" + "x" * 2_000_000 + "\n"
    )
    return folder


@pytest.fixture(scope="module")
def out(folder: Path) -> Path:
    out = folder.parent / "out [1]"
    out.mkdir()
    return out


@pytest.fixture(scope="module")
def report(session: "SparkSession", folder: Path, out: Path) -> Report:
    return reports.report(session, table_of(session, *sorted(folder.iterdir())), DENIALS, out=out)


def test_every_line_is_accounted_for(report: Report) -> None:
    assert (report.files, report.lines) == (2, 8)
    assert (report.totals["denials"], report.duplicates, report.quarantined) == (3, 1, 3)
    assert report.lost == 7
    assert report.continuity == Continuity(starts=1, endless=1)
    # The eighth is the events_lost line.
    assert report.totals["denials"] + report.duplicates + report.quarantined + 1 == report.lines


def test_an_event_counts_as_often_as_it_stands_for(session: "SparkSession", tmp_path: Path) -> None:
    numbered = [
        line(event_id=f"{number:032x}", sequence=number, reason="banned", stage="accept", **more)
        for number, more in enumerate(({}, {"attempts": 999}))
    ]
    ending = line(event_id="f" * 32, sequence=2, reason="log_closed", stage="audit")
    (tmp_path / "denials-1.jsonl").write_text("\n".join([*numbered, ending]) + "\n")
    made = reports.report(session, table_of(session, tmp_path / "denials-1.jsonl"), DENIALS)
    assert (made.totals["denials"], made.totals["repeated"]) == (1000, 998)
    assert made.heading == "1000 denials (998 of them as numbers)"
    assert made.tables["by_reason"].rows[0][:2] == ("banned", 1000)
    assert made.continuity == Continuity(starts=1)


def test_a_flood_counts_as_often_as_it_stands_for_and_has_a_table(session: "SparkSession", tmp_path: Path) -> None:
    texts = [
        line(event_id="1" * 32, sequence=0),
        line(event_id="2" * 32, sequence=1, attempts=500, folded=FOLDED, address=None),
        line(event_id="3" * 32, sequence=2, attempts=30, folded={**FOLDED, "last": "2026-11-20T14:06:00.000000Z"}),
        line(event_id="4" * 32, sequence=3, attempts=7, folded={**FOLDED, "owner": "user"}, connection=None),
        line(event_id="5" * 32, sequence=4, reason="file_deleted", stage="audit", deleted=DELETED),
        line(event_id="6" * 32, sequence=5, reason="log_closed", stage="audit"),
        line(event_id="7" * 32, schema_version=3, start="2" * 32),  # of an older router
    ]
    (tmp_path / "denials-1.jsonl").write_text("\n".join(texts) + "\n")
    made = reports.report(session, table_of(session, tmp_path / "denials-1.jsonl"), DENIALS)
    assert (made.totals["denials"], made.totals["repeated"], made.quarantined) == (539, 534, 0)
    assert made.deleted_files == 1
    assert made.tables["by_user"].rows[0][:2] == ("eve", 539)
    floods = made.tables["floods"]
    assert floods.columns == (
        "owner", "router", "connection", "user", "remote_host", "stage", "reason", "denials", "first", "last",
    )  # fmt: skip
    whose = ("eve", "192.0.2.7", "attach", "target_not_allowed")
    assert floods.rows == (
        ("connection", "R1", 3, *whose, 530, "2026-11-20T14:05:01.000000Z", "2026-11-20T14:06:00.000000Z"),
        ("user", "R1", None, *whose, 7, "2026-11-20T14:05:01.000000Z", "2026-11-20T14:05:05.500000Z"),
    )


def test_denials_are_reported_by_reason_user_host_vhost_and_hour(report: Report) -> None:
    def counts(name: str) -> list[tuple[object, ...]]:
        return [row[:2] for row in report.tables[name].rows]

    assert counts("by_reason") == [("target_not_allowed", 2), ("no_vhost", 1)]
    assert counts("by_user") == [("=1+1", 1), ('a\n"b', 1), ("eve", 1)]
    assert counts("by_host") == [("192.0.2.7", 3)]
    assert counts("by_vhost") == [("acme", 2), (None, 1)]
    assert counts("by_hour") == [("2026-11-20T14:00:00Z", 2), ("2026-11-20T15:00:00Z", 1)]
    assert report.tables["by_reason"].columns == ("reason", "denials", "first", "last")
    assert report.tables["by_reason"].rows[0][2:] == ("2026-11-20T14:05:06.000007Z", "2026-11-20T15:00:00.000000Z")


def test_bad_lines_are_reported_by_file_and_reason(report: Report) -> None:
    assert report.tables["quarantine"].rows == (
        ("denials-1.jsonl", "not UTF-8", 1),
        ("denials-1.jsonl", "not one whole JSON object", 1),
        ("denials-2.jsonl", "longer than 262144 bytes", 1),
    )


def test_parquet_holds_what_the_report_says(session: "SparkSession", report: Report, out: Path) -> None:
    by_user = event_table.hadoop_path(out / "by_user.parquet")
    assert {(row.user, row.denials) for row in session.read.parquet(by_user).collect()} == {
        ("eve", 1), ("=1+1", 1), ('a\n"b', 1),
    }  # fmt: skip
    quarantine = session.read.parquet(event_table.hadoop_path(out / "quarantine.parquet")).collect()
    assert {(row.file, len(row.line), row.line_bytes) for row in quarantine} == {
        ("denials-1.jsonl", 39, 39),
        ("denials-1.jsonl", len(line()) + 1, len(line()) + 1),
        ("denials-2.jsonl", 4096, 2_000_000),
    }
    assert any("e\ufffd\ufffde" in row.line for row in quarantine)


def test_csv_is_one_file_that_a_spreadsheet_does_not_run(report: Report, out: Path) -> None:
    part = out / "by_user.csv"
    times = "2026-11-20T14:05:06.000007Z,2026-11-20T14:05:06.000007Z"
    assert part.read_text("utf-8") == (
        f"user,denials,first,last\n'=1+1,1,{times}\n"
        f'"a\n""b",1,2026-11-20T15:00:00.000000Z,2026-11-20T15:00:00.000000Z\neve,1,{times}\n'
    )


def test_the_summary_is_json_and_the_same(report: Report, out: Path) -> None:
    assert json.loads((out / "summary.json").read_text()) == report.as_json()


def test_reports_are_for_their_owner_alone(report: Report, out: Path) -> None:
    (part,) = (out / "by_user.parquet").glob("part-*.parquet")
    assert stat.S_IMODE(part.stat().st_mode) == 0o600
    assert stat.S_IMODE((out / "by_user.parquet").stat().st_mode) == 0o700


def test_no_files_are_a_report_of_zero(session: "SparkSession", tmp_path: Path) -> None:
    report = reports.report(session, tmp_path / "table", DENIALS, out=tmp_path)
    assert (report.files, report.lines, report.totals["denials"], report.lost, report.quarantined) == (0, 0, 0, 0, 0)
    assert all(table.rows == () for table in report.tables.values())
    part = tmp_path / "by_user.csv"
    assert part.read_text() == "user,denials,first,last\n"


def test_attack_a_user_name_per_attempt_does_not_flood_the_report(
    session: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "MAX_SHOWN_ROWS", 3)
    path = tmp_path / "denials-1.jsonl"
    path.write_text("".join(line(event_id=f"{n:032x}", user=f"u{n}") + "\n" for n in range(5)))
    table = reports.report(session, table_of(session, path), DENIALS).tables["by_user"]
    assert len(table.rows) == 3
    assert not table.is_complete


def test_spark_listens_on_loopback_alone(session: "SparkSession") -> None:
    gateway = session.sparkContext._gateway
    assert gateway is not None
    pid = gateway.proc.pid
    sockets = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(fd))
        except FileNotFoundError:
            continue
        if found:
            sockets.add(found[1])
    listening = [
        fields[1].split(":")[0]
        for table in ("tcp", "tcp6")
        for fields in map(str.split, Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:])
        if fields[3] == "0A" and fields[9] in sockets
    ]
    assert listening
    assert set(listening) <= {"0100007F", "0000000000000000FFFF00000100007F"}
