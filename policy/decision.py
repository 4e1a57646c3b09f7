"""The result of a decision.

Reason values are public API, in audit events and reports; they never change their meaning.
"""

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """The reason for allowing or denying a request."""

    ALLOWED = "allowed"
    BANNED = "banned"
    ROUTER_CONNECTION_LIMIT = "router_connection_limit"
    NO_VHOST = "no_vhost"
    UNKNOWN_USER = "unknown_user"
    RESERVED_USER_NAME = "reserved_user_name"
    GROUP_NOT_VALID = "group_not_valid"
    ROUTER_ID_NOT_ALLOWED = "router_id_not_allowed"
    HOST_NOT_ALLOWED = "host_not_allowed"
    VHOST_CONNECTION_LIMIT = "vhost_connection_limit"
    USER_CONNECTION_LIMIT = "user_connection_limit"
    HOST_CONNECTION_LIMIT = "host_connection_limit"
    SESSION_LIMIT = "session_limit"
    SENDER_LIMIT = "sender_limit"
    RECEIVER_LIMIT = "receiver_limit"
    WAYPOINT_CAPABILITY = "waypoint_capability"
    FALLBACK_CAPABILITY = "fallback_capability"
    SOURCE_NOT_ALLOWED = "source_not_allowed"
    TARGET_NOT_ALLOWED = "target_not_allowed"
    ANONYMOUS_SENDER = "anonymous_sender"
    DYNAMIC_SOURCE = "dynamic_source"
    NO_SOURCE_ADDRESS = "no_source_address"
    UNCLEAR_ADDRESS = "unclear_address"
    MESSAGE_TARGET_NOT_ALLOWED = "message_target_not_allowed"
    DYNAMIC_ADDRESS_NOT_OWN = "dynamic_address_not_own"
    REPLY_WINDOW_OVER = "reply_window_over"
    REPLY_NOT_EXPECTED = "reply_not_expected"
    USER_ID_PROXY = "user_id_proxy"
    MALFORMED_MESSAGE = "malformed_message"
    MESSAGE_TOO_LARGE = "message_too_large"
    BYTE_BUDGET = "byte_budget"
    MESSAGE_STALLED = "message_stalled"
    MESSAGE_HOLDS_UP_OTHERS = "message_holds_up_others"
    RECEIVER_STALLED = "receiver_stalled"
    MANAGEMENT_NOT_ALLOWED = "management_not_allowed"
    HOST_VALUE_NOT_ALLOWED = "host_value_not_allowed"
    IN_PROCESS_ADDRESS = "in_process_address"
    FORBIDDEN_OPERATION = "forbidden_operation"
    INTERNAL_ERROR = "internal_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The part of policy on which a decision rests. `file` and `line` are None if it came from management."""

    vhost: str | None = None
    group: str | None = None
    item: str | None = None  # the attribute, or the list item, e.g. "targets: orders.*"
    file: str | None = None
    line: int | None = None  # 1-based


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Allow or deny, with the reason and the rule.

    also     further violated limits (docs/spec/policy-and-auth.md §3.3: all three are evaluated)
    address  the text that decided, if address lists were searched: as written, or as the router understands it
    """

    is_allowed: bool
    reason: Reason
    rule: Rule | None = None
    also: tuple[Reason, ...] = ()
    address: str | None = None
