"""Exports: a spreadsheet runs nothing, and OCSF has what a SIEM asks for (issue 15)."""

import csv
import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from literal_events import change_line, frame, line, shadow_line

pytest.importorskip("pyspark")

from spark.jobs import reports
from spark.jobs.export import write_ocsf, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FORMULAS = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", " =1", "\r=1", "\uff1d1+1", "=cmd|' /C calc'!A0")


def test_attack_no_text_is_a_formula_in_a_spreadsheet(session: "SparkSession", tmp_path: Path) -> None:
    rows = [(name, [name, "b"], 5) for name in FORMULAS]
    made = session.createDataFrame(rows, "user string, users array<string>, n bigint")
    place = write_table(made, tmp_path, "t", "csv")
    with place.open(newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    assert [row["user"].lstrip()[0] for row in read] == ["'"] * len(FORMULAS)
    assert [row["users"][0] for row in read] == ["'"] * len(FORMULAS)
    # The others keep the texts as they are.
    parquet = session.read.parquet(str(write_table(made, tmp_path, "t", "parquet")))
    assert [row.user for row in parquet.collect()] == list(FORMULAS)
    lines = write_table(made, tmp_path, "t", "json").read_text("utf-8").splitlines()
    assert [json.loads(text)["user"] for text in lines] == list(FORMULAS)
    assert place.stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv", "t.json", "t.parquet"]


INSIDE = ("a;=1+1;", 'a";=1+1;"', "a; =1", "a\n=1", "a\r\n@x", ";;\uff1d1", "a;'=1")


@pytest.mark.parametrize("by_report", [False, True])
def test_attack_no_text_is_a_formula_where_semicolons_separate_cells(
    session: "SparkSession", tmp_path: Path, by_report: bool
) -> None:
    """In half of the world a spreadsheet begins a cell behind each, and behind each line break, quoted or not."""
    made = session.createDataFrame([(name,) for name in (*FORMULAS, *INSIDE)], "user string")
    reports._write(made, tmp_path, "t") if by_report else write_table(made, tmp_path, "t", "csv")
    text = (tmp_path / "t.csv").read_bytes().decode("utf-8")
    cells = [cell for row in re.split("[\r\n]", text) for cell in row.replace('"', "").split(";")]
    assert [cell for cell in cells if re.match(r"\s*[=+\-@\uff1d]", cell)] == []
    assert len(list(csv.reader(io.StringIO(text)))) == 1 + len(FORMULAS) + len(INSIDE)


def test_events_are_ocsf(session: "SparkSession", tmp_path: Path) -> None:
    lines = [
        line(event_id="1", stage="sasl", reason="sasl_failed"),
        line(event_id="2", attempts=9, address='"}\n{"x'),
        line(event_id="3", stage="accept", reason="banned", user=None),
        change_line(event_id="4"),
        shadow_line(event_id="5"),
        line(event_id="6", stage="audit", reason="log_closed"),
    ]
    texts = write_ocsf(frame(session, *lines), tmp_path).read_text("utf-8").splitlines()
    found = {each["metadata"]["uid"]: each for each in map(json.loads, texts)}
    assert {uid: (each["class_uid"], each["type_uid"], each["status_id"]) for uid, each in found.items()} == {
        "1": (3002, 300201, 2),
        "2": (3003, 300399, 2),
        "3": (4001, 400105, 2),
        "4": (6003, 600301, 1),
    }
    assert found["1"]["time"] == 1795183506000
    assert found["1"]["src_endpoint"] == {"ip": "192.0.2.7", "port": 40000}
    assert found["2"]["count"] == 9
    assert found["2"]["unmapped"]["address"] == '"}\n{"x'
    assert "user" not in found["3"]
