"""Findings of `detect --out` read again by `report --findings` (issue 15)."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark import cli
from spark.detectors.kept import KeptFindingsError, frame_of, parse
from spark.verbs.running import json_line, rows_of

FINDING: dict[str, Any] = {
    "finding_id": "f1",
    "detector": "brute_force",
    "severity": "high",
    "first": "2026-01-15T11:07:51.692128Z",
    "last": "2026-01-15T11:14:58.000000Z",
    "count": 23,
    "distinct": 1,
    "router": "R1",
    "user": None,
    "remote_host": "192.0.2.7",
    "vhost": None,
    "reason": "sasl_failed",
    "ruleset_digest": None,
    "routers": ["R1"],
    "users": ["alice", "=cmd|' /C calc'!A0", "\u2028"],
    "hosts": ["192.0.2.7"],
    "addresses": [],
    "what": ["alice"],
    "events": 23,
    "evidence": ["e1", "e2"],
}


def line(**members: Any) -> str:
    return json_line({**FINDING, **members})


def test_what_was_written_is_read(session: SparkSession) -> None:
    text = f"{line()}\n{line(finding_id='f2', user='bob')}\n"
    rows = parse(text)
    assert rows[0]["first"] == datetime(2026, 1, 15, 11, 7, 51, 692128, UTC)
    again, is_complete = rows_of(frame_of(session, rows))
    assert is_complete
    assert "".join(f"{json_line(row)}\n" for row in again) == text
    assert rows_of(frame_of(session, parse(""))) == ([], True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "line 1 is not JSON"),
        ("[" * 100_000, "line 1 is not JSON"),
        (f"{line()}\n[]\n", "line 2 is no finding of `qdaudit detect --out`: it has to be an object"),
        (line(more=1), "line 1 is no finding of `qdaudit detect --out`, which has no member 'more'"),
        (
            json.dumps({"detector": "brute_force"}),
            "line 1 is no finding of `qdaudit detect --out`: finding_id is missing",
        ),
        (line(first="yesterday"), "line 1: first has to be a time with its zone"),
        (line(last="2026-01-15T11:14:58"), "last has to be a time with its zone"),
        (line(first="0001-01-01T00:00:00+14:00"), "first has to be a time"),
        (line(user="\ud800"), "user has to be a text"),
        (line(what=["\udfff"]), "what has to be a list of texts"),
        (line(first=None), "first has to be a time"),
        (line(count=True), "count has to be a whole number from 0 on"),
        (line(events=-1), "events has to be a whole number"),
        (line(distinct=1 << 63), "distinct has to be a whole number"),
        (line(users=["a", None]), "users has to be a list of texts"),
        (line(evidence="e1"), "evidence has to be a list of texts"),
        (line(severity=None), "severity has to be a text"),
        (line(user=5), "user has to be a text"),
    ],
)
def test_what_is_no_finding_is_refused(text: str, why: str) -> None:
    with pytest.raises(KeptFindingsError, match=why):
        parse(text)


@pytest.mark.parametrize(("content", "said"), [(None, "cannot be read"), (b"{}\n", "line 1 is no finding")])
def test_a_file_that_cannot_be_used_ends_the_report(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes | None, said: str
) -> None:
    """One sentence, before Spark is started and before --out is made."""
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "table.json").write_text('{"version": 1}')
    file = tmp_path / "findings.jsonl"
    if content is not None:
        file.write_bytes(content)
    arguments = ("report", str(tmp_path / "table"), "--out", str(tmp_path / "out"), "--findings", str(file))
    assert cli.main(list(arguments)) == 3
    err = capsys.readouterr().err
    assert str(file) in err
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("time", [("--since", "2026-01-15T11:10:00Z"), ("--until", "2026-01-15T11:14:58Z")])
def test_findings_of_another_time_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, time: tuple[str, str]
) -> None:
    """The page said that it was of a time, and showed what had been outside of it."""
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "table.json").write_text('{"version": 1}')
    file = tmp_path / "findings.jsonl"
    file.write_text(f"{line()}\n")
    arguments = ("report", str(tmp_path / "table"), "--out", str(tmp_path / "out"), "--findings", str(file), *time)
    assert cli.main(list(arguments)) == 3
    err = capsys.readouterr().err
    assert "finding 1 is of 2026-01-15T11:07:51.692128+00:00 to 2026-01-15T11:14:58+00:00" in err
    assert err.count("\n") == 1
