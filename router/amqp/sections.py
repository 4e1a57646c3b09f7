"""Finds the sections of a message, the fields that the router needs, and the router's own annotations.

Never reads the body. Offsets are into the buffer that holds the encoded message. The buffer may hold only the beginning
of a message that is still arriving. Malformed input raises `MessageFault` with the outcome for the sender (routing
§9.5, §10.5, §11.5).

Sources: AMQP 1.0 §3.2; docs/spec/routing.md §10.1, §11.
"""

from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final

from router.amqp.codec import CodecError, decode, encode, skip
from router.amqp.terminus import Condition
from router.values import symbol

Buffer = bytes | bytearray

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = range(0x70, 0x75)
VALUE, FOOTER = 0x77, 0x78
_BODY_AND_FOOTER: Final = frozenset((0x75, 0x76, 0x77, 0x78))
_SECTIONS: Final = frozenset(range(HEADER, FOOTER + 1))
_STRINGS: Final = frozenset((0xA1, 0xB1))
ROUTER_PREFIX: Final = b"x-opt-qd."

# The maximum number of annotations if some of them are the router's, and the maximum size of a value of the router's.
# Attack: messages that are one big map keep the router busy.
MAX_ANNOTATIONS: Final = 1024
MAX_ROUTER_VALUE_BYTES: Final = 16 * 1024

INVALID: Final = Condition(name="amqp:decode-error", description="invalid message format")


class MessageFault(Exception):
    """The message cannot be routed. The sender gets `rejected` with `condition`."""

    def __init__(self, condition: Condition) -> None:
        super().__init__(str(condition))
        self.condition = condition


@dataclass(slots=True)
class Envelope:
    """The sections before the body. An offset is -1 if the section is absent."""

    size: int
    annotations_at: int = -1
    annotations_end: int = -1
    insert_annotations_at: int = 0  # the place for a message-annotations section
    properties_at: int = -1  # of the properties list itself, after its descriptor
    rest_at: int = 0  # the end of the properties: application-properties, body or footer follow
    body_at: int = 0  # or the end of the bytes that have arrived


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterAnnotations:
    """The router's own annotations of a message, which it removes or adds (routing §11.1).

    reply_to  as router.connection.vouching defines it
    """

    to: str | None = None
    phase: int = 0
    ingress: str | None = None
    trace: tuple[str, ...] = field(default=())
    reply_to: str | None = None


# The quick check. If all values are defaults, proton writes an empty header and empty properties.

_u32_at = Struct(">I").unpack_from
_three_u32 = Struct(">III").unpack_from
_EMPTY_HEADER: Final = 0x00537045
_EMPTY_PROPERTIES: Final = 0x00537345
_BODIES: Final = frozenset((0x005300 | code) for code in (0x75, 0x76, 0x77))
# The first four bytes of sections that need no closer look. The width of the size that follows is 0, 1 or 4 bytes.
_QUICK: Final = {
    (0x5300 | code) << 8 | constructor: (code, width)
    for code, forms in (
        (HEADER, ((0x45, 0), (0xC0, 1), (0xD0, 4))),
        (PROPERTIES, ((0x45, 0), (0xC0, 1), (0xD0, 4))),
        (APPLICATION_PROPERTIES, ((0xC1, 1), (0xD1, 4))),
    )
    for constructor, width in forms
}
ABSENT: Final = -1
LOOK_CLOSER: Final = -2


def is_plain(buffer: Buffer, size: int) -> bool:
    """Returns True if at most an empty header and empty properties come before the body. Hot."""
    if size < 12:
        return False
    first, second, third = _three_u32(buffer)
    if first == _EMPTY_HEADER:
        first = third if second == _EMPTY_PROPERTIES else second
    return first >> 8 in _BODIES


def find_properties(buffer: Buffer, size: int) -> int:
    """Returns the offset of the properties list in a message of the usual form, ABSENT if it has none. Hot.

    Returns LOOK_CLOSER in all other cases, in particular for annotations, unusual encodings and malformed messages: see
    `find`.
    """
    at, last, found = 0, 0, ABSENT
    while at + 4 <= size:
        word = _u32_at(buffer, at)[0]
        quick = _QUICK.get(word)
        if quick is None:
            return found if word >> 8 in _BODIES else LOOK_CLOSER
        code, width = quick
        if code <= last:
            return LOOK_CLOSER
        if code == PROPERTIES:
            found = at + 3
        if at + 4 + width > size:
            return LOOK_CLOSER
        if width == 1:
            at += 5 + buffer[at + 4]
        elif width:
            at += 8 + _u32_at(buffer, at + 4)[0]
        else:
            at += 4
        last = code
    return LOOK_CLOSER


