"""Control messages as bytes. Maps and lists of the body are written in their wide form, as 1.20 writes them.

Source: docs/spec/network.md §5.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from router.amqp import sections
from router.amqp.codec import CodecError, decode_message, encode
from router.amqp.sections import MessageFault, RouterAnnotations
from router.values import symbol

# A header that says `durable: false`, and nothing else.
_HEADER: Final = bytes.fromhex("005370d0000000050000000142")
# Their keys are symbols, and their properties end with the address.
_OF_MOBILE: Final = ("MAR", "MAU")


class Unreadable(ValueError):
    """Bytes that are no control message. The text holds nothing of the peer's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """to     the address that the message names
    trace  the nodes that it passed, `0/ID`
    """

    to: str
    trace: tuple[str, ...]


def encode_control(node: str, to: str, opcode: str, body: dict[str, Any]) -> bytes:
    """A message of this router's. node  `0/ID`"""
    annotations = {symbol("x-opt-qd.ingress"): node, symbol("x-opt-qd.trace"): [node]}
    is_of_mobile = opcode in _OF_MOBILE
    key: str = symbol("opcode") if is_of_mobile else "opcode"
    properties = [None, None, to] if is_of_mobile else [None, None, to, None, None, None]
    return b"".join(
        (
            _HEADER,
            b"\x00\x53\x72" + encode(annotations),
            b"\x00\x53\x73" + _wide(properties),
            b"\x00\x53\x74" + _wide({key: opcode}),
            b"\x00\x53\x77" + _wide(body),
        )
    )


def _wide(value: Any) -> bytes:
    if isinstance(value, dict):
        parts, constructor = [_wide(part) for pair in value.items() for part in pair], 0xD1
    elif isinstance(value, list | tuple):
        parts, constructor = [_wide(part) for part in value], 0xD0
    else:
        return encode(value)
    content = b"".join(parts)
    return bytes((constructor,)) + (len(content) + 4).to_bytes(4, "big") + len(parts).to_bytes(4, "big") + content


def read_envelope(payload: bytes) -> Envelope:
    """Where a message goes and where it was. Its body is not looked at. Errors: Unreadable"""
    try:
        found = sections.find(payload, len(payload))
        to = sections.to(payload, len(payload), found.properties_at)
        taken = sections.router_annotations(sections.take_apart(payload, found).routers)
    except MessageFault as fault:
        raise Unreadable(fault.condition.description) from None
    if not to:
        raise Unreadable("no address")
    return Envelope(to=to, trace=taken.trace)


def read_content(payload: bytes) -> tuple[Any, Any]:
    """(application-properties, body); None without. Errors: Unreadable"""
    try:
        message = decode_message(payload)
    except CodecError as error:
        raise Unreadable(str(error)) from None
    return message.application_properties or None, message.body


def forwarded(payload: bytes, node: str) -> bytes:
    """The message as it leaves this router: it is in the trace. `read_envelope` has read it."""
    found = sections.find(payload, len(payload))
    taken = sections.take_apart(payload, found)
    own = sections.router_annotations(taken.routers)
    passed: RouterAnnotations = replace(own, trace=(*own.trace, node))
    return sections.put_together(payload, found, taken, passed)
