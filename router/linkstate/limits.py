"""The limits for what a neighbour can make this router hold and do. Each limit names its attack.

A lying neighbour can only damage the reachability of what it claims. It can use up only its own share.
"""

from dataclasses import dataclass
from typing import Final

# The protocol's limit of routers known to one router, including itself (network §1).
MAX_ROUTERS: Final = 128
MAX_ROUTER_ID_CHARACTERS: Final = 127
# Larger sequence numbers and costs are malformed. Attack: numbers that no later number exceeds, or that no integer of
# the protocol can represent after an addition.
MAX_SEQUENCE: Final = 2**63 - 1
MAX_COST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits that an operator may want to change."""

    # Attack: a control message that takes long to decode and to hold. The core checks the size before decoding.
    control_message_bytes: int = 4 * 1024 * 1024
    # Attack: a flood of control messages. If all of 128 routers change, they send less than half of this on one link.
    messages_per_link_and_tick: int = 2048
    # Attack: endless log lines about malformed messages.
    complaints_per_link_and_tick: int = 8
    # Attack: one small request in the name of a victim causes a large answer to it.
    link_state_answers_per_router_and_tick: int = 4
    address_answers_per_router_and_tick: int = 2
    # Attack: the same, in the names of all routers. Answers beyond this limit are sent at later ticks.
    answered_addresses_per_tick: int = 200_000
    # Attack: advertisements of link states that do not exist. Each would cause a request to its router.
    link_state_requests_per_router_and_tick: int = 4
    # Attack: advertisements that differ in a number. The whole network would forward each of them.
    floods_per_router_and_tick: int = 16
    # Attack: endless addresses, of one router or in the names of many on one link; long addresses.
    addresses_per_router: int = 65_536
    addresses_per_link: int = 1_000_000
    address_bytes_per_link: int = 64 * 1024 * 1024
    address_characters: int = 4096
    # Attack: an update of four million small values. When decoded, each takes ten times its bytes.
    values_per_address: int = 8

    @property
    def control_message_values(self) -> int:
        """The maximum of values in one control message."""
        return self.values_per_address * self.addresses_per_router + 4096


# The bytes that an address of another router takes here, without its characters. They are charged to the neighbour.
ADDRESS_BYTES: Final = 2048
