"""One client comes and goes at one router.

A connection is counted once, by whichever of its events are recorded: its Open (auditAllows), or its end before or
after that by a fault of its own.
"""

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Thresholds, bursts, findings, observed
from spark.detectors.signs import OPENED, denied
from spark.sums.bursts import Focus
from spark.sums.trail import Trail
from spark.transforms.sign import any_column

_KEYS = ("router", "user", "host")
_BREAKS = (
    *("handshake_aborted", "handshake_timeout", "idle_timeout", "malformed_frame"),
    *("message_stalled", "receiver_stalled", "credentials_expired", "connection_too_old"),
)
_SIGNS = (replace(OPENED, has=("remote_host",)), denied(*_BREAKS, has=("remote_host",)))


def _find(detector: Detector, trail: Trail, thresholds: Thresholds) -> DataFrame:
    of_connections = trail.events.where(any_column(_SIGNS))
    # Some of a flood have no connection of their own: the event is then the connection.
    connection = F.coalesce(F.concat_ws(" ", "start", F.col("connection").cast("string")), F.col("event_id"))
    came = observed(of_connections, what=connection)
    condition = F.col("distinct") >= thresholds["min_connections"]
    return findings(detector, came, bursts(came, _KEYS, thresholds["window_s"], condition), _KEYS)


def _focus(thresholds: Thresholds) -> Focus:
    return Focus(
        signs=_SIGNS,
        keys=_KEYS,
        least=thresholds["min_connections"],
        window_s=thresholds["window_s"],
    )


FLAPPING = Detector(name="flapping", title="A client comes and goes", severity="low", find=_find, focus=_focus)
