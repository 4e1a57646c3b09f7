"""Attack: a client makes the router need a channel or a handle that it does not have.

The AMQP engine then never wrote anything again, but still took frames: each session and link stayed, 200 MB in twelve
seconds, and its memory was not given back. Alternating Begin and End in one read were enough if `maxSessions` is 1 or
the client offers one channel.
"""

import pytest
from frames_attacker import NARROW, attacker, besieged_router, send_to_router, wire
from harness import RunningRouter

router = besieged_router

EXTRA_CONFIGURATION = NARROW
BEGIN, END, CLOSE = wire.frame(wire.begin()), wire.frame(wire.end()), wire.frame(wire.close())
# Begin with handle-max 0: the router may use one handle.
ONE_HANDLE = wire.frame(
    wire.performative(wire.BEGIN, wire.NULL, wire.uint(0), wire.uint(10), wire.uint(10), wire.uint(0))
)


def link(handle: int) -> bytes:
    return wire.frame(wire.attach(f"l{handle}", handle, is_receiver=True, address="guests.silent"))


def opening(*, channels: int = 100) -> bytes:
    return wire.frame(wire.open_("c", "localhost", channels=channels))


@pytest.mark.parametrize("count", [2, 3, 40])
@pytest.mark.parametrize(("listener", "channels"), [("narrow", 100), ("clear", 0), ("free", 0)])
def test_sessions_in_turn_are_answered_in_turn(listener: str, channels: int, count: int, router: RunningRouter) -> None:
    with attacker(router, listener) as peer:
        peer.say(opening(channels=channels), (BEGIN + END) * count, CLOSE)
        assert peer.condition_of_close() == ""
        codes = [code for code, _ in peer.performatives()]
    assert codes.count(wire.BEGIN) == codes.count(wire.END) == count


def test_links_in_turn_on_one_handle_are_answered_in_turn(router: RunningRouter) -> None:
    with attacker(router) as peer:
        peer.say(opening(), ONE_HANDLE, (link(7) + wire.frame(wire.detach(7))) * 40, CLOSE)
        assert peer.condition_of_close() == ""
        assert [code for code, _ in peer.performatives()].count(wire.DETACH) == 40


@pytest.mark.parametrize("is_hasty", [True, False])
def test_links_that_cannot_be_answered_are_refused(is_hasty: bool, router: RunningRouter) -> None:
    frames = opening(), ONE_HANDLE, link(0), link(1)
    assert send_to_router(router, *frames, is_hasty=is_hasty) == "amqp:not-allowed"
