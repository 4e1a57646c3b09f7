"""Files become a table: every line once, whatever stops in between (issue 15)."""

import gzip
import json
import os
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from literal_events import EVENT, line

pytest.importorskip("pyspark")

import pyarrow as pa

from spark import ingest
from spark.event_table import read_events, read_quarantine
from spark.folders import UnusableError
from spark.lines import commit, files, source
from spark.lines.part import MAX_PLACES, Part
from spark.lines.part import ingest as ingest_part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def event(number: int, **more: object) -> str:
    second = f"{number // 60 % 60:02d}:{number % 60:02d}"
    return line(**{"event_id": f"{number:032x}", "sequence": number, "time": f"2026-11-20T14:{second}.000000Z", **more})


def write(path: Path, *texts: str, tail: str = "") -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{text}\n" for text in texts) + tail)


def take(folder: Path, table: Path, batch: str = "a") -> commit.Sums:
    """As the tasks and the driver do it, without Spark between them."""
    staging = table / f"staging-{batch}"
    staging.mkdir(parents=True)
    reader = source.AuditFiles(source.Reading(folder=folder, staging=staging, part_bytes=2000).options()).reader(
        pytest.importorskip("pyspark.sql.types").StructType()
    )
    made = [row for share in reader.partitions() for rows in reader.read(share) for row in rows.to_pylist()]
    return commit.commit(table, batch, made)


def ids(table: Path) -> list[str]:
    import pyarrow.parquet as pq

    paths = sorted(table.glob("events/*/*/*.parquet"))
    return sorted(one for path in paths for one in pq.read_table(path, partitioning=None)["event_id"].to_pylist())


def test_every_line_is_an_event_a_duplicate_or_in_quarantine(tmp_path: Path) -> None:
    texts = [event(number) for number in range(20)]
    write(tmp_path / "in" / "a.jsonl", *texts, event(3), "no event", tail=event(30)[:50])
    sums = take(tmp_path / "in", tmp_path / "table")
    assert sums == commit.Sums(files={"a.jsonl": 23}, lines=23, events=20, duplicates=1, quarantined=2)
    assert ids(tmp_path / "table") == [f"{number:032x}" for number in range(20)]
    assert commit.totals(tmp_path / "table") == sums


def test_gzip_and_zstandard_and_plain_files_are_read_alike(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder / "a.jsonl", event(1))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(f"{event(2)}\n".encode()))
    (folder / "c.jsonl.zst").write_bytes(pa.compress(f"{event(3)}\n".encode(), codec="zstd", asbytes=True))
    sums = take(folder, tmp_path / "table")
    assert sums.files == {"a.jsonl": 1, "b.jsonl": 1, "c.jsonl": 1}
    assert len(ids(tmp_path / "table")) == 3


def test_a_torn_compressed_file_is_in_quarantine_not_left_out(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    packed = gzip.compress("".join(f"{event(number)}\n" for number in range(50)).encode())
    (tmp_path / "in" / "a.jsonl.gz").write_bytes(packed[:-20])
    (tmp_path / "in" / "b.jsonl.gz").write_bytes(b"this is no gzip")
    sums = take(tmp_path / "in", tmp_path / "table")
    assert sums.quarantined == 2


def test_a_batch_that_is_tried_again_is_there_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "in" / "a.jsonl", *[event(number) for number in range(30)])
    table = tmp_path / "table"
    # The driver dies when the files are moved and the batch is not said to be there.
    with monkeypatch.context() as broken:
        broken.setattr(commit, "_write_whole", _die)
        with pytest.raises(KeyboardInterrupt):
            take(tmp_path / "in", table)
    assert len(ids(table)) == 30
    for _ in range(2):
        for staging in table.glob("staging-*"):
            staging.rmdir()
        assert take(tmp_path / "in", table).events == 30
        assert len(ids(table)) == 30


def _die(*_: object) -> None:
    raise KeyboardInterrupt


def test_the_same_lines_under_another_name_are_duplicates(tmp_path: Path) -> None:
    texts = [event(number) for number in range(30)]
    write(tmp_path / "in" / "a.jsonl", *texts)
    assert take(tmp_path / "in", tmp_path / "table", "a").events == 30
    write(tmp_path / "other" / "copy.jsonl", *texts[10:], event(40))
    again = take(tmp_path / "other", tmp_path / "table", "b")
    assert (again.events, again.duplicates) == (1, 20)
    assert len(ids(tmp_path / "table")) == 31


