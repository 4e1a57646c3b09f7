"""Events become counts (issue 2, part 8: Audit)."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.testing import assertDataFrameEqual

from spark.sums.trail import trail_of_events
from spark.transforms import denials
from spark.transforms import events as events_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

COLUMNS = "event_id string, time timestamp, decision string, reason string, user string, lost bigint, attempts bigint, "
COLUMNS += "rule struct<vhost:string,group:string,item:string,file:string,line:bigint>"
EIGHT = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
NEARLY_NINE = datetime(2026, 11, 20, 8, 59, 59, 999999, tzinfo=UTC)
NINE = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)

RULE = ("acme", "staff", "targets", "acme.json", 12)

ROWS = [
    ("1", EIGHT, "deny", "no_vhost", "eve", None, None, None),
    ("2", NEARLY_NINE, "deny", "sasl_failed", "eve", None, None, None),
    ("3", NINE, "deny", "sasl_failed", None, None, None, None),
    ("4", NINE, "deny", "sasl_failed", "bob", None, 3, RULE),
    ("5", NINE, "deny", "events_lost", None, 40, None, None),
    ("6", NINE, "allow", "allowed", "bob", None, None, None),
    ("7", NINE, "shadow_deny", "allowed", "bob", None, None, None),
    ("8", NINE, "shadow_error", "invalid_policy", None, None, None, None),
]


@pytest.fixture
def events(session: "SparkSession") -> "DataFrame":
    return session.createDataFrame(ROWS, COLUMNS)


def test_since_is_within_and_until_is_not(session: "SparkSession", events: "DataFrame") -> None:
    kept = events_of.within(events, since=EIGHT, until=NINE)
    assertDataFrameEqual(kept, session.createDataFrame(ROWS[:2], COLUMNS))
    assertDataFrameEqual(events_of.within(events, since=None, until=None), events)


def test_denials_are_counted_by_user_with_the_unknown_last(session: "SparkSession", events: "DataFrame") -> None:
    assertDataFrameEqual(
        denials.counted_by(trail_of_events(events, has_denials=True), "by_user"),
        session.createDataFrame(
            [("bob", 3, NINE, NINE), ("eve", 2, EIGHT, NEARLY_NINE), (None, 1, NINE, NINE)],
            "user string, denials bigint, first timestamp, last timestamp",
        ),
        checkRowOrder=True,
    )


def test_denials_are_counted_by_hour_in_the_order_of_time(session: "SparkSession", events: "DataFrame") -> None:
    assertDataFrameEqual(
        denials.counted_by(trail_of_events(events, has_denials=True), "by_hour"),
        session.createDataFrame(
            [(EIGHT, 2, EIGHT, NEARLY_NINE), (NINE, 4, NINE, NINE)],
            "hour timestamp, denials bigint, first timestamp, last timestamp",
        ),
        checkRowOrder=True,
    )


def test_lost_events_are_summed_and_are_no_denials(session: "SparkSession", events: "DataFrame") -> None:
    for some, lost in ((events, 40), (events.limit(0), 0)):
        facts = trail_of_events(some, has_denials=False).facts()
        summed = facts.agg(events_of.lost().alias("lost"))
        assertDataFrameEqual(summed, session.createDataFrame([(lost,)], "lost bigint"))
    assert denials.denied(events).count() == 4


def test_denials_are_counted_by_rule_with_those_of_no_rule(session: "SparkSession", events: "DataFrame") -> None:
    rows = denials.counted_by(trail_of_events(events, has_denials=True), "by_rule").collect()
    assert [tuple(row)[:6] for row in rows] == [(*RULE, 3), (*(None,) * 5, 3)]


def test_the_trend_counts_days_without_denials_as_none(session: "SparkSession") -> None:
    def at(day: int, user: str) -> tuple[object, ...]:
        return ("1", datetime(2026, 11, day, 8, tzinfo=UTC), "deny", "no_vhost", user, None, None, None)

    columns = COLUMNS + ", remote_host string"
    rows = [(*at(day, user), "h") for day, user in [(20, "a"), (20, "b"), (21, "a"), (23, "a"), (23, "a"), (23, "b")]]
    days = denials.trend(trail_of_events(session.createDataFrame(rows, columns), has_denials=True))
    assert days.columns == ["day", "denials", "change", "reasons", "users", "hosts"]
    assert [(row.day.day, *tuple(row)[1:]) for row in days.collect()] == [
        (20, 2, None, 1, 2, 1), (21, 1, -1, 1, 1, 1), (23, 3, 3, 1, 2, 1),
    ]  # fmt: skip
