"""Encodes and decodes AMQP 1.0 values and whole messages. Pure, strict, bounded.

Other modules use router.amqp.encoding and router.amqp.decoding through this one. It is for messages that the router
itself writes and reads (management, router control). Forwarded messages are never decoded. Source: AMQP 1.0 part 3,
§3.2.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from router.amqp.decoding import Buffer, CodecError, decode, decode_counted, skip
from router.amqp.encoding import encode
from router.values import Described, symbol, timestamp, ubyte, uint, ulong

__all__ = ["Buffer", "CodecError", "Message", "decode", "decode_message", "encode", "encode_message", "skip"]

_HEADER, _DELIVERY_ANNOTATIONS, _MESSAGE_ANNOTATIONS, _PROPERTIES = 0x70, 0x71, 0x72, 0x73
_APPLICATION_PROPERTIES, _DATA, _SEQUENCE, _VALUE, _FOOTER = 0x74, 0x75, 0x76, 0x77, 0x78
_BODY = (_DATA, _SEQUENCE, _VALUE)

_SYMBOLIC = {
    "amqp:header:list": _HEADER,
    "amqp:delivery-annotations:map": _DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": _MESSAGE_ANNOTATIONS,
    "amqp:properties:list": _PROPERTIES,
    "amqp:application-properties:map": _APPLICATION_PROPERTIES,
    "amqp:data:binary": _DATA,
    "amqp:amqp-sequence:list": _SEQUENCE,
    "amqp:amqp-value:*": _VALUE,
    "amqp:footer:map": _FOOTER,
}
_NAMES = {code: name.split(":")[1] for name, code in _SYMBOLIC.items()}

# Name and accepted Python types of each field, in wire order.
_Fields = tuple[tuple[str, tuple[type, ...]], ...]
_MESSAGE_ID = (ulong, uuid.UUID, bytes, str)
_HEADER_FIELDS: _Fields = (
    ("durable", (bool,)),
    ("priority", (ubyte,)),
    ("ttl_ms", (uint,)),
    ("is_first_acquirer", (bool,)),
    ("delivery_count", (uint,)),
)
_PROPERTY_FIELDS: _Fields = (
    ("message_id", _MESSAGE_ID),
    ("user_id", (bytes,)),
    ("to", (str,)),
    ("subject", (str,)),
    ("reply_to", (str,)),
    # Any type is accepted and returned unchanged: clients send small integers here.
    ("correlation_id", (object,)),
    ("content_type", (symbol, str)),
    ("content_encoding", (symbol, str)),
    ("absolute_expiry_time", (timestamp,)),
    ("creation_time", (timestamp,)),
    ("group_id", (str,)),
    ("group_sequence", (uint,)),
    ("reply_to_group_id", (str,)),
)
_CORRELATION_ID_INDEX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One decoded message. Absent fields are None, absent maps are empty.

    body       the value of an amqp-value section; the joined bytes of data sections; the joined list of amqp-sequence
               sections; None without a body
    body_kind  "value", "data", "sequence" or None
    raw_correlation_id  the correlation-id exactly as it arrived, for encode_message
    value_count  the number of values in the sections if the caller of decode_message limited them; else 0
    """

    durable: bool | None = None
    priority: int | None = None
    ttl_ms: int | None = None
    is_first_acquirer: bool | None = None
    delivery_count: int | None = None
    delivery_annotations: Mapping[Any, Any] = field(default_factory=dict)
    message_annotations: Mapping[Any, Any] = field(default_factory=dict)
    message_id: ulong | uuid.UUID | bytes | str | None = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: Any = None
    raw_correlation_id: bytes | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: timestamp | None = None
    creation_time: timestamp | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None
    application_properties: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    body_kind: str | None = None
    value_count: int = 0


