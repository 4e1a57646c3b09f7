"""The buffer for reads from sockets. Its bytes are used before the next read, so all connections share it."""

from typing import Final

READ_BYTES: Final = 64 * 1024  # of one read
MOST_READ_BYTES: Final = 2 * READ_BYTES  # of a read that is little work for its bytes: of large messages
# Before a read, the beginning of an unfinished frame is put in front of it, up to READ_BYTES.
READ_BUFFER: Final = bytearray(READ_BYTES + MOST_READ_BYTES)

# The largest frame that is accepted before the peer's Open, independent of maxFrameSize. Attack: an unknown peer
# announces an Open of gigabytes and sends most of it.
MAX_OPEN_BYTES: Final = 512 * 1024
