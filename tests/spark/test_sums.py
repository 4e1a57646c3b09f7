"""Sums by Arrow, in pieces, are those of all events at once (issue 15)."""

import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from literal_events import FOLDED, frame, line, table_of

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual

from spark.event_table import read_events
from spark.sums import files
from spark.sums.cells import MOST_HASHES, Asked, cells
from spark.sums.files import DamagedFileError, opened, pieces, shares_of
from spark.sums.rows import COLUMNS, TEXTS
from spark.sums.trail import Trail, trail_of_events, trail_of_table
from spark.transforms import denials
from spark.transforms.continuity import continuity
from spark.transforms.events import LOGS_OWN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def made_up(count: int, *, seed: int) -> list[str]:
    """Lines of three routers over three days, some of them sums, some without names."""
    dice = random.Random(seed)
    lines = []
    for number in range(count):
        at = NOON + timedelta(minutes=dice.randrange(3 * 1440))
        members: dict[str, Any] = {
            "event_id": f"{number:032x}", "sequence": number, "router": dice.choice(["R1", "R2", "R3"]),
            "time": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "user": dice.choice(["eve", "bob", "\u00e9", None]),
            "remote_host": dice.choice(["192.0.2.7", "2001:db8::1"]), "connection": dice.choice([3, None]),
            "rule": dice.choice([None, {"vhost": "a", "group": None, "item": "b", "file": "c", "line": 7}]),
            "decision": dice.choice(["deny", "deny", "allow"]), "attempts": dice.choice([1, 1, 9]),
        }  # fmt: skip
        if members["attempts"] == 9:
            members |= {"folded": FOLDED, "address": None}
        lines.append(line(**members))
    return lines


