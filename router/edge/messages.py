"""The messages between an edge and its interior, as values: how they are built, and which ones of a peer are accepted.

Source: docs/spec/network.md §14.5-§14.8.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from router.edge.limits import MAX_ADDRESS_CHARACTERS, MAX_CORRELATION_CHARACTERS
from router.values import int_, uint

TRACKING_ADDRESS: Final = "_$qd.edge_addr_tracking"
LOOKUP_ADDRESS: Final = "_$qd.addr_lookup"
HEARTBEAT_ADDRESS: Final = "_$qd.edge_heartbeat"
MANAGEMENT_ADDRESS: Final = "$management"
DOWNLINK: Final = "qd.router-edge-downlink"
LINK_ROUTE_TYPE: Final = "org.apache.qpid.dispatch.router.connection.linkRoute"

LOOKUP_VERSION: Final = 1
LOOKUP_OPCODE: Final = 1
OK: Final = 0
NOT_FOUND: Final = 3


class Malformed(ValueError):
    """A message that does not belong to its service. The text says what is wrong and contains nothing from the peer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a router's own, sent or received.

    body       the value of the body
    is_settled  True if it is sent presettled
    has_header  True if it has the header {durable false}
    """

    body: Any
    to: str | None = None
    reply_to: str | None = None
    correlation_id: Any = None
    application_properties: Any = None
    is_settled: bool = True
    has_header: bool = True


# Tracking


def tracking(key: str, *, is_used: bool) -> Message:
    return Message(body=[key, is_used])


def read_tracking(message: Message) -> tuple[str, bool]:
    """Returns the key of an address, and True if the sender link for it may be used."""
    body = message.body
    if not isinstance(body, list) or len(body) != 2:
        raise Malformed("a body is a list of a key and a boolean")
    key, is_used = body
    if not isinstance(key, str) or len(key) > MAX_ADDRESS_CHARACTERS or not isinstance(is_used, bool):
        raise Malformed("a body is a list of a key and a boolean")
    return str(key), is_used


# Look-ups


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupRequest:
    """A look-up of an address.

    is_sender  True if the client wants to send to the address
    """

    address: str
    is_sender: bool
    reply_to: str
    correlation_id: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupReply:
    """The answer to a look-up.

    is_found  False if the interior has no such pattern, or could not answer
    """

    is_found: bool
    is_link_route: bool
    has_destinations: bool


def lookup_request(address: str, *, is_sender: bool) -> Message:
    """Makes a request without reply-to and correlation-id, which `asking` sets."""
    properties = {"version": uint(LOOKUP_VERSION), "opcode": uint(LOOKUP_OPCODE)}
    return Message(body=[address, is_sender], application_properties=properties)


def read_lookup_request(message: Message) -> LookupRequest:
    properties = message.application_properties
    if not isinstance(properties, dict):
        raise Malformed("no application-properties")
    if _number(properties.get("version"), "version") != LOOKUP_VERSION:
        raise Malformed("unsupported version")
    if _number(properties.get("opcode"), "opcode") != LOOKUP_OPCODE:
        raise Malformed("unknown opcode")
    body = message.body
    if not isinstance(body, list) or len(body) < 2:
        raise Malformed("a body is a list of an address and a direction")
    address, is_sender = body[:2]
    if not isinstance(address, str) or len(address) > MAX_ADDRESS_CHARACTERS or not isinstance(is_sender, bool):
        raise Malformed("a body is a list of an address and a direction")
    reply_to, correlation_id = message.reply_to, message.correlation_id
    if not reply_to or len(reply_to) > MAX_ADDRESS_CHARACTERS:
        raise Malformed("no reply-to")
    if correlation_id is None:
        raise Malformed("no correlation-id")
    if isinstance(correlation_id, str | bytes) and len(correlation_id) > MAX_CORRELATION_CHARACTERS:
        raise Malformed("correlation-id too long")
    return LookupRequest(
        address=str(address), is_sender=is_sender, reply_to=str(reply_to), correlation_id=correlation_id
    )


def lookup_reply(request: LookupRequest, reply: LookupReply) -> Message:
    properties = {
        "version": uint(LOOKUP_VERSION),
        "opcode": uint(LOOKUP_OPCODE),
        "status": uint(OK if reply.is_found else NOT_FOUND),
    }
    body = [reply.is_link_route, reply.has_destinations] if reply.is_found else [False, False]
    return Message(
        body=body, to=request.reply_to, correlation_id=request.correlation_id, application_properties=properties
    )


def read_lookup_reply(message: Message) -> LookupReply:
    """Reads a reply. A malformed reply, or one with a status other than 0, counts as not found."""
    nothing = LookupReply(is_found=False, is_link_route=False, has_destinations=False)
    properties, body = message.application_properties, message.body
    if not isinstance(properties, dict) or not isinstance(body, list) or len(body) < 2:
        return nothing
    try:
        is_found = _number(properties.get("status"), "status") == OK
    except Malformed:
        return nothing
    is_link_route, has_destinations = body[:2]
    if not is_found or not isinstance(is_link_route, bool) or not isinstance(has_destinations, bool):
        return nothing
    return LookupReply(is_found=True, is_link_route=is_link_route, has_destinations=has_destinations)


def _number(value: Any, name: str) -> int:
    """Returns an unsigned number of any type, or from its text. 20 digits are enough for all of them."""
    if isinstance(value, str) and len(value) <= 20 and value.isascii() and value.isdigit():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return int(value)
    raise Malformed(f"no {name} that is an unsigned number")


# Link routes


def create_link_route(name: str, pattern: str, *, is_in: bool) -> Message:
    properties = {"operation": "CREATE", "type": LINK_ROUTE_TYPE, "name": name}
    body = {"type": LINK_ROUTE_TYPE, "pattern": pattern, "direction": "in" if is_in else "out", "name": name}
    return Message(body=body, application_properties=properties, is_settled=False)


def delete_link_route(name: str, identity: str) -> Message:
    properties = {"operation": "DELETE", "type": LINK_ROUTE_TYPE, "identity": identity, "name": name}
    return Message(body={}, application_properties=properties, is_settled=False)


def read_management_reply(message: Message) -> tuple[int, Mapping[Any, Any]]:
    """Returns the status code and the map of the body."""
    properties, body = message.application_properties, message.body
    if not isinstance(properties, dict):
        raise Malformed("no application-properties")
    return _number(properties.get("statusCode"), "statusCode"), body if isinstance(body, dict) else {}


# Heartbeat


def heartbeat(count: int) -> Message:
    return Message(body=int_(count), has_header=False)
