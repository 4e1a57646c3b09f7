"""Attack: thousands of Attaches or Begins in a few reads: each read was handled before any other peer had a turn.

Now a connection handles a limited number of control frames in one turn. Other peers wait for one turn, not for all
frames.
"""

import pytest
from bystander import bystander
from frames_attacker import attacker, besieged_router, wire
from harness import RunningRouter

pytestmark = pytest.mark.timing

router = besieged_router

FRAMES = 30_000
# One round trip takes half a millisecond here; 30,000 Attaches at once took seconds.
P99_S, WORST_S = 0.25, 1.0
START = wire.frame(wire.open_("many")) + wire.frame(wire.begin())


def pairs(make: list[bytes]) -> bytes:
    return b"".join(make) * (FRAMES // len(make))


FLOODS = {
    "attach": b"".join(
        wire.frame(wire.attach(f"l{number}", number, is_receiver=False, address=f"many.{number % 100}"))
        for number in range(FRAMES)
    ),
    "attach and detach": pairs(
        [wire.frame(wire.attach("l", 0, is_receiver=True, address="many")), wire.frame(wire.detach(0))]
    ),
    "begin and end": pairs([wire.frame(wire.begin(), 1), wire.frame(wire.end(), 1)]),
    "disposition": pairs([wire.frame(wire.disposition(is_receiver=True, first=0, last=0x7FFFFFFF))]),
    "flow": pairs([wire.frame(wire.flow(None, echo=True))]),
}


@pytest.mark.parametrize("name", FLOODS)
def test_others_have_their_turns(name: str, router: RunningRouter) -> None:
    with attacker(router, "free") as peer:
        peer.say(START)
        peer.wait_for(wire.BEGIN)
        with bystander(router) as honest:
            peer.socket.settimeout(30)
            peer.socket.sendall(FLOODS[name])
            for _ in range(20):
                peer.look()
                honest_before = len(honest.seconds)
                while len(honest.seconds) < honest_before + 10 and honest.error is None:
                    peer.read_some_for(0.05)
    assert honest.percentile_s(0.99) < P99_S, f"{len(honest.seconds)} round trips, worst {max(honest.seconds):.3f} s"
    assert max(honest.seconds) < WORST_S
