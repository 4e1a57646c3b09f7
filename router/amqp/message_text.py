"""Formats a message's properties as one log line (messageLoggingComponents).

Pure; never raises. Source: docs/spec/management.md §4.6, docs/spec/routing.md §21.
"""

import datetime
from collections.abc import Callable, Mapping
from typing import Any, Final

from router.amqp.codec import CodecError, decode_message
from router.values import symbol, timestamp

# Component name → field of the decoded message, in printing order.
COMPONENTS: Final[Mapping[str, str]] = {
    "message-id": "message_id",
    "user-id": "user_id",
    "to": "to",
    "subject": "subject",
    "reply-to": "reply_to",
    "correlation-id": "correlation_id",
    "content-type": "content_type",
    "content-encoding": "content_encoding",
    "absolute-expiry-time": "absolute_expiry_time",
    "creation-time": "creation_time",
    "group-id": "group_id",
    "group-sequence": "group_sequence",
    "reply-to-group-id": "reply_to_group_id",
    "app-properties": "application_properties",
}


def chosen_components(configured: str) -> tuple[str, ...]:
    """Returns the components that a messageLoggingComponents text names, in printing order. Ignores unknown words."""
    words = configured.split(",")
    if "all" in words:
        return tuple(COMPONENTS)
    return tuple(name for name in COMPONENTS if name in words)


def message_text(payload: bytes, components: tuple[str, ...]) -> str:
    """Returns `Message{name=value, ...}` with those of `components` that the message has."""
    try:
        message = decode_message(payload)
    except CodecError:
        return "malformed message"
    values = ((name, getattr(message, COMPONENTS[name])) for name in components)
    # An absent property is None, and an absent map is empty.
    shown = (f"{name}={value_text(value)}" for name, value in values if value is not None and value != {})
    return "Message{" + ", ".join(shown) + "}"


def value_text(value: Any) -> str:
    """Returns the text of one AMQP value:

    `"x"`, `:"x"`, `b"x"`, `T`, `null`, `[a, b]`, `{"k"=v}`, a time, or a number.
    """
    for kind, write in _WRITERS:
        if isinstance(value, kind):
            return write(value)
    return str(value)


def _binary(value: bytes) -> str:
    return 'b"' + "".join(chr(byte) if 32 <= byte < 127 else f"\\{byte:02x}" for byte in value) + '"'


def _time(value: timestamp) -> str:
    try:
        moment = datetime.datetime.fromtimestamp(value / 1000, datetime.UTC).astimezone()
    except (OverflowError, OSError, ValueError):  # a peer may send any year
        return str(int(value))
    return moment.strftime('"%Y-%m-%d %H:%M:%S.') + f"{moment.microsecond // 1000:03d} " + moment.strftime('%z"')


_WRITERS: Final[tuple[tuple[type, Callable[[Any], str]], ...]] = (
    (type(None), lambda _value: "null"),
    (bool, lambda value: "T" if value else "F"),
    (timestamp, _time),
    (symbol, lambda value: f':"{value}"'),
    (str, lambda value: f'"{value}"'),
    (bytes, _binary),
    (list, lambda value: "[" + ", ".join(map(value_text, value)) + "]"),
    (dict, lambda value: "{" + ", ".join(f"{value_text(k)}={value_text(v)}" for k, v in value.items()) + "}"),
)
