"""Reads the messages that clients send to a transaction coordinator. Source: AMQP 1.0 §4.5."""

from typing import Final

from router.amqp.codec import CodecError, decode_message
from router.core.routed import EMPTY
from router.values import Condition, Described

_DECLARE: Final = (0x31, "amqp:declare:list")
_DISCHARGE: Final = (0x32, "amqp:discharge:list")
# Attack: a message of many small values that take long to decode. A Discharge has two values.
MAX_BYTES: Final = 4096
MAX_VALUES: Final = 256


def read_request(message: bytes) -> bytes | Condition | None:
    """Returns the transaction id of a Discharge; None for a Declare; the error for anything else."""
    try:
        body = decode_message(message, max_values=MAX_VALUES).body if len(message) <= MAX_BYTES else None
    except CodecError:
        body = None
    if isinstance(body, Described):
        if body.descriptor in _DECLARE:
            return None
        if body.descriptor in _DISCHARGE and isinstance(body.value, list) and body.value:
            name = body.value[0]
            if isinstance(name, bytes):
                return name
    return EMPTY
