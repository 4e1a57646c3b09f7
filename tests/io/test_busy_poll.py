"""The loop looks for the next read without a sleep where that makes it come sooner, and only there."""

from collections.abc import Callable

import pytest

from router.io.busy_poll import CHOSEN_READS, TRIAL_READS, BusyPoll

US = 1e-6
PASS_US = 3  # one pass of the loop that finds nothing


class Loop:
    """A loop whose peer answers each read `answer_us` later; a sleep makes that `wake_us` more."""

    def __init__(self, answer_us: float, wake_us: float, window_us: float = 50, read_bytes: int = 200) -> None:
        self.now = 0.0
        self.read_bytes = read_bytes
        self.answer_us, self.wake_us = answer_us, wake_us
        self.soon: list[Callable[[], None]] = []
        self.looked_us = 0.0
        self.poll = BusyPoll(self.soon.append, lambda: self.now)
        self.poll.seconds = window_us * US

    def read(self) -> bool:
        """The next read comes. Returns whether the loop had to sleep for it."""
        due = self.now + self.answer_us * US
        while self.soon and self.now < due:
            calls, self.soon[:] = self.soon[:], []
            for call in calls:
                call()
            self.now += PASS_US * US
            self.looked_us += PASS_US
        has_slept = self.now < due
        if has_slept:
            self.now = due + self.wake_us * US
        self.poll.after_read(self.read_bytes)
        return has_slept

    def share_asleep(self, reads: int) -> float:
        return sum(self.read() for _ in range(reads)) / reads


ROUND = 2 * TRIAL_READS + CHOSEN_READS


def test_in_a_network_an_answer_over_further_routers_is_waited_for() -> None:
    alone, joined = Loop(answer_us=150, wake_us=100), Loop(answer_us=150, wake_us=100)
    alone.poll.look_for(50 * US, is_in_network=False)
    joined.poll.look_for(50 * US, is_in_network=True)
    for loop in (alone, joined):
        loop.share_asleep(2 * TRIAL_READS)
    assert alone.share_asleep(CHOSEN_READS) == 1
    assert joined.share_asleep(CHOSEN_READS) < 0.01


def test_in_a_network_the_first_router_looks_although_its_neighbour_still_sleeps() -> None:
    loop = Loop(answer_us=160, wake_us=55)
    loop.poll.look_for(50 * US, is_in_network=True)
    loop.share_asleep(2 * TRIAL_READS)
    assert loop.share_asleep(CHOSEN_READS) < 0.01


def test_what_comes_soon_and_what_comes_late_count_together() -> None:
    """Two of three reads come soon, whether the loop slept or not: what it looks for is the third."""
    loop = Loop(answer_us=20, wake_us=0)
    loop.poll.look_for(50 * US, is_in_network=True)
    for number in range(2 * TRIAL_READS):
        loop.answer_us, loop.wake_us = (120, 90) if number % 3 == 0 else (20, 0)
        loop.read()
    loop.answer_us, loop.wake_us = 120, 90
    assert loop.share_asleep(CHOSEN_READS) < 0.01


def test_in_a_network_many_messages_at_once_are_no_answers() -> None:
    loop, alone = (Loop(answer_us=20, wake_us=60, read_bytes=4000) for _ in range(2))
    loop.poll.look_for(50 * US, is_in_network=True)
    for each in (loop, alone):
        each.share_asleep(2 * TRIAL_READS)
    assert loop.share_asleep(CHOSEN_READS) > 0.99
    assert alone.share_asleep(CHOSEN_READS) < 0.01
    loop.read_bytes = 200
    loop.share_asleep(2 * TRIAL_READS)
    assert loop.share_asleep(CHOSEN_READS) < 0.01


def test_waking_takes_longer_than_looking() -> None:
    loop = Loop(answer_us=20, wake_us=60)
    loop.share_asleep(2 * TRIAL_READS)
    assert loop.share_asleep(CHOSEN_READS) < 0.01
    assert loop.share_asleep(10 * ROUND) < 0.02


@pytest.mark.parametrize(
    ("answer_us", "wake_us"),
    [
        pytest.param(20, 0.5, id="other processes keep the processors awake"),
        pytest.param(1000, 60, id="peers that send now and then"),
        pytest.param(80, 60, id="answers that come after the look"),
    ],
)
def test_looking_is_no_shorter(answer_us: float, wake_us: float) -> None:
    loop = Loop(answer_us, wake_us)
    reads = 10 * ROUND
    assert loop.share_asleep(reads) > 0.9
    # The processor's time: that of the trials, and no more.
    assert loop.looked_us <= 10 * (TRIAL_READS + 1) * (50 + PASS_US)


def test_peers_that_begin_to_answer_fast_are_noticed_and_those_that_end_it_too() -> None:
    loop = Loop(answer_us=5000, wake_us=60)
    loop.share_asleep(ROUND)
    loop.answer_us = 20
    loop.share_asleep(ROUND)
    assert loop.share_asleep(ROUND) < 0.1
    loop.answer_us = 5000
    loop.share_asleep(ROUND)
    assert loop.share_asleep(10 * ROUND) > 0.95


def test_off() -> None:
    loop = Loop(answer_us=20, wake_us=60, window_us=0)
    assert loop.share_asleep(ROUND) == 1.0
    assert not loop.soon