def find(buffer: Buffer, size: int, *, may_be_opaque: bool = False) -> Envelope:
    """Finds the sections before the body. Sections after the properties are checked as far as they have arrived.

    may_be_opaque  True: bytes that do not begin with a section's descriptor count as a body, and the sections before it
                   are absent
    Errors  MessageFault(INVALID) if a section is malformed or out of order, or the message is empty. If not
            `may_be_opaque`, also if anything before the body is no section.
    """
    envelope = Envelope(size=size, body_at=size)
    view = memoryview(buffer)[:size]
    at, last = 0, HEADER - 1
    try:
        while at < size:
            envelope.rest_at = at
            if may_be_opaque and not _is_section(view, at):
                envelope.body_at = at
                return envelope
            code, value_at = descriptor_at(view, at)
            if code in _BODY_AND_FOOTER:
                envelope.body_at = at
                return envelope
            if code <= last or code > APPLICATION_PROPERTIES:
                raise MessageFault(INVALID)
            if code == APPLICATION_PROPERTIES:
                return _after_properties(view, value_at, envelope, may_be_opaque=may_be_opaque)
            _expect_container(view[value_at], code)
            end = skip(view, value_at)
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
    envelope.rest_at = size
    return envelope


def _after_properties(view: memoryview, value_at: int, envelope: Envelope, *, may_be_opaque: bool) -> Envelope:
    """Checks what follows the properties.

    Application-properties may be large and still arriving. No earlier section may follow them.
    """
    try:
        at = skip(view, value_at)
    except CodecError:
        return envelope
    is_opaque = may_be_opaque and not _is_section(view, at)
    if at < len(view) and not is_opaque and _named_at(view, at)[0] not in _BODY_AND_FOOTER:
        raise MessageFault(INVALID)
    envelope.body_at = at
    return envelope


def _is_section(view: memoryview, at: int) -> bool:
    """Returns True if a section's descriptor is at this place. Does not check what follows the descriptor."""
    try:
        return _named_at(view, at)[0] in _SECTIONS
    except (MessageFault, CodecError, IndexError):
        return False


def descriptor_at(view: memoryview, at: int) -> tuple[int, int]:
    """Returns the section code at `at` and the offset of its value. The value must have begun to arrive."""
    code, value_at = _named_at(view, at)
    if value_at >= len(view):
        raise MessageFault(INVALID)
    return code, value_at


def _named_at(view: memoryview, at: int) -> tuple[int, int]:
    """Returns the section code at `at` and the offset of its value, which may not have arrived yet."""
    if view[at] != 0:
        raise MessageFault(INVALID)
    form = view[at + 1]
    if form == 0x53:
        return view[at + 2], at + 3
    if form == 0x80 and at + 10 <= len(view):
        return int.from_bytes(view[at + 2 : at + 10], "big"), at + 10
    if form in (0xA3, 0xB3):  # a symbolic descriptor is legal AMQP, and rare
        name, value_at = decode(view, at + 1)
        return SYMBOLIC.get(name, -1), value_at
    raise MessageFault(INVALID)


