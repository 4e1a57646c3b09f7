"""One client comes and goes at one router.

A connection is counted once, by whichever of its events are recorded: its Open (auditAllows), or its end before or
after that by a fault of its own.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Thresholds, bursts, findings, observed
from spark.detectors.signs import denied, opened

_KEYS = ("router", "user", "host")
_BREAKS = (
    *("handshake_aborted", "handshake_timeout", "idle_timeout", "malformed_frame"),
    *("message_stalled", "receiver_stalled", "credentials_expired", "connection_too_old"),
)


def _find(detector: Detector, events: DataFrame, thresholds: Thresholds) -> DataFrame:
    of_connections = opened(events).unionByName(denied(events, *_BREAKS)).where(F.col("remote_host").isNotNull())
    # Some of a flood have no connection of their own: the event is then the connection.
    connection = F.coalesce(F.concat_ws(" ", "start", F.col("connection").cast("string")), F.col("event_id"))
    came = observed(of_connections, what=connection)
    condition = F.col("distinct") >= thresholds["min_connections"]
    return findings(detector, came, bursts(came, _KEYS, thresholds["window_s"], condition), _KEYS)


FLAPPING = Detector(name="flapping", title="A client comes and goes", severity="low", find=_find)
