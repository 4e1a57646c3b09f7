"""What the numbers of audit events say is missing (issue 2, part 8: Audit)."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.testing import assertDataFrameEqual

from spark.sums.trail import trail_of_events
from spark.transforms.continuity import continuity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
COLUMNS = "time timestamp, router string, start string, sequence bigint, reason string, lost bigint"
A, B, C, D, E = (letter * 32 for letter in "abcde")
NUMBERED = [
    *[("R", A, number, "no_vhost", None) for number in (0, 1, 2, 4, 7)],  # three are missing, and the end
    *[("R", B, number, "no_vhost", None) for number in (5, 6)],
    ("R", B, 7, "log_closed", None),  # the files of its beginning are elsewhere
    ("R", C, 0, "no_vhost", None),
    ("R", C, 11, "events_lost", 10),  # nothing is missing that was not reported
    ("R", C, 12, "log_closed", None),
    ("Q", D, 3, "events_lost", 3),  # lost from the first on
    ("Q", D, 4, "log_closed", None),
    ("Q", E, 1, "no_vhost", None),  # in no order
    ("Q", E, 2, "log_closed", None),
    ("Q", E, 0, "no_vhost", None),
    ("Q", None, None, "no_vhost", None),  # of version 1
]


def test_missing_numbers_are_missing_events(session: "SparkSession") -> None:
    frame = session.createDataFrame([(NOON, *row) for row in NUMBERED], COLUMNS)
    expected = "starts bigint, missing bigint, headless bigint, endless bigint"
    for events, row in ((frame, (5, 3, 1, 1)), (frame.limit(0), (0, 0, 0, 0))):
        found = continuity(trail_of_events(events, has_denials=False))
        assertDataFrameEqual(found, session.createDataFrame([row], expected))
