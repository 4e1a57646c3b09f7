"""Messages between an edge router and its interior: encodes service messages, and annotates users' messages.

Source: docs/spec/network.md §14.3, §14.5-§14.8.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from router.amqp import sections
from router.amqp.codec import CodecError, decode_message, encode
from router.amqp.engine import MESSAGE
from router.amqp.sections import RouterAnnotations
from router.connection.vouching import vouched
from router.core.attachments import Attachment
from router.core.in_links import InLink, Redirected
from router.edge.messages import Message
from router.values import Described, Handle, symbol, ulong

# Attack: a message of many small values that take long to decode.
MAX_VALUES: Final = 256
_HEADER, _ANNOTATIONS, _PROPERTIES, _APPLICATION_PROPERTIES, _VALUE = 0x70, 0x72, 0x73, 0x74, 0x77


class Unreadable(ValueError):
    """The bytes are not a message. The text contains nothing that the peer sent."""


def encode_service(message: Message, node: str) -> bytes:
    """Encodes a service message of this router.

    node  `0/ID`
    """
    parts: list[tuple[int, Any]] = []
    if message.has_header:
        parts.append((_HEADER, [False]))
    annotations = {symbol("x-opt-qd.ingress"): node, symbol("x-opt-qd.trace"): [node]}
    parts.append((_ANNOTATIONS, annotations))
    named = (message.to, message.reply_to, message.correlation_id)
    if named != (None, None, None):
        parts.append((_PROPERTIES, [None, None, message.to, None, message.reply_to, message.correlation_id]))
    if message.application_properties is not None:
        parts.append((_APPLICATION_PROPERTIES, dict(message.application_properties)))
    parts.append((_VALUE, message.body))
    return b"".join(encode(Described(ulong(code), value)) for code, value in parts)


def decode_service(payload: bytes) -> Message:
    """Decodes a service message. Errors: Unreadable"""
    try:
        found = decode_message(payload, max_values=MAX_VALUES)
    except CodecError as error:
        raise Unreadable(str(error)) from None
    return Message(
        body=found.body,
        to=found.to,
        reply_to=found.reply_to,
        correlation_id=found.correlation_id,
        application_properties=dict(found.application_properties) or None,
    )


def without_route(link: InLink, inspect: Callable[[Handle, int], int]) -> Callable[[Handle, int], int]:
    """Wraps `inspect` for a link between an edge and an interior: drops the ingress and trace that the message claims.

    Attack: an edge names another router as the ingress of its messages, so that they are lost or travel in circles.
    """

    def look(delivery: Handle, size: int) -> int:
        size = inspect(delivery, size)
        taken = link.annotations
        if size >= 0 and isinstance(taken, RouterAnnotations) and (taken.trace or taken.ingress is not None):
            link.annotations = replace(taken, ingress=None, trace=())
        return size

    return look


def edge_composer(link: InLink | None, size: int) -> bytes:
    """Composes messages on an edge router, without ingress and trace. The message in the buffer was inspected."""
    return _composed(link, size, None)


def telling_composer(link: InLink | None, size: int) -> bytes:
    """Composes the same message for an interior that receives reply-tos."""
    return _composed(link, size, vouched(link, size))


def uplink_composer(attachment: Attachment) -> Callable[[InLink | None, int], bytes]:
    return telling_composer if attachment.vouches else edge_composer


def _composed(link: InLink | None, size: int, reply_to: str | None) -> bytes:
    taken = link.annotations if link is not None else None
    named = link.wire.named if link is not None else None
    is_own = named is not None and not isinstance(taken, Redirected)
    to = named.full if named is not None and is_own else taken.to if taken is not None else None
    own = RouterAnnotations(to=to, phase=taken.phase if taken is not None else 0, reply_to=reply_to)
    envelope = sections.find(MESSAGE, size, may_be_opaque=True)
    return sections.put_together(MESSAGE, envelope, sections.take_apart(MESSAGE, envelope), own)
