"""Events become counts (issue 2, part 8: Audit)."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.testing import assertDataFrameEqual

from spark.transforms import denials
from spark.transforms import events as events_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

COLUMNS = "event_id string, time timestamp, decision string, reason string, user string, lost bigint, attempts bigint"
EIGHT = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
NEARLY_NINE = datetime(2026, 11, 20, 8, 59, 59, 999999, tzinfo=UTC)
NINE = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)

ROWS = [
    ("1", EIGHT, "deny", "no_vhost", "eve", None, None),
    ("2", NEARLY_NINE, "deny", "sasl_failed", "eve", None, None),
    ("3", NINE, "deny", "sasl_failed", None, None, None),
    ("4", NINE, "deny", "sasl_failed", "bob", None, 3),
    ("5", NINE, "deny", "events_lost", None, 40, None),
    ("6", NINE, "allow", "allowed", "bob", None, None),
    ("7", NINE, "shadow_deny", "allowed", "bob", None, None),
    ("8", NINE, "shadow_error", "invalid_policy", None, None, None),
]


@pytest.fixture
def events(session: "SparkSession") -> "DataFrame":
    return session.createDataFrame(ROWS, COLUMNS)


def test_an_event_that_stands_twice_counts_once(session: "SparkSession") -> None:
    twice = session.createDataFrame([ROWS[0], ROWS[1], ROWS[0]], COLUMNS)
    assertDataFrameEqual(events_of.deduplicated(twice), session.createDataFrame(ROWS[:2], COLUMNS))


def test_of_two_events_with_one_id_the_same_is_kept_in_any_order(session: "SparkSession") -> None:
    other = ("1", NINE, "deny", "no_vhost", "bob", None, None)
    kept = session.createDataFrame([ROWS[0]], COLUMNS)
    for rows in ([ROWS[0], other], [other, ROWS[0]]):
        assertDataFrameEqual(events_of.deduplicated(session.createDataFrame(rows, COLUMNS)), kept)


def test_since_is_within_and_until_is_not(session: "SparkSession", events: "DataFrame") -> None:
    kept = events_of.within(events, since=EIGHT, until=NINE)
    assertDataFrameEqual(kept, session.createDataFrame(ROWS[:2], COLUMNS))
    assertDataFrameEqual(events_of.within(events, since=None, until=None), events)


def test_denials_are_counted_by_user_with_the_unknown_last(session: "SparkSession", events: "DataFrame") -> None:
    assertDataFrameEqual(
        denials.counted_by(denials.denied(events), "user"),
        session.createDataFrame(
            [("bob", 3, NINE, NINE), ("eve", 2, EIGHT, NEARLY_NINE), (None, 1, NINE, NINE)],
            "user string, denials bigint, first timestamp, last timestamp",
        ),
        checkRowOrder=True,
    )


def test_denials_are_counted_by_hour_in_the_order_of_time(session: "SparkSession", events: "DataFrame") -> None:
    assertDataFrameEqual(
        denials.counted_by(denials.denied(events), "hour"),
        session.createDataFrame(
            [(EIGHT, 2, EIGHT, NEARLY_NINE), (NINE, 4, NINE, NINE)],
            "hour timestamp, denials bigint, first timestamp, last timestamp",
        ),
        checkRowOrder=True,
    )


def test_lost_events_are_summed_and_are_no_denials(session: "SparkSession", events: "DataFrame") -> None:
    for some, lost in ((events, 40), (events.limit(0), 0)):
        summed = some.agg(events_of.lost().alias("lost"))
        assertDataFrameEqual(summed, session.createDataFrame([(lost,)], "lost bigint"))
    assert denials.denied(events).count() == 4