def encode_message(
    *,
    durable: bool = False,
    to: str | None = None,
    reply_to: str | None = None,
    correlation_id: Any = None,
    raw_correlation_id: bytes | None = None,
    subject: str | None = None,
    application_properties: Mapping[str, Any] | None = None,
    body: Any,
) -> bytes:
    """Encodes a message with header, properties, application-properties (if given) and `body` as one amqp-value.

    raw_correlation_id  one encoded value, written unchanged; used instead of `correlation_id`
    Errors  CodecError if a value has no encoding or raw_correlation_id is not exactly one value.
    """
    if raw_correlation_id is None:
        raw_correlation_id = encode(correlation_id)
    elif skip(raw_correlation_id) != len(raw_correlation_id):
        raise CodecError("the raw correlation-id is not exactly one value")
    # message-id and user-id are absent; six fields, the last of them the correlation-id.
    fields = encode(None) * 2 + b"".join(map(encode, (to, subject, reply_to))) + raw_correlation_id
    sections = [
        encode(Described(ulong(_HEADER), [durable])),
        b"\x00" + encode(ulong(_PROPERTIES)) + b"\xd0" + (len(fields) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x06",
        fields,
    ]
    if application_properties is not None:
        sections.append(encode(Described(ulong(_APPLICATION_PROPERTIES), dict(application_properties))))
    sections.append(encode(Described(ulong(_VALUE), body)))
    return b"".join(sections)


def decode_message(data: Buffer, *, max_values: int | None = None) -> Message:
    """Decodes a whole message.

    max_values  accepted in all sections together; None: only the bytes limit them
    Errors  CodecError for malformed values, sections out of order or repeated, fields of the wrong type.
    """
    found: dict[str, Any] = {}
    value_count = 0
    parts: list[Any] = []
    offset, previous = 0, 0
    while offset < len(data):
        if data[offset] != 0:
            raise CodecError("a message is made of described sections")
        start = offset
        descriptor, value_offset = decode(data, offset + 1)
        code = _SYMBOLIC.get(descriptor) if isinstance(descriptor, str) else descriptor
        if not isinstance(code, int) or code not in _NAMES:
            raise CodecError("a message has a section of an unknown kind")
        if code < previous or (code == previous and code not in (_DATA, _SEQUENCE)):
            raise CodecError(f"section {_NAMES[code]} is repeated or out of order")
        if code in _BODY and previous in _BODY and code != previous:
            raise CodecError("a message has bodies of two kinds")
        previous = code
        if max_values is None:
            section, offset = decode(data, start)
        else:
            section, offset, counted = decode_counted(data, start, max_values - value_count)
            value_count += counted
        _take_section(code, section.value, found, parts)
        if code == _PROPERTIES and found.get("correlation_id") is not None:
            found["raw_correlation_id"] = _element(data, value_offset, _CORRELATION_ID_INDEX)
    if found.get("body_kind") == "value":
        found["body"] = parts[0]
    elif found.get("body_kind") == "data":
        found["body"] = b"".join(parts)
    elif found.get("body_kind") == "sequence":
        found["body"] = [element for part in parts for element in part]
    return Message(value_count=value_count, **found)


def _take_section(code: int, value: Any, found: dict[str, Any], parts: list[Any]) -> None:
    name = _NAMES[code]
    wanted = {_HEADER: list, _PROPERTIES: list, _DATA: bytes, _SEQUENCE: list}.get(code, dict)
    if code != _VALUE and not isinstance(value, wanted):
        raise CodecError(f"section {name} holds a {type(value).__name__}")
    if code == _HEADER:
        found |= _fields(name, _HEADER_FIELDS, value)
    elif code == _PROPERTIES:
        found |= _fields(name, _PROPERTY_FIELDS, value)
    elif code == _DELIVERY_ANNOTATIONS:
        found["delivery_annotations"] = value
    elif code == _MESSAGE_ANNOTATIONS:
        found["message_annotations"] = value
    elif code == _APPLICATION_PROPERTIES:
        if not all(isinstance(key, str) for key in value):
            raise CodecError("a key of the application-properties is not text")
        found["application_properties"] = value
    elif code in _BODY:
        found["body_kind"] = {_DATA: "data", _SEQUENCE: "sequence", _VALUE: "value"}[code]
        parts.append(value)


def _fields(section: str, fields: _Fields, values: list[Any]) -> dict[str, Any]:
    if len(values) > len(fields):
        raise CodecError(f"section {section} has more than {len(fields)} fields")
    found = {}
    for (name, types), value in zip(fields, values, strict=False):
        if value is not None:
            if not isinstance(value, types):
                raise CodecError(f"field {name} of section {section} is a {type(value).__name__}")
            found[name] = value
    return found


def _element(data: Buffer, offset: int, index: int) -> bytes:
    """Returns the encoding of one element of the list at `offset`, which is already decoded and so well-formed."""
    offset += {0xC0: 3, 0xD0: 9}[data[offset]]
    for _ in range(index):
        offset = skip(data, offset)
    return bytes(data[offset : skip(data, offset)])
