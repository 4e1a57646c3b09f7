"""Attack: a sender gives its message a delivery state that is larger than the receiver's largest frame.

The Transfer itself contains the state. The AMQP engine subtracted its size from the frame's, got a negative number, and
never returned: one Transfer of one client stopped the whole router for good.
"""

import pytest
from frames_attacker import attacker, besieged_router, say_in_turn, wire
from harness import RunningRouter

from router.amqp.guard import states

router = besieged_router

ADDRESS = "guests.state"
SESSION = wire.frame(wire.open_("sender", "localhost")) + wire.frame(wire.begin())
SENDER = wire.frame(wire.attach("s", 0, is_receiver=False, address=ADDRESS))
RECEIVER = (
    wire.frame(wire.open_("receiver", "localhost", max_frame=512))
    + wire.frame(wire.begin())
    + wire.frame(wire.attach("r", 0, is_receiver=True, address=ADDRESS))
    + wire.frame(wire.flow(0, credit=10))
)
STATES = {
    "rejected": lambda size: wire.performative(0x25, wire.error("amqp:x", "x" * size)),
    "rejected with information": lambda size: wire.performative(
        0x25, wire.performative(0x1D, wire.symbol("a"), wire.NULL, wire.map_of(wire.symbol("k"), wire.text("v" * size)))
    ),
    "modified": lambda size: wire.performative(
        0x27, wire.TRUE, wire.TRUE, wire.map_of(wire.symbol("k"), wire.text("v" * size))
    ),
    "transactional": lambda size: wire.performative(0x34, wire.binary(bytes(size))),
}


@pytest.mark.parametrize("size", [120, 400, 440, 480, 512, 700, 15000])
@pytest.mark.parametrize("name", STATES)
def test_the_router_goes_on(name: str, size: int, router: RunningRouter) -> None:
    """A state that is long is not kept: a Transfer with one is refused, of a Disposition the details are dropped."""
    state = STATES[name](size)
    is_long = len(state) > states.PLAIN_BYTES or name == "rejected with information"  # that has many values
    whole = wire.frame(wire.transfer(0, 0, wire.message(100), state=state))
    # And one that is under way while the sender gives it its state.
    begun = wire.frame(wire.transfer(0, 0, wire.message(200_000)[:15000], is_last=False))
    given = wire.frame(wire.disposition(is_receiver=False, first=0, is_settled=False, state=state))
    with attacker(router) as receiver, attacker(router) as sender, attacker(router) as streaming:
        say_in_turn(router, receiver, RECEIVER)
        receiver.wait_for(wire.ATTACH)
        say_in_turn(router, sender, SESSION, SENDER, whole)
        if is_long:
            sender.wait_for(wire.CLOSE)
        elif name != "transactional":  # which is refused on a link that leads to no coordinator
            receiver.wait_for(wire.TRANSFER)
        say_in_turn(router, streaming, SESSION, SENDER, begun, given)
        if is_long and name == "transactional":
            streaming.wait_for(wire.CLOSE)
        with attacker(router, "free") as another:
            another.say(wire.frame(wire.open_("honest")))
            another.wait_for(wire.OPEN)
