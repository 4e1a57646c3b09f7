"""Bounds what a peer's delivery states may have the engine hold beside a delivery's record. Pure.

The engine keeps a state's bytes for each delivery that the frame names, and where the state is given on, a node of many
bytes for each value in it, on both sides: a null is one byte on the wire. Attack: outcomes with a list of 1,900 nulls,
not settled; 8 MB of them took 1.1 GB. One frame that names thousands of deliveries had a copy made for each.
"""

from typing import Final

from router.amqp.encoding import Encoded, encode
from router.amqp.guard.performatives import DISPOSITION, FRAME_HEADER_BYTES, Performative, Refused
from router.amqp.guard.shapes import field_of
from router.values import Described, uint, ulong

# What the engine holds for one value that it was asked for: a node, which it makes by doubling their number.
VALUE_BYTES: Final = 80
# A state up to this size is covered by the delivery's record (router.core.budget.RECORD_BYTES).
PLAIN_VALUES: Final = 7
PLAIN_BYTES: Final = 256
# No client needs more values in one state; so many bytes all copies of one frame's state may take.
MAX_VALUES: Final = 64
MAX_COPIES_BYTES: Final = 1024 * 1024
# Rejected and modified, and the fields that are left of them without details.
_OUTCOME_FIELDS: Final = {0x25: 0, 0x27: 2}
_WIDTH: Final = {0x53: 1, 0x80: 8}  # bytes of a descriptor by its constructor
_NULL: Final = b"\x40"


def details_bytes(performative: Performative) -> int:
    """The memory that the state of a Transfer or Disposition takes for each delivery, beside the record; 0: none."""
    state = performative.kept.get("state", b"")
    if performative.values <= PLAIN_VALUES and len(state) <= PLAIN_BYTES:
        return 0
    return 3 * len(state) + 2 * VALUE_BYTES * performative.values


def is_too_large(performative: Performative, *, deliveries: int) -> bool:
    """Does a receiver's state hold more than there may be, for so many deliveries?"""
    return performative.values > MAX_VALUES or details_bytes(performative) * deliveries > MAX_COPIES_BYTES


def refusal(performative: Performative) -> Refused:
    """What a frame is refused with whose state is too large."""
    size = f"{performative.values} values and {len(performative.kept['state'])} bytes"
    return Refused("amqp:resource-limit-exceeded", f"a delivery state of {size} is more than is kept of one")


def without_details(performative: Performative) -> bytes:
    """The frame of a Disposition, its outcome left and the details dropped.

    Errors: Refused, where the state is nothing but its details.
    """
    state, fields = performative.kept["state"], performative.fields
    code = int.from_bytes(state[2 : 2 + _WIDTH.get(state[1], 0)], "big")
    kept = _OUTCOME_FIELDS.get(code)
    if kept is None:
        raise refusal(performative)
    outcome = [Encoded(field_of(state, index) or _NULL) for index in range(kept)]
    last = uint(fields["last"]) if "last" in fields else None
    said = [bool(fields["role"]), uint(fields["first"]), last, bool(fields.get("settled"))]
    body = encode(Described(ulong(DISPOSITION), [*said, Described(ulong(code), outcome)]))
    size_bytes = (len(body) + FRAME_HEADER_BYTES).to_bytes(4, "big")
    return size_bytes + b"\x02\x00" + performative.channel.to_bytes(2, "big") + body
