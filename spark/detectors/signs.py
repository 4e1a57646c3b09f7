"""Which events are which sign: a failed login, a peer let in, a privilege refused. Events -> events."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

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
_KNOWN_STAGES: Final = ("open", "begin", "attach", "transfer", "management")


def is_denied(*reasons: str) -> Column:
    """A denial for one of these reasons; a candidate policy's are none."""
    return (F.col("decision") == "deny") & F.col("reason").isin(*reasons)


def is_failed_login() -> Column:
    return is_denied(*LOGIN_FAILURES)


def is_opened() -> Column:
    """A connection that was let in. Recorded where auditAllows says so."""
    return (F.col("decision") == "allow") & (F.col("stage") == "open")


def is_privilege_refused() -> Column:
    """Of an open connection: what asks for more than to send and receive."""
    is_asked = F.col("reason").isin(*PRIVILEGES) | (
        F.col("reason").isin(*ADDRESS_DENIALS) & F.coalesce(is_of_the_router(), F.lit(False))
    )
    return (F.col("decision") == "deny") & F.col("stage").isin(*_KNOWN_STAGES) & is_asked


def denied(events: DataFrame, *reasons: str) -> DataFrame:
    return events.where(is_denied(*reasons))


def failed_logins(events: DataFrame) -> DataFrame:
    return events.where(is_failed_login())


def opened(events: DataFrame) -> DataFrame:
    return events.where(is_opened())


def seen(events: DataFrame) -> DataFrame:
    """Events of a user who had logged in. Before the Open the name is only claimed."""
    return events.where(F.col("stage").isin(*_KNOWN_STAGES) & F.col("user").isNotNull())


def privileges_refused(events: DataFrame) -> DataFrame:
    return events.where(is_privilege_refused())


def is_of_the_router() -> Column:
    return F.col("address").rlike(_OF_THE_ROUTER)
