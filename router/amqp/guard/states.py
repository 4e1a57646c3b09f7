"""Limits what a peer's delivery states can make the engine hold in addition to a delivery's record. Pure.

The engine keeps a state's bytes for each delivery that the frame names. If the state is passed on, it makes a node of
many bytes for each value, on both sides. A null is one byte on the wire. Attack: unsettled outcomes with a list of
1,900 nulls. 8 MB of them took 1.1 GB. A frame that names thousands of deliveries made a copy for each.
"""

from typing import Final

from router.amqp.encoding import Encoded, encode
from router.amqp.guard.performatives import DISPOSITION, FRAME_HEADER_BYTES, Performative, Refused
from router.amqp.guard.shapes import field_of
from router.values import Described, uint, ulong

# The bytes that the engine holds for one value that it was asked for: a node. It makes nodes by doubling their number.
VALUE_BYTES: Final = 80
# A state up to this size is paid for by the delivery's record (router.core.budget.RECORD_BYTES).
PLAIN_VALUES: Final = 7
PLAIN_BYTES: Final = 256
# No client needs more values in one state. The bytes are the limit for all copies of one frame's state.
MAX_VALUES: Final = 64
MAX_COPIES_BYTES: Final = 1024 * 1024
# Rejected and modified, and the number of their fields that remain without details.
_OUTCOME_FIELDS: Final = {0x25: 0, 0x27: 2}
_WIDTH: Final = {0x53: 1, 0x80: 8}  # bytes of a descriptor by its constructor
_NULL: Final = b"\x40"


def details_bytes(performative: Performative) -> int:
    """Returns the memory of a Transfer's or Disposition's state for each delivery, without the record; 0: none."""
    state = performative.kept.get("state", b"")
    if performative.values <= PLAIN_VALUES and len(state) <= PLAIN_BYTES:
        return 0
    return 3 * len(state) + 2 * VALUE_BYTES * performative.values


def is_too_large(performative: Performative, *, deliveries: int) -> bool:
    """Returns True if a receiver's state holds more than allowed for this number of deliveries."""
    return performative.values > MAX_VALUES or details_bytes(performative) * deliveries > MAX_COPIES_BYTES


def refusal(performative: Performative) -> Refused:
    """Returns the error for a frame whose state is too large."""
    size = f"{performative.values} values and {len(performative.kept['state'])} bytes"
    return Refused("amqp:resource-limit-exceeded", f"a delivery state of {size} is more than is kept of one")


def without_details(performative: Performative) -> bytes:
    """Returns the frame of a Disposition with its outcome, but without the details.

    Errors: Refused, if the state consists only of its details.
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