@pytest.fixture(scope="module")
def table(session: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sums") / "made"
    folder.mkdir()
    lines = made_up(400, seed=7)
    for part in range(2):
        (folder / f"denials-{part}.jsonl").write_text("".join(f"{each}\n" for each in lines[part::2]), "utf-8")
    return table_of(session, *sorted(folder.iterdir()))


def reference(events: "DataFrame", *keys: str) -> "DataFrame":
    """The same by Spark alone."""
    rule = {f"rule_{name}": F.col(f"rule.{name}") for name in ("vhost", "group", "item", "file", "line")}
    denied = events.where(denials.is_denial()).withColumns({"hour": F.date_trunc("hour", "time"), **rule})
    return denied.groupBy(*keys).agg(
        F.sum(F.coalesce("attempts", F.lit(1))).alias("denials"),
        F.min("time").alias("first"),
        F.max("time").alias("last"),
    )


@pytest.mark.parametrize("name", sorted(denials.KEYS))
def test_a_table_is_counted_as_spark_counts_it(session: "SparkSession", table: Path, name: str) -> None:
    trail = trail_of_table(session, table, has_denials=True)
    expected = reference(read_events(session, table), *denials.KEYS[name])
    assertDataFrameEqual(denials.counted_by(trail, name), expected)


def test_of_a_time_only_its_denials_count_and_all_numbers(session: "SparkSession", table: Path) -> None:
    since, until = NOON + timedelta(hours=5), NOON + timedelta(hours=40)
    trail = trail_of_table(session, table, since=since, until=until, has_denials=True)
    assertDataFrameEqual(denials.counted_by(trail, "by_user"), reference(trail.events, "user"))
    whole = trail_of_table(session, table, has_denials=True)
    assertDataFrameEqual(continuity(trail), continuity(whole))
    assert 0 < trail.events.count() < whole.events.count() == 400


def rows_of(table: Path, tasks: int) -> list[dict[str, Any]]:
    asked = Asked(has_denials=True, seed=5)
    shares = shares_of(table, tasks)
    batches = (batch for share in shares for batch in cells(pieces(share, COLUMNS, TEXTS), asked, share))
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("tasks", [1, 2, 100])
def test_pieces_add_up_to_the_whole(table: Path, monkeypatch: pytest.MonkeyPatch, tasks: int) -> None:
    def added(rows: Sequence[dict[str, Any]]) -> tuple[Counter[Any], Counter[Any]]:
        events: Counter[Any] = Counter()
        requests: Counter[Any] = Counter()
        for row in rows:
            key = (row["kind"], tuple(row["keys"]))
            events[key] += row["events"] or 0
            requests[key] += row["requests"] or 0
        return events, requests

    whole = added(rows_of(table, 1))
    monkeypatch.setattr(files, "_HELD_BYTES", 0)
    monkeypatch.setattr(files, "_ROWS", 3)
    assert added(rows_of(table, tasks)) == whole
    assert whole[0][("facts", ("deny", "target_not_allowed", "attach", "R1"))] > 10


@pytest.mark.parametrize("most", [1, 10_000, 1 << 30])
def test_every_file_is_in_one_share_and_a_day_too_where_it_fits(
    table: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(files, "_SHARE_BYTES", most)
    there = sorted(map(str, table.glob("events/*/*/*.parquet")))
    sizes = Counter[str]()
    for path in there:
        sizes[day_of(path)] += Path(path).stat().st_size
    for tasks in (1, 2, 3, 1000):
        shares = shares_of(table, tasks)
        assert [path for share in shares for path in share.files] == there
        counts = Counter(day for share in shares for day in set(map(day_of, share.files)))
        assert all(share.parts == {day: counts[day] for day in share.parts} for share in shares)
        assert {share.most for share in shares} == {max(counts.values())}
        fair = min(most, sum(sizes.values()) // (2 * tasks))
        assert all(counts[day] == 1 for day, size in sizes.items() if size <= fair)
    if most == 1:
        assert len(shares_of(table, 1)) == len(there)


def day_of(path: str) -> str:
    return path.partition("day=")[2][:10]


def test_a_table_of_an_older_version_is_read(tmp_path: Path) -> None:
    """It has fewer columns, and lies beside one that has all."""
    place = tmp_path / "events" / "day=2026-11-20" / "router_dir=R1"
    place.mkdir(parents=True)
    members = {"decision": "deny", "reason": "no_vhost", "stage": "open", "router": "R1", "time": NOON}
    for name, more in (("1", {}), ("2", {"attempts": 5})):
        pq.write_table(pa.Table.from_pylist([{**members, **more}]), place / f"{name}.parquet")
    rows = rows_of(tmp_path, 1)
    assert [(row["requests"], row["keys"]) for row in rows if row["kind"] == "by_reason"] == [
        (1, ["no_vhost"]), (5, ["no_vhost"]),
    ]  # fmt: skip
    assert not [row for row in rows if row["kind"] in ("starts", "runs", "floods")]


def test_arrow_and_spark_have_one_notion_of_a_denial(session: "SparkSession") -> None:
    decisions = ("deny", "allow", "shadow_deny", None)
    rows = [(decision, reason) for decision in decisions for reason in (*LOGS_OWN, "no_vhost", None)]
    by_spark = session.createDataFrame(rows, "decision string, reason string").where(denials.is_denial()).collect()
    columns = {"decision": [row[0] for row in rows], "reason": [row[1] for row in rows], "time": [NOON] * len(rows)}
    found = [
        row
        for batch in cells([pa.table(columns)], Asked(has_denials=True, seed=1))
        for row in batch.to_pylist()
        if row["kind"] == "by_reason"
    ]
    assert [(row["keys"], row["events"]) for row in found] == [([row.reason], 1) for row in by_spark]
    assert [row.reason for row in by_spark] == ["no_vhost"]


@pytest.mark.parametrize(
    ("users", "least", "most"), [(MOST_HASHES - 1, MOST_HASHES - 1, MOST_HASHES - 1), (6000, 5000, 7000)]
)
def test_users_of_a_day_are_told_about(session: "SparkSession", users: int, least: int, most: int) -> None:
    """7,000 is four times what the standard deviation of 512 hashes allows."""
    rows = [("deny", "no_vhost", NOON, f"u{number % users}") for number in range(users + 500)]
    events = session.createDataFrame(rows, "decision string, reason string, time timestamp, user string").repartition(3)
    (day,) = denials.trend(trail_of_events(events, has_denials=True)).collect()
    assert least <= day.users <= most
    assert (day.denials, day.reasons, day.hosts) == (users + 500, 1, 0)


def test_attack_names_that_hash_to_little_are_not_many_users() -> None:
    """Whoever makes them does not know the seed: other hashes are the least in each report."""
    members = {"decision": "deny", "reason": "no_vhost", "time": NOON}
    rows = pa.Table.from_pylist([{**members, "user": f"u{number}"} for number in range(50)])

    def order(seed: int) -> list[int]:
        found = [row for batch in cells([rows], Asked(has_denials=True, seed=seed)) for row in batch.to_pylist()]
        return [row["low"] for row in found if row["kind"] == "users"]

    assert order(1) == order(1)
    assert not set(order(1)) & set(order(2))
    assert all(0 <= value < 2**63 for value in order(3))


def test_numbers_in_pieces_and_in_any_order_are_missing_or_not(session: "SparkSession") -> None:
    dice = random.Random(3)
    for _ in range(5):
        numbers = [dice.randrange(60) for _ in range(40)]
        rows = [(NOON, "R", "a" * 32, number, "no_vhost") for number in numbers]
        events = session.createDataFrame(
            rows, "time timestamp, router string, start string, sequence bigint, reason string"
        )
        (found,) = continuity(trail_of_events(events.repartition(4), has_denials=False)).collect()
        there = set(numbers)
        missing = max(there) - min(there) + 1 - len(there)
        assert (found.missing, found.headless) == (missing, int(min(there) > 0))


def test_facts_are_all_that_was_asked_for(session: "SparkSession") -> None:
    events = frame(session, *made_up(50, seed=1))
    trail: Trail = trail_of_events(events, has_denials=False)
    ends = trail.facts().agg(F.sum("events").alias("n"), F.min("first").alias("a"), F.max("last").alias("b"))
    assertDataFrameEqual(ends, events.agg(F.count("*").alias("n"), F.min("time").alias("a"), F.max("time").alias("b")))
    assert trail.sums.where("kind not in ('facts', 'starts', 'runs')").count() == 0


@pytest.mark.parametrize("kept", [0, 5, 3000, -1])
def test_a_damaged_file_of_the_table_is_named(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"user": [f"user {n}" for n in range(5000)]}), path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DamagedFileError, match=rf"\A{path}: .* make the table anew"), opened(str(path), ["user"]):
        pass
