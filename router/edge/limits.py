"""The limits for what a peer can make either side hold and do. Each limit names its attack."""

from dataclasses import dataclass
from typing import Final

# The credit of the protocol's links (network §14.2).
LINK_CREDIT: Final = 250
TRACKING_CREDIT: Final = 32
MANAGEMENT_REPLY_CREDIT: Final = 100
LOOKUP_CREDIT: Final = 32
HEARTBEAT_CREDIT: Final = 2

# The characters of an address in a look-up or a tracking message. Attack: texts that take long to store and compare.
MAX_ADDRESS_CHARACTERS: Final = 4096
# The size of a peer's data that its answer must return. Attack: a small request, a large answer.
MAX_CORRELATION_CHARACTERS: Final = 256
# The size of a message to or from a service. Attack: a message without end, held until it can be decoded.
MAX_MESSAGE_BYTES: Final = 16 * 1024
# The characters of a peer's text in a log line.
MAX_SHOWN_CHARACTERS: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits that an operator may want to change."""

    # Attack: clients that attach endlessly while the interior answers slowly. Look-ups beyond this number are decided
    # here.
    waiting_lookups: int = 4096
    # Attack: an interior that never answers keeps every link route request open.
    waiting_management_requests: int = 1024
    # Attack: an edge that never closes its links, each for another address. All of them are its connection's, and this
    # number of them is tracked. Links beyond it are attached and never used.
    tracked_addresses_per_edge: int = 65_536
    # Attack: an edge opens one heartbeat link after the other.
    heartbeat_links_per_connection: int = 4
    # Attack: endless log lines about malformed messages of one connection. This is the limit per second.
    complaints_per_connection_and_tick: int = 8
