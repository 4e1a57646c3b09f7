"""The AMQP engine. Only `library` imports proton; `connection` is the engine of one connection."""

from router.amqp.engine.connection import Engine, Owner, limit_slices
from router.amqp.engine.intake import Intake
from router.amqp.engine.library import MESSAGE, STREAM_AT_BYTES, load_message, message_bytes
from router.amqp.engine.links import IncomingWire, LinkOwner, OutgoingWire, Session, SessionOwner
from router.amqp.engine.values import MAX_CONTROL_VALUE_BYTES, EngineError
from router.amqp.guard import CannotBegin

__all__ = [
    "MAX_CONTROL_VALUE_BYTES",
    "MESSAGE",
    "STREAM_AT_BYTES",
    "CannotBegin",
    "Engine",
    "EngineError",
    "IncomingWire",
    "Intake",
    "LinkOwner",
    "OutgoingWire",
    "Owner",
    "Session",
    "SessionOwner",
    "limit_slices",
    "load_message",
    "message_bytes",
]
