"""What a neighbour can make this router hold and do. Each bound names its attack.

A neighbour that lies costs reachability to what it claims, and nothing more: what it can use up is its own.
"""

from dataclasses import dataclass
from typing import Final

# The protocol's: routers known to one router, itself included (network §1).
MAX_ROUTERS: Final = 128
MAX_ROUTER_ID_CHARACTERS: Final = 127
# Sequence numbers and costs beyond these are malformed. Attack: numbers that no later one exceeds or that no integer of
# the wire can carry on.
MAX_SEQUENCE: Final = 2**63 - 1
MAX_COST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds that an operator may want to change."""

    # Attack: a control message that takes long to decode and to hold. The core looks before it decodes.
    control_message_bytes: int = 4 * 1024 * 1024
    # Attack: a flood of control messages. 128 routers that all change send less than half of it over one link.
    messages_per_link_and_tick: int = 2048
    # Attack: log lines without end about malformed messages.
    complaints_per_link_and_tick: int = 8
    # Attack: one small request in the name of a victim, one large answer to it.
    link_state_answers_per_router_and_tick: int = 4
    address_answers_per_router_and_tick: int = 2
    # Attack: as before, in the name of everybody. What is due beyond it is sent at later ticks.
    answered_addresses_per_tick: int = 200_000
    # Attack: advertisements of link states that do not exist, each of which would ask their router.
    link_state_requests_per_router_and_tick: int = 4
    # Attack: advertisements that differ in a number, each of which the whole network would carry on.
    floods_per_router_and_tick: int = 16
    # Attack: addresses without end, by one router or in the names of many over one link; long addresses.
    addresses_per_router: int = 65_536
    addresses_per_link: int = 1_000_000
    address_bytes_per_link: int = 64 * 1024 * 1024
    address_characters: int = 4096
    # Attack: an update of four million small values, each of which takes ten times its bytes once it is decoded.
    values_per_address: int = 8

    @property
    def control_message_values(self) -> int:
        """In one control message, at most."""
        return self.values_per_address * self.addresses_per_router + 4096


# What an address of another router holds here, beside its characters. It is charged to the neighbour.
ADDRESS_BYTES: Final = 2048
