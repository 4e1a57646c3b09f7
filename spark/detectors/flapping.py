"""One client connects and disconnects repeatedly at one router.

A connection is counted once, by any of its recorded events: its Open (auditAllows), or its end by a fault of its own,
before or after the Open.
"""

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Thresholds, observed
from spark.detectors.signs import OPENED, denied
from spark.sums.bursts import Focus
from spark.transforms.sign import any_column

_KEYS = ("router", "user", "host")
_BREAKS = (
    *("handshake_aborted", "handshake_timeout", "idle_timeout", "malformed_frame"),
    *("message_stalled", "message_holds_up_others", "receiver_stalled", "credentials_expired", "connection_too_old"),
)
_SIGNS = (replace(OPENED, has=("remote_host",)), denied(*_BREAKS, has=("remote_host",)))


def _observe(events: DataFrame) -> DataFrame:
    of_connections = events.where(any_column(_SIGNS))
    # Some events of a flood have no connection id; then the event counts as the connection.
    connection = F.coalesce(F.concat_ws(" ", "start", F.col("connection").cast("string")), F.col("event_id"))
    return observed(of_connections, what=connection)


def _focus(thresholds: Thresholds) -> Focus:
    return Focus(
        signs=_SIGNS,
        keys=_KEYS,
        min_distinct=thresholds["min_connections"],
        window_s=thresholds["window_s"],
    )


FLAPPING = Detector(
    name="flapping", title="A client comes and goes", severity="low", keys=_KEYS, observe=_observe, focus=_focus
)
