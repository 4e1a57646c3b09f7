"""Attack: a Begin claims, by its remote-channel, to answer a channel that the router itself began only as an answer.

The AMQP engine then had one session under two channels and freed it while it was in use. The router died of SIGSEGV or
of an abort, whatever the policy, after 1 to 71 such connections. 1.20 dies of it, too.
"""

import itertools

import pytest
from frames_attacker import attacker, besieged_router, say_in_turn, send_to_router, wire
from harness import RunningRouter

router = besieged_router

OPEN = wire.frame(wire.open_("attacker", "localhost"))
CONNECTIONS = 100  # the fault needed up to 71


def claim(channel: int, remote: int) -> tuple[bytes, ...]:
    """A session on a channel of its own, one that claims to answer it, and what made the engine free it."""
    return (
        wire.frame(wire.begin(), 0),
        wire.frame(wire.begin(remote), channel),
        wire.frame(wire.attach("l", 0, is_receiver=False, address="guests.a"), channel),
        wire.frame(wire.transfer(0, 0, wire.message(10)), 0),
        wire.frame(wire.end(), 0),
    )


def test_a_false_answer_closes_its_connection_a_hundred_times(router: RunningRouter) -> None:
    for _ in range(CONNECTIONS):
        assert send_to_router(router, OPEN, *claim(1, 0)) == "amqp:invalid-field"


def test_who_hangs_up_at_once_harms_nobody(router: RunningRouter) -> None:
    for _ in range(CONNECTIONS):
        with attacker(router) as peer:
            say_in_turn(router, peer, OPEN, *claim(1, 0))


@pytest.mark.parametrize("remote", [0, 1, 2, 7, 32767, 32768, 65534, 65535])
@pytest.mark.parametrize("is_hasty", [True, False])
def test_no_channel_can_be_claimed(is_hasty: bool, remote: int, router: RunningRouter) -> None:
    """Whether the router uses that channel or not: it began none of its own accord."""
    for channel in (0, 1):
        frames = OPEN, wire.frame(wire.begin(remote), channel)
        assert send_to_router(router, *frames, is_hasty=is_hasty) == "amqp:invalid-field"


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_a_false_answer_in_any_order_of_frames_is_refused(order: tuple[int, ...], router: RunningRouter) -> None:
    """The frames after the honest Begin in every order, and End of both channels at the end."""
    after = [
        wire.frame(wire.begin(0), 1),
        wire.frame(wire.attach("l", 0, is_receiver=False, address="guests.a"), 0),
        wire.frame(wire.end(), 0),
        wire.frame(wire.attach("m", 0, is_receiver=True, address="guests.a"), 1),
    ]
    ends = (wire.frame(wire.end(), 1), wire.frame(wire.end(), 0))
    frames = (wire.frame(wire.begin(), 0), *(after[index] for index in order), *ends)
    assert send_to_router(router, OPEN, *frames).startswith("amqp:")
