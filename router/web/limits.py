"""The limits of HTTP and WebSocket peers. They apply before a login, because an HTTP peer has none.

Source: docs/spec/routing.md §2.
"""

from typing import Final

# Attack: a header section without end. Browsers send 1 to 2 KiB, or 6 KiB with a large cookie of another service.
MAX_HEAD_BYTES: Final = 8 * 1024
# Attack: thousands of headers of a few bytes, each of which becomes an object.
MAX_HEADERS: Final = 64
# Attack: a header section that arrives byte by byte (slowloris).
HEAD_S: Final = 10.0
# Attack: connections that are kept after a response and never used again.
KEEP_ALIVE_S: Final = 15.0
# Attack: one connection that sends requests forever, which no rate limit at accept notices.
MAX_REQUESTS: Final = 256
# Attack: a peer that does not read its response.
STALL_S: Final = 20.0
# Attack: requests sent in advance, while a response is under way, to fill the memory with them.
MAX_EARLY_BYTES: Final = 16 * 1024
# The bytes of a file that one connection holds at a time.
PIECE_BYTES: Final = 128 * 1024
# Attack: many connections that each hold a file open, until the router has no descriptor left.
MAX_OPEN_FILES: Final = 32
# The bytes held for an HTTP or WebSocket peer in addition to its connection: a head, an unfinished frame, the objects.
WEB_BYTES: Final = 24 * 1024

# Attack: a frame that announces terabytes, so that no Close or Ping of the peer can follow for years. Before the peer
# is known, a frame, or a message in fragments, must not be larger than a login may be.
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
MAX_MESSAGE_BYTES_BEFORE_OPEN: Final = 128 * 1024
# Attack: Pings, each of which is answered, and empty frames, each of which costs a read. The limits at once, and per
# second.
EMPTY_FRAMES_BURST: Final = 64
EMPTY_FRAMES_PER_S: Final = 4.0
# The number of frames handled before the caller checks the clock.
FRAMES_AT_ONCE: Final = 16