SYMBOLIC: Final = {
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


def _field_fault(text: str) -> MessageFault:
    return MessageFault(Condition(name="amqp:invalid-field", description=text))


def _expect_container(constructor: int, code: int) -> None:
    if constructor in (_LISTS if code in (HEADER, PROPERTIES) else _MAPS):
        return
    if code == MESSAGE_ANNOTATIONS:
        raise _field_fault("Invalid message annotations section - missing map type")
    raise MessageFault(INVALID)


def _contents(view: memoryview, at: int) -> tuple[int, int, int]:
    """Returns (element count, offset of the first, end) of the list or map whose constructor is at `at`.

    Errors  IndexError or MessageFault if it has no room for its count or ends after the view.
    """
    constructor = view[at]
    if constructor == 0x45:
        return 0, at + 1, at + 1
    if constructor in (0xC0, 0xC1):
        count, first, end = view[at + 2], at + 3, at + 2 + view[at + 1]
    else:
        count, first = int.from_bytes(view[at + 5 : at + 9], "big"), at + 9
        end = at + 5 + int.from_bytes(view[at + 1 : at + 5], "big")
    if not first <= end <= len(view):
        raise MessageFault(INVALID)
    return count, first, end


def _property(buffer: Buffer, size: int, properties_at: int, index: int) -> Any:
    try:
        found = _property_at(buffer, size, properties_at, index)
        return decode(*found)[0] if found is not None else None
    except (CodecError, IndexError):
        raise MessageFault(INVALID) from None


def _property_at(buffer: Buffer, size: int, properties_at: int, index: int) -> tuple[memoryview, int] | None:
    """Returns the place of a field of the properties, or None. Errors: CodecError, IndexError."""
    if properties_at < 0:
        return None
    view = memoryview(buffer)[:size]
    count, at, end = _contents(view, properties_at)
    if index >= count:
        return None
    view = view[:end]  # receivers do not read a field that is after the list's end
    for _ in range(index):
        at = skip(view, at)
    return view, at


def user_id(buffer: Buffer, size: int, properties_at: int) -> bytes | None:
    """Returns properties.user-id, None if absent. A value of another type counts as malformed.

    A user-id after a message-id that is a list or map also counts as malformed. Otherwise a client that uses the count
    would find another user-id than a client that uses the size.
    """
    if properties_at < 0:
        return None
    try:
        view = memoryview(buffer)[:size]
        count, at, end = _contents(view, properties_at)
        if count < 2:
            return None
        view = view[:end]  # receivers do not read a field that is after the list's end
        if not 0x40 <= view[at] < 0xC0:
            raise MessageFault(INVALID)
        value = decode(view, skip(view, at))[0]
    except (CodecError, IndexError):
        raise MessageFault(INVALID) from None
    if value is not None and not isinstance(value, bytes):
        raise MessageFault(INVALID)
    return value


def to(buffer: Buffer, size: int, properties_at: int) -> str | None:
    """Returns properties.to as text, None if absent."""
    value = _property(buffer, size, properties_at, 2)
    if value is None:
        return None
    if not isinstance(value, str):
        raise MessageFault(INVALID)
    return str(value)


def subject(buffer: Buffer, size: int) -> str | None:
    """Returns properties.subject as text, None if it is absent or not in the part that has arrived."""
    try:
        properties_at = find_properties(buffer, size)
        if properties_at == LOOK_CLOSER:
            properties_at = find(buffer, size, may_be_opaque=True).properties_at
        found = _property_at(buffer, size, properties_at, 3)
        if found is None or found[0][found[1]] not in _STRINGS:
            return None  # reading a list of ten thousand values would take long
        return str(decode(*found)[0])
    except (MessageFault, CodecError, IndexError):
        return None


def reply_to(buffer: Buffer, size: int, properties_at: int) -> str | None:
    """Returns properties.reply-to as text, None if it is absent or no text: no receiver could use it."""
    value = _property(buffer, size, properties_at, 4)
    return str(value) if isinstance(value, str) and not isinstance(value, symbol) else None


# Annotations. The user's annotations are moved as bytes: decoding and encoding could change them.


@dataclass(slots=True)
class Annotations:
    """The contents of a message-annotations map.

    users        the user's keys and values, encoded, one after the other
    users_count  the number of these keys and values
    routers      the router's annotations, decoded, by key
    """

    users: bytes = b""
    users_count: int = 0
    routers: dict[str, Any] = field(default_factory=dict)


def take_apart(buffer: Buffer, envelope: Envelope) -> Annotations:
    """Returns the message-annotations, empty if absent. Reads the entries only if the map has a router's key.

    Errors  MessageFault: malformed, or more than MAX_ANNOTATIONS.
    """
    if envelope.annotations_at < 0:
        return Annotations()
    try:
        view = memoryview(buffer)[: envelope.annotations_end]
        _, value_at = descriptor_at(view, envelope.annotations_at)
        count, at, end = _contents(view, value_at)
        if count % 2:
            raise _field_fault("Invalid MA map count (odd number of fields)")
        if buffer.find(ROUTER_PREFIX, at, end) < 0:
            return Annotations(bytes(view[at:end]), count)
        if count > 2 * MAX_ANNOTATIONS:
            raise MessageFault(INVALID)
        return _walk(view[:end], at, count)
    except (CodecError, IndexError):
        raise MessageFault(INVALID) from None


def _walk(view: memoryview, at: int, count: int) -> Annotations:
    users: list[memoryview] = []
    routers: dict[str, Any] = {}
    for _ in range(count // 2):
        value_at = skip(view, at)
        end = skip(view, value_at)
        name = _router_key(view[at:value_at])
        if name is None:
            users.append(view[at:end])
        elif name not in _READ:
            routers[name] = None
        elif end - value_at > MAX_ROUTER_VALUE_BYTES:
            raise MessageFault(INVALID)
        else:
            routers[name] = decode(view, value_at)[0]
        at = end
    if at != len(view):
        raise MessageFault(INVALID)
    return Annotations(b"".join(users), 2 * len(users), routers)


def _router_key(encoded: memoryview) -> str | None:
    """Returns the key as text if it is one of the router's, else None.

    Strings count as well as symbols. Attack: a peer writes a router's key as a string to pass this check.
    """
    width = {0xA1: 2, 0xA3: 2, 0xB1: 5, 0xB3: 5}.get(encoded[0])
    if width is None or bytes(encoded[width : width + len(ROUTER_PREFIX)]) != ROUTER_PREFIX:
        return None
    return bytes(encoded[width:]).decode("ascii", "replace")


_TO, _PHASE, _INGRESS, _TRACE = "x-opt-qd.to", "x-opt-qd.phase", "x-opt-qd.ingress", "x-opt-qd.trace"
_REPLY_TO: Final = "x-opt-qd.reply-to"  # only this router uses it
_PHASES: Final = frozenset((*range(10), 22))  # 22: of fallback destinations
_READ: Final = frozenset((_TO, _PHASE, _INGRESS, _TRACE, _REPLY_TO))


def router_annotations(routers: dict[str, Any]) -> RouterAnnotations:
    """Checks the router's annotations (routing §11.5 lists the faults)."""
    override = routers.get(_TO)
    if override is not None and (not isinstance(override, str) or isinstance(override, symbol)):
        raise _field_fault("to-override not a valid string type")
    trace = routers.get(_TRACE, [])
    if not isinstance(trace, list):
        raise _field_fault("trace annotation is not a list")
    if any(not isinstance(entry, str) for entry in trace):
        raise _field_fault("trace list contains non-string entries")
    ingress = routers.get(_INGRESS)
    if ingress is not None and not isinstance(ingress, str):
        raise _field_fault("ingress router not a string type")
    phase, reply_to = routers.get(_PHASE, 0), routers.get(_REPLY_TO)
    return RouterAnnotations(
        to=override or None,
        phase=int(phase) if isinstance(phase, int) and phase in _PHASES else 0,
        ingress=ingress,
        trace=tuple(map(str, trace)),
        reply_to=str(reply_to) if isinstance(reply_to, str) else None,
    )


def put_together(
    buffer: Buffer, envelope: Envelope, annotations: Annotations, own: RouterAnnotations | None = None
) -> bytes:
    """Returns the message with the user's annotations and `own`: reply-to, phase, to, ingress, trace as in §11.1.

    If there is no annotation, it writes no section.
    """
    pairs = annotations.users + (_encoded(own) if own is not None else b"")
    count = annotations.users_count + (_count(own) if own is not None else 0)
    section = _section(pairs, count) if count else b""
    if envelope.annotations_at >= 0:
        start, end = envelope.annotations_at, envelope.annotations_end
    else:
        start = end = envelope.insert_annotations_at
    return bytes(buffer[:start]) + section + bytes(buffer[end : envelope.size])


def section_of(own: RouterAnnotations) -> bytes:
    """Returns the message-annotations for a message without its user's annotations; empty if `own` has none."""
    count = _count(own)
    return _section(_encoded(own), count) if count else b""


def _section(pairs: bytes, count: int) -> bytes:
    if len(pairs) < 255 and count < 256:
        return b"\x00\x53\x72\xc1" + bytes((len(pairs) + 1, count)) + pairs
    return b"\x00\x53\x72\xd1" + (len(pairs) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + pairs


def _present(own: RouterAnnotations) -> list[tuple[str, Any]]:
    fields = (
        (_REPLY_TO, own.reply_to),
        (_PHASE, own.phase or None),
        (_TO, own.to),
        (_INGRESS, own.ingress),
        (_TRACE, list(own.trace) or None),
    )
    return [(key, value) for key, value in fields if value is not None]


def _encoded(own: RouterAnnotations) -> bytes:
    return b"".join(encode(symbol(key)) + encode(value) for key, value in _present(own))


def _count(own: RouterAnnotations) -> int:
    return 2 * len(_present(own))
