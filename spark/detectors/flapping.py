"""One client comes and goes at one router.

A connection is counted once, by whichever of its events are recorded: its Open (auditAllows), or its end before or
after that by a fault of its own.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Focus, Thresholds, bursts, findings, observed
from spark.detectors.signs import denied, is_denied, is_opened, opened

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


def _focus(thresholds: Thresholds) -> Focus:
    return Focus(
        signs=(is_opened() | is_denied(*_BREAKS)) & F.col("remote_host").isNotNull(),
        keys=_KEYS,
        least=thresholds["min_connections"],
        window_s=thresholds["window_s"],
    )


FLAPPING = Detector(name="flapping", title="A client comes and goes", severity="low", find=_find, focus=_focus)
