"""The table that reports read has the schema's members, of their types, and where each line came from (issue 15)."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from literal_events import frame, line, shadow_line

pytest.importorskip("pyspark")

from spark.event_table import PARTITIONS, read_events, router_dir
from spark.schemas import audit_event, event_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_it_has_the_members_of_the_schema_and_five_more() -> None:
    assert event_table().fieldNames() == [
        *audit_event().fieldNames(), "source", "file", "offset", "day", "router_dir",
    ]  # fmt: skip
    assert event_table()["time"].dataType.simpleString() == "timestamp"
    assert event_table()["rule"].dataType == audit_event()["rule"].dataType


@pytest.mark.parametrize("router", ["R1", "edge-7.example_com", "9", "a" * 100])
def test_a_plain_router_id_is_its_folder(router: str) -> None:
    assert router_dir(router) == router


@pytest.mark.parametrize("router", ["", "..", ".R", "a/b", "R 1", "é" * 256, "a" * 101, "R\n1", "~a", "a=b", "\ud800"])
def test_any_other_is_a_short_name_of_its_own(router: str) -> None:
    name = router_dir(router)
    assert name.startswith("~")
    assert len(name) <= 60
    assert name.isascii()
    assert "/" not in name
    assert name != router_dir(router + "x")


@pytest.mark.spark
def test_what_is_written_is_read_with_its_partitions(session: "SparkSession", tmp_path: Path) -> None:
    written = frame(session, line(event_id="1" * 32, router="007"), shadow_line(event_id="2" * 32, router="a/b"))
    written.write.partitionBy(*PARTITIONS).parquet(str(tmp_path / "events"))
    rows = {row.event_id: row for row in read_events(session, tmp_path).collect()}
    assert rows["1" * 32].router_dir == "007"
    assert rows["2" * 32].router == "a/b"
    assert rows["2" * 32].shadow["count"] == 1
    assert rows["1" * 32].day == date(2026, 11, 20)
    micros = read_events(session, tmp_path).selectExpr("unix_micros(time) AS at").first()
    assert micros is not None
    assert micros.at == round(datetime(2026, 11, 20, 14, 5, 6, 7, tzinfo=UTC).timestamp() * 1_000_000)


@pytest.mark.spark
def test_a_table_without_events_is_empty(session: "SparkSession", tmp_path: Path) -> None:
    empty = read_events(session, tmp_path)
    assert empty.count() == 0
    assert empty.schema == event_table()


@pytest.mark.spark
def test_members_that_are_newer_than_the_table_are_null(session: "SparkSession", tmp_path: Path) -> None:
    old = frame(session, line(event_id="1" * 32)).drop("folded", "granted", "deleted", "redecision")
    old.write.partitionBy(*PARTITIONS).parquet(str(tmp_path / "events"))
    row = read_events(session, tmp_path).first()
    assert row is not None
    assert (row.event_id, row.folded, row.granted) == ("1" * 32, None, None)