def test_attack_lines_of_made_up_routers_do_not_become_a_file_each(tmp_path: Path) -> None:
    texts = [event(number, router=f"r{number}") for number in range(MAX_PLACES + 5)]
    write(tmp_path / "in" / "a.jsonl", *texts)
    (tmp_path / "staging").mkdir()
    whole = Part(
        name="a.jsonl", path=tmp_path / "in" / "a.jsonl", start=0, end=None, router=None, staging=tmp_path / "staging"
    )
    lines, written = ingest_part(whole)
    assert lines == MAX_PLACES + 5
    assert len(written) == MAX_PLACES + 1
    assert written[-1].rows == 5


def test_attack_a_file_without_line_feeds_does_not_take_all_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_HELD_BYTES", 1000)
    monkeypatch.setattr(files, "BLOCK_BYTES", 500)
    (tmp_path / "a.jsonl").write_bytes(b"x" * 100_000 + b"\n" + b"{}\n")
    found = list(files.blocks(tmp_path / "a.jsonl", 0, None))
    assert max(len(block) for _, block in found) <= 2001
    assert found[-1] == (100_001, b"{}\n")


@pytest.mark.parametrize("packing", ["plain", "gz", "zst"])
def test_parts_of_a_file_are_its_lines_wherever_they_are_cut(tmp_path: Path, packing: str) -> None:
    data = b"".join(b"%d" % number * (number % 40) + b"\n" for number in range(60)) + b"tail"
    path = tmp_path / "a.jsonl"
    if packing == "plain":
        path.write_bytes(data)
    elif packing == "gz":
        (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(data))
    else:
        (tmp_path / "a.jsonl.zst").write_bytes(pa.compress(data, codec="zstd", asbytes=True))
    for step in (1, 7, 40, 41, 500):
        cuts = [*range(0, len(data), step), None]
        parts = [block for low, high in pairwise(cuts) for block in files.blocks(path, low or 0, high)]
        assert b"".join(block for _, block in parts) == data + b"\n"


def offsets(folder: Path, start: source.Offset, *, most: int | None = None) -> source.Offset:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

    reader = source.StreamReader(source.Reading(folder=folder, staging=folder))
    return reader.latestOffset(start, ReadAllAvailable() if most is None else ReadMaxBytes(most))


def test_a_line_under_way_is_left_until_it_is_whole_or_the_file_is_still(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path, "one", tail="two")
    assert offsets(tmp_path, {}) == {"a.jsonl": {"bytes": 4, "packed": 0}}
    os.utime(path, (0, time.time() - files.STILL_S - 1))
    assert offsets(tmp_path, {}) == {"a.jsonl": {"bytes": 7, "packed": 0}}


