"""What a peer can make either side hold and do. Each bound names its attack."""

from dataclasses import dataclass
from typing import Final

# Credit that the protocol's links have (network §14.2).
LINK_CREDIT: Final = 250
TRACKING_CREDIT: Final = 32
MANAGEMENT_REPLY_CREDIT: Final = 100
LOOKUP_CREDIT: Final = 32
HEARTBEAT_CREDIT: Final = 2

# Characters of an address in a look-up or a tracking message. Attack: texts that take long to hold and compare.
MAX_ADDRESS_CHARACTERS: Final = 4096
# Of what a peer wants to have back in its answer. Attack: a small request, a large answer.
MAX_CORRELATION_CHARACTERS: Final = 256
# Of a message to or from a service. Attack: one without end, held to be decoded.
MAX_MESSAGE_BYTES: Final = 16 * 1024
# Of the log line about a peer's text.
MAX_SHOWN_CHARACTERS: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds that an operator may want to change."""

    # Attack: clients that attach and attach while the interior answers slowly. Those beyond it are decided here.
    waiting_lookups: int = 4096
    # Attack: an interior that never answers keeps every request of the link routes open.
    waiting_management_requests: int = 1024
    # Attack: an edge whose links, each for another address, are never closed: all of them are its connection's, and so
    # many of them are tracked. The links beyond it are attached and never used.
    tracked_addresses_per_edge: int = 65_536
    # Attack: an edge opens one heartbeat link after the other.
    heartbeat_links_per_connection: int = 4
    # Attack: log lines without end about malformed messages of one connection, each second.
    complaints_per_connection_and_tick: int = 8
