"""Encodes and decodes control messages. Maps and lists of the body have the wide form, as in 1.20.

Source: docs/spec/network.md §5.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, Final

from router.amqp import sections
from router.amqp.codec import CodecError, decode, decode_message, encode
from router.amqp.sections import MessageFault, RouterAnnotations
from router.amqp.stepwise import AT_ONCE, decode_in_steps, encode_wide, encode_wide_in_steps
from router.values import symbol, ulong

# A header that contains only `durable: false`.
_HEADER: Final = bytes.fromhex("005370d0000000050000000142")
# Attack: a trace of a million entries, which would be read at once. The trace of 128 routers with the longest ids has
# 17 kB.
MAX_BYTES_BEFORE_THE_BODY: Final = 64 * 1024
# The descriptor of a section whose body is one value, and the maximum size of a descriptor.
_VALUES: Final = (ulong(0x77), symbol("amqp:amqp-value:*"))
_DESCRIPTOR_BYTES: Final = 32
# Opcodes with symbols as keys, and with properties that end with the address.
_OF_MOBILE: Final = ("MAR", "MAU")


class Unreadable(ValueError):
    """Bytes that are no control message. The text contains nothing from the peer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The front of a control message.

    to     the address that the message names
    trace  the nodes that it passed, `0/ID`
    """

    to: str
    trace: tuple[str, ...]


def encode_control(node: str, to: str, opcode: str, body: dict[str, Any]) -> bytes:
    """Encodes a message of this router.

    node  `0/ID`
    """
    return _before_the_body(node, to, opcode) + encode_wide(body)


def is_long(body: dict[str, Any]) -> bool:
    """Returns True if a body takes so long to encode that it must be encoded in steps."""
    return any(isinstance(value, list) and len(value) > AT_ONCE for value in body.values())


def encode_control_in_steps(node: str, to: str, opcode: str, body: dict[str, Any]) -> Generator[None, None, bytes]:
    """Encodes like `encode_control`, but in steps."""
    encoded = yield from encode_wide_in_steps(body)
    return _before_the_body(node, to, opcode) + encoded


def _before_the_body(node: str, to: str, opcode: str) -> bytes:
    annotations = {symbol("x-opt-qd.ingress"): node, symbol("x-opt-qd.trace"): [node]}
    is_of_mobile = opcode in _OF_MOBILE
    key: str = symbol("opcode") if is_of_mobile else "opcode"
    properties = [None, None, to] if is_of_mobile else [None, None, to, None, None, None]
    return b"".join(
        (
            _HEADER,
            b"\x00\x53\x72" + encode(annotations),
            b"\x00\x53\x73" + encode_wide(properties),
            b"\x00\x53\x74" + encode_wide({key: opcode}),
            b"\x00\x53\x77",
        )
    )


def read_envelope(payload: bytes) -> Envelope:
    """Returns the address and the trace of a message. Does not read its body. Errors: Unreadable"""
    try:
        found = sections.find(payload, len(payload))
        if found.body_at > MAX_BYTES_BEFORE_THE_BODY:
            raise Unreadable("too much before its body")
        to = sections.to(payload, len(payload), found.properties_at)
        taken = sections.router_annotations(sections.take_apart(payload, found).routers)
    except MessageFault as fault:
        raise Unreadable(fault.condition.description) from None
    if not to:
        raise Unreadable("no address")
    return Envelope(to=to, trace=taken.trace)


def read_content(payload: bytes) -> tuple[Any, Any]:
    """Returns (application-properties, body); None if absent. Errors: Unreadable"""
    try:
        message = decode_message(payload)
    except CodecError as error:
        raise Unreadable(str(error)) from None
    return message.application_properties or None, message.body


def read_content_in_steps(payload: bytes, max_values: int) -> Generator[None, None, tuple[Any, Any]]:
    """Reads like `read_content`, in steps. `read_envelope` must have read the message. Yields every AT_ONCE values.

    max_values  accepted in the lists and maps of the body
    """
    try:
        at = sections.find(payload, len(payload)).body_at
        before = decode_message(payload[:at])
        yield
        descriptor, value_at = decode(payload[at + 1 : at + 1 + _DESCRIPTOR_BYTES]) if at < len(payload) else (None, 0)
        if descriptor not in _VALUES:
            raise CodecError("the body of a long control message is one value")
        body, end = yield from decode_in_steps(payload, at + 1 + value_at, max_values)
        if end != len(payload):
            raise CodecError("something follows the body")
    except (CodecError, MessageFault) as error:
        raise Unreadable(str(error)) from None
    return before.application_properties or None, body


def forwarded(payload: bytes, node: str) -> bytes:
    """Returns the message with this router added to its trace. `read_envelope` must have read it."""
    found = sections.find(payload, len(payload))
    taken = sections.take_apart(payload, found)
    own = sections.router_annotations(taken.routers)
    passed: RouterAnnotations = replace(own, trace=(*own.trace, node))
    return sections.put_together(payload, found, taken, passed)
