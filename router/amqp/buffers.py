"""The buffer that sockets deliver into. Its bytes are consumed before the next read: one buffer for all."""

from typing import Final

READ_BYTES: Final = 64 * 1024  # of one read
MOST_READ_BYTES: Final = 2 * READ_BYTES  # of one that is little work for its bytes: of large messages
# Before a read, the beginning of the frame that it goes on with is laid in front of it, up to READ_BYTES.
READ_BUFFER: Final = bytearray(READ_BYTES + MOST_READ_BYTES)

# The largest frame that is taken before the peer's Open, whatever maxFrameSize says. Attack: a peer that nobody knows
# announces an Open of gigabytes and sends most of it.
MAX_OPEN_BYTES: Final = 512 * 1024
