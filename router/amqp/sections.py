"""Where a message's sections begin and end, what the router must know of them, and its own annotations.

Never looks at the body. Offsets are into the buffer that holds the encoded message. Malformed input raises
`MessageFault` with the outcome the sender gets (routing §9.5, §10.5, §11.5).

Sources: AMQP 1.0 §3.2; docs/spec/routing.md §10.1, §11.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final

from router.amqp.codec import CodecError, decode, encode, skip
from router.amqp.terminus import Condition
from router.values import Described, symbol

Buffer = bytes | bytearray

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = range(0x70, 0x75)
_BODY_AND_FOOTER: Final = frozenset((0x75, 0x76, 0x77, 0x78))
ROUTER_PREFIX: Final = "x-opt-qd."

# Eight leading bytes of messages that need no look inside: no annotations, no properties, or empty ones.
# An empty header (`00 53 70 45`) is what proton writes for default values.
_u64_at = Struct(">Q").unpack_from
_EMPTY_HEADER = 0x00537045
_PLAIN_8 = frozenset(((_EMPTY_HEADER << 32) | 0x00537345,))
_PLAIN_7 = frozenset(((_EMPTY_HEADER << 24) | 0x005300 | code) for code in (0x74, 0x75, 0x76, 0x77))
_PLAIN_3 = frozenset((0x005300 | code) for code in (0x74, 0x75, 0x76, 0x77))

INVALID: Final = Condition(name="amqp:decode-error", description="invalid message format")


class MessageFault(Exception):
    """The message cannot be routed; the sender gets `rejected` with `condition`."""

    def __init__(self, condition: Condition) -> None:
        super().__init__(str(condition))
        self.condition = condition


@dataclass(slots=True)
class Envelope:
    """What stands before the body. An offset is -1 where the section is absent."""

    size: int
    annotations_at: int = -1
    annotations_end: int = -1
    insert_annotations_at: int = 0  # where a message-annotations section belongs
    properties_at: int = -1  # of the properties list itself, after its descriptor
    body_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterAnnotations:
    """The router's own annotations of a message, taken off it or to be put on it (routing §11.1)."""

    to: str | None = None
    phase: int = 0
    ingress: str | None = None
    trace: tuple[str, ...] = field(default=())
    is_stream: bool = False


def is_plain(buffer: Buffer, size: int) -> bool:
    """True when the message certainly has neither annotations nor properties. Hot: one unpack, set look-ups."""
    if size < 8:
        return False
    head = _u64_at(buffer, 0)[0]
    return head in _PLAIN_8 or (head >> 8) in _PLAIN_7 or (head >> 40) in _PLAIN_3


def find(buffer: Buffer, size: int) -> Envelope:
    """Locate the sections before the body.

    Errors  MessageFault(INVALID) when a section is malformed, out of order or missing altogether.
    """
    envelope = Envelope(size=size)
    at, last = 0, HEADER - 1
    try:
        while at < size:
            code, value_at = _descriptor(buffer, at, size)
            if code in _BODY_AND_FOOTER:
                envelope.body_at = at
                return envelope
            if code <= last or code > APPLICATION_PROPERTIES:
                raise MessageFault(INVALID)
            _expect_container(buffer[value_at], code)
            end = skip(memoryview(buffer)[:size], value_at)
            if code == MESSAGE_ANNOTATIONS:
                envelope.annotations_at, envelope.annotations_end = at, end
            elif code == PROPERTIES:
                envelope.properties_at = value_at
            if code <= DELIVERY_ANNOTATIONS:
                envelope.insert_annotations_at = end
            at, last = end, code
    except (CodecError, IndexError):
        raise MessageFault(INVALID) from None
    if size == 0:
        raise MessageFault(INVALID)
    envelope.body_at = at
    return envelope


def _descriptor(buffer: Buffer, at: int, size: int) -> tuple[int, int]:
    """The section code at `at` and the offset of its value."""
    if buffer[at] != 0:
        raise MessageFault(INVALID)
    form = buffer[at + 1]
    if form == 0x53:
        code, value_at = buffer[at + 2], at + 3
    elif form == 0x80:
        code, value_at = int.from_bytes(buffer[at + 2 : at + 10], "big"), at + 10
    else:  # a symbolic descriptor is legal AMQP, and rare enough to go through the codec
        described, _ = decode(bytes(buffer[at:size]))
        code = _SYMBOLIC.get(described.descriptor, -1) if isinstance(described, Described) else -1
        value_at = skip(memoryview(buffer)[:size], at + 1)
    if value_at >= size:
        raise MessageFault(INVALID)
    return code, value_at


_SYMBOLIC = {
    "amqp:header:list": 0x70,
    "amqp:delivery-annotations:map": 0x71,
    "amqp:message-annotations:map": 0x72,
    "amqp:properties:list": 0x73,
    "amqp:application-properties:map": 0x74,
    "amqp:data:binary": 0x75,
    "amqp:amqp-sequence:list": 0x76,
    "amqp:amqp-value:*": 0x77,
    "amqp:footer:map": 0x78,
}
_LISTS: Final = frozenset((0x45, 0xC0, 0xD0))
_MAPS: Final = frozenset((0xC1, 0xD1))
_NOT_A_MAP = Condition(
    name="amqp:invalid-field", description="Invalid message annotations section - missing map type"
)