def test_what_was_read_of_a_file_is_not_read_again_when_it_is_compressed(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    end = offsets(tmp_path, {"a.jsonl": {"bytes": 4, "packed": 0}})
    size = (tmp_path / "a.jsonl.gz").stat().st_size
    assert end == {"a.jsonl": {"bytes": 4, "packed": size}}
    assert offsets(tmp_path, end) == end
    reader = source.StreamReader(source.Reading(folder=tmp_path, staging=tmp_path))
    (share,) = reader.partitions({"a.jsonl": {"bytes": 4, "packed": 0}}, end)
    assert list(files.blocks(share.value.path, share.value.start, share.value.end)) == [(4, b"two\n")]


def test_a_batch_of_a_stream_is_of_so_many_bytes(tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path / f"{name}.jsonl", "x" * 99)
    first = offsets(tmp_path, {}, most=150)
    assert sorted(first) == ["a.jsonl", "b.jsonl"]
    assert sorted(offsets(tmp_path, first, most=150)) == ["a.jsonl", "b.jsonl", "c.jsonl"]


@pytest.mark.spark
def test_a_stream_that_is_stopped_anywhere_loses_and_repeats_nothing(
    session: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, table = tmp_path / "in [1]", tmp_path / "table {x}"
    write(folder / "a.jsonl", *[event(number) for number in range(40)])
    seen: list[commit.Sums] = []

    def dying(when: str) -> Callable[..., commit.Sums]:
        real = commit.commit

        def die(*arguments: object) -> commit.Sums:
            if when == "after":
                real(*arguments)  # type: ignore[arg-type]
            raise RuntimeError("the driver is killed")

        return die

    # Before the batch is in, and when it is in and the checkpoint does not know.
    for when in ("before", "after"):
        with monkeypatch.context() as broken:
            broken.setattr(ingest, "commit", dying(when))
            with pytest.raises(Exception, match="the driver is killed"):
                ingest.stream(session, folder, table)
    ingest.stream(session, folder, table, told=seen.append)
    assert [sums.events for sums in seen] == [40]
    # The file grows, is compressed half read, and another begins.
    with (folder / "a.jsonl").open("a") as stream:
        stream.write("".join(f"{event(number)}\n" for number in range(40, 50)) + "no event\n")
    (folder / "a.jsonl.gz").write_bytes(gzip.compress((folder / "a.jsonl").read_bytes()))
    (folder / "a.jsonl").unlink()
    write(folder / "b.jsonl", *[event(number) for number in range(50, 60)])
    ingest.stream(session, folder, table, told=seen.append)
    ingest.stream(session, folder, table, told=seen.append)
    assert sum(sums.events for sums in seen) == 60
    assert (len(seen), sum(sums.duplicates for sums in seen)) == (2, 0)
    rows = read_events(session, table).select("event_id", "sequence", "file", "offset").collect()
    assert sorted(row.sequence for row in rows) == list(range(60))
    assert {row.file for row in rows} == {"a.jsonl", "b.jsonl"}
    (bad,) = read_quarantine(session, table).collect()
    assert (bad.file, bad.reason, bad.line) == ("a.jsonl", "not one whole JSON object", "no event")
    assert bad.offset == sum(len(event(number)) + 1 for number in range(50))


@pytest.mark.spark
def test_logs_of_the_c_router_are_in_the_same_table(session: "SparkSession", tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.jsonl", event(1))
    write(
        tmp_path / "in" / "router.log.1",
        "2026-11-20 15:08:13.608655 +0100 SERVER (notice) Operational, 4 Threads Running (process ID 1)",
        "2026-11-20 15:08:14.608655 +0100 POLICY (info) DENY AMQP Open for user 'eve', rhost '192.0.2.7', "
        "vhost 'acme': No policy defined for vhost",
    )
    sums = ingest.once(session, tmp_path / "in", tmp_path / "table", router="QDR.A")
    assert (sums.lines, sums.events, sums.quarantined) == (3, 2, 0)
    rows = {row.source: row for row in read_events(session, tmp_path / "table").collect()}
    assert (rows["qdrouterd"].router, rows["qdrouterd"].reason, rows["qdrouterd"].start) == ("QDR.A", "no_vhost", None)
    assert rows["palisade"].event_id == f"{1:032x}"


def test_a_folder_of_other_things_does_not_become_a_table(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_text("")
    with pytest.raises(UnusableError, match="holds no table"), ingest._open(tmp_path):
        pass


def test_two_writers_do_not_share_a_table(tmp_path: Path) -> None:
    with (
        ingest._open(tmp_path / "table"),
        pytest.raises(UnusableError, match="another qdaudit writes to it"),
        ingest._open(tmp_path / "table"),
    ):
        pass


def test_a_table_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    with ingest._open(tmp_path / "table"):
        pass
    (tmp_path / "table" / "table.json").write_text(json.dumps({"version": 99}))
    with pytest.raises(UnusableError, match="version 99"), ingest._open(tmp_path / "table"):
        pass


def test_events_of_every_version_of_the_schema_are_in_one_table(tmp_path: Path) -> None:
    first = {name: value for name, value in EVENT.items() if name not in ("start", "sequence")}
    old = json.dumps({**first, "schema_version": 1, "event_id": "a" * 32})
    write(tmp_path / "in" / "a.jsonl", old, event(2, schema_version=2), event(3, schema_version=3), event(4))
    assert take(tmp_path / "in", tmp_path / "table").events == 4
