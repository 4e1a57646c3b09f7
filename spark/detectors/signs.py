"""Which events are which sign: a failed login, a peer let in, a privilege refused."""

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
# Addresses of the router itself; only who has rights there has business there.
_OF_THE_ROUTER: Final = r"\A(?:amqps?:/+[^/]*/)?/?(?:\$|_local/|_topo/|_edge/)"


def denied(*reasons: str, has: Sequence[str] = ()) -> Sign:
    """A denial for one of these reasons; a candidate policy's are none."""
    return Sign(among={"decision": ("deny",), "reason": reasons}, has=has)


FAILED_LOGIN: Final = denied(*LOGIN_FAILURES)
# A connection that was let in. Recorded where auditAllows says so.
OPENED: Final = Sign(among={"decision": ("allow",), "stage": ("open",)})
_ON_A_CONNECTION: Final = {"decision": ("deny",), "stage": KNOWN_STAGES}
# Of an open connection: what asks for more than to send and receive.
PRIVILEGE_REFUSED: Final = (
    Sign(among={**_ON_A_CONNECTION, "reason": PRIVILEGES}),
    Sign(among={**_ON_A_CONNECTION, "reason": ADDRESS_DENIALS}, like={"address": _OF_THE_ROUTER}),
)


def opened(events: DataFrame) -> DataFrame:
    return events.where(OPENED.column())


def is_of_the_router() -> Column:
    return F.col("address").rlike(_OF_THE_ROUTER)