def _expect_container(constructor: int, code: int) -> None:
    if constructor in (_LISTS if code in (HEADER, PROPERTIES) else _MAPS):
        return
    raise MessageFault(_NOT_A_MAP if code == MESSAGE_ANNOTATIONS else INVALID)


def _list_items_at(buffer: Buffer, at: int) -> tuple[int, int]:
    """(count, offset of the first item) of the list whose constructor is at `at`."""
    constructor = buffer[at]
    if constructor == 0xC0:
        return buffer[at + 2], at + 3
    if constructor == 0xD0:
        return int.from_bytes(buffer[at + 5 : at + 9], "big"), at + 9
    return 0, at + 1


def _property(buffer: Buffer, envelope: Envelope, index: int) -> Any:
    if envelope.properties_at < 0:
        return None
    try:
        count, at = _list_items_at(buffer, envelope.properties_at)
        if index >= count:
            return None
        view = memoryview(buffer)[: envelope.size]
        for _ in range(index):
            at = skip(view, at)
        if view[at] == 0x40:
            return None
        return decode(bytes(view[at : skip(view, at)]))[0]
    except (CodecError, IndexError):
        raise MessageFault(INVALID) from None


def user_id(buffer: Buffer, envelope: Envelope) -> bytes | None:
    """properties.user-id, None when absent; a value of another type counts as malformed."""
    value = _property(buffer, envelope, 1)
    if value is not None and not isinstance(value, bytes):
        raise MessageFault(INVALID)
    return value


def to(buffer: Buffer, envelope: Envelope) -> str | None:
    """properties.to as text, None when absent."""
    value = _property(buffer, envelope, 2)
    if value is None:
        return None
    if not isinstance(value, str):
        raise MessageFault(INVALID)
    return str(value)


def annotations(buffer: Buffer, envelope: Envelope) -> dict[Any, Any]:
    """The message-annotations map, {} when absent."""
    if envelope.annotations_at < 0:
        return {}
    try:
        described, _ = decode(bytes(buffer[envelope.annotations_at : envelope.annotations_end]))
    except CodecError as error:
        odd = "odd" in str(error)
        raise MessageFault(
            Condition(
                name="amqp:invalid-field", description="Invalid MA map count (odd number of fields)"
            )
            if odd
            else INVALID
        ) from None
    if not isinstance(described, Described) or not isinstance(described.value, dict):
        raise MessageFault(_NOT_A_MAP)
    return described.value


def _field_fault(text: str) -> MessageFault:
    return MessageFault(Condition(name="amqp:invalid-field", description=text))


def router_annotations(mapping: Mapping[Any, Any]) -> RouterAnnotations:
    """The router's keys out of a message-annotations map (routing §11.5 has the faults)."""
    to_override = mapping.get("x-opt-qd.to")
    if to_override is not None and (not isinstance(to_override, str) or isinstance(to_override, symbol)):
        raise _field_fault("to-override not a valid string type")
    trace = mapping.get("x-opt-qd.trace", [])
    if not isinstance(trace, list):
        raise _field_fault("trace annotation is not a list")
    if any(not isinstance(entry, str) for entry in trace):
        raise _field_fault("trace list contains non-string entries")
    ingress = mapping.get("x-opt-qd.ingress")
    if ingress is not None and not isinstance(ingress, str):
        raise _field_fault("ingress router not a string type")
    phase = mapping.get("x-opt-qd.phase", 0)
    return RouterAnnotations(
        to=to_override or None,
        phase=phase if isinstance(phase, int) and 0 <= phase <= 9 else 0,
        ingress=ingress,
        trace=tuple(trace),
        is_stream="x-opt-qd.stream" in mapping,
    )


def without_router_keys(mapping: Mapping[Any, Any]) -> dict[Any, Any]:
    return {key: value for key, value in mapping.items() if not str(key).startswith(ROUTER_PREFIX)}


def replace_annotations(buffer: Buffer, envelope: Envelope, mapping: Mapping[Any, Any]) -> bytes:
    """The message with `mapping` as its message-annotations; without the section when it is empty."""
    section = b"\x00\x53\x72" + encode(dict(mapping)) if mapping else b""
    if envelope.annotations_at >= 0:
        start, end = envelope.annotations_at, envelope.annotations_end
    else:
        start = end = envelope.insert_annotations_at
    return bytes(buffer[:start]) + section + bytes(buffer[end : envelope.size])


def with_router_annotations(user: Mapping[Any, Any], own: RouterAnnotations) -> dict[Any, Any]:
    """User annotations first, then phase, to, ingress, trace in the order of routing §11.1."""
    mapping: dict[Any, Any] = dict(user)
    if own.phase:
        mapping[symbol("x-opt-qd.phase")] = own.phase
    if own.to is not None:
        mapping[symbol("x-opt-qd.to")] = own.to
    if own.ingress is not None:
        mapping[symbol("x-opt-qd.ingress")] = own.ingress
    if own.trace:
        mapping[symbol("x-opt-qd.trace")] = list(own.trace)
    return mapping
