"""The only module that imports proton's C library, and the buffers that Python and C share.

proton's C functions are called directly (`cproton_ffi.lib`), never through its object wrappers: those cost forty times
as much for each message.
"""

from typing import Any, Final

from cproton_ffi import ffi, lib

from router.amqp.buffers import READ_BUFFER

__all__ = [
    "MESSAGE",
    "MESSAGE_BYTES",
    "MESSAGE_C",
    "OUTPUT_BYTES",
    "OUTPUT_C",
    "OUTPUT_VIEW",
    "READ_C",
    "Pointer",
    "ffi",
    "lib",
]

Pointer = Any  # a cffi pointer

# A message up to this size is forwarded in one piece. A larger one, or one still incomplete at this size, is streamed.
STREAM_AT_BYTES: Final = 128 * 1024
MESSAGE_BYTES: Final = 256 * 1024  # one more read (64 KiB) and one frame still fit after STREAM_AT_BYTES
MESSAGE = bytearray(MESSAGE_BYTES)  # the message being routed at this moment; the loop is single-threaded
MESSAGE_C = ffi.from_buffer(MESSAGE)
_MESSAGE_VIEW = memoryview(MESSAGE)

READ_C = ffi.from_buffer(READ_BUFFER)

OUTPUT_BYTES: Final = 256 * 1024
_OUTPUT = bytearray(OUTPUT_BYTES)  # an engine's output is copied from here before the next engine's
OUTPUT_C = ffi.from_buffer(_OUTPUT)
OUTPUT_VIEW = memoryview(_OUTPUT)


def message_bytes(size: int) -> bytes:
    """Returns a copy of the message being routed, for a queue or a slow path."""
    return bytes(_MESSAGE_VIEW[:size])


def load_message(payload: bytes) -> int:
    """Makes `payload` (≤ MESSAGE_BYTES) the message being routed. Returns its size."""
    size = len(payload)
    _MESSAGE_VIEW[:size] = payload
    return size
