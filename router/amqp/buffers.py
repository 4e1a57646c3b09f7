"""The buffer that sockets deliver into. What is in it is consumed before the next read: one buffer for all."""

from typing import Final

READ_BUFFER: Final = bytearray(64 * 1024)
