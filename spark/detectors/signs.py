"""The events for each sign: a failed login, an admitted peer, a refused privilege."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.sums.bursts import KNOWN_STAGES
from spark.transforms.sign import Sign

LOGIN_FAILURES: Final = ("sasl_failed", "too_many_guesses")
ADDRESS_DENIALS: Final = (
    "source_not_allowed",
    "target_not_allowed",
    "message_target_not_allowed",
    "unclear_address",
    "dynamic_address_not_own",
)
PRIVILEGES: Final = (
    "management_not_allowed",
    "host_value_not_allowed",
    "in_process_address",
    "forbidden_operation",
    "user_id_proxy",
    "waypoint_capability",
    "fallback_capability",
    "anonymous_sender",
    "dynamic_source",
    "dynamic_address_not_own",
)
LIMITS: Final = (
    "router_connection_limit",
    "vhost_connection_limit",
    "user_connection_limit",
    "host_connection_limit",
    "descriptor_limit",
    "session_limit",
    "sender_limit",
    "receiver_limit",
    "byte_budget",
)
VERIFIER_UNAVAILABLE: Final = "verifier_unavailable"
# Addresses of the router itself, which only users with rights there use.
_OF_THE_ROUTER: Final = r"\A(?:amqps?:/+[^/]*/)?/?(?:\$|_local/|_topo/|_edge/)"


def denied(*reasons: str, has: Sequence[str] = ()) -> Sign:
    """Returns the sign of a denial for one of these reasons. Denials of a candidate policy do not count."""
    return Sign(among={"decision": ("deny",), "reason": reasons}, has=has)


FAILED_LOGIN: Final = denied(*LOGIN_FAILURES)
# An admitted connection, recorded if auditAllows says so.
OPENED: Final = Sign(among={"decision": ("allow",), "stage": ("open",)})
_ON_A_CONNECTION: Final = {"decision": ("deny",), "stage": KNOWN_STAGES}
# On an open connection: requests for more than sending and receiving.
PRIVILEGE_REFUSED: Final = (
    Sign(among={**_ON_A_CONNECTION, "reason": PRIVILEGES}),
    Sign(among={**_ON_A_CONNECTION, "reason": ADDRESS_DENIALS}, like={"address": _OF_THE_ROUTER}),
)


def opened(events: DataFrame) -> DataFrame:
    return events.where(OPENED.column())


def is_of_the_router() -> Column:
    return F.col("address").rlike(_OF_THE_ROUTER)
