"""Attack: a large message for each receiver of an address; each comes slightly faster than the limit for progress.

7 kB/s blocked an address with five receivers for all other users, forever, and nothing was recorded. Now a message has
a time by its size if other messages wait for its receiver, and at most ten times messageProgressTimeout. One user's
messages hold at most half of an address's receivers. Each message that is given up is recorded with its user.
"""

from collections.abc import Callable
from typing import Any

import pytest
from memory_net import ACCEPTED, Net, Sender, encoded

from router.core.occupation import BYTES_PER_S, LONGEST
from router.core.progress import MIN_BYTES_PER_S

TIMEOUT_S = 8
# Until it is noticed, at the latest.
NOTICED_S = TIMEOUT_S * 1.25 + 2
TRICKLE = 2 * MIN_BYTES_PER_S
FAST = 2 * BYTES_PER_S
BEGINNING = encoded(bytes(100_000_000), address="a")[:200_000]
REASON = "message_holds_up_others"


class Scene:
    """Receivers of an address, messages of an attacker that occupy them, and one of somebody else that waits."""

    def __init__(self, receivers: int, attackers: int, *, distribution: str = "balanced", reads: bool = True) -> None:
        self.net = Net({"a": distribution}, progress_s=TIMEOUT_S, idle_timeout_s=0, session_bytes=1 << 20)
        self.receivers = [self.net.client().receiver("a", credit=1000, accepts=True) for _ in range(receivers)]
        self.attackers = self.senders("10.0.0.66", attackers)
        (self.honest,) = self.senders("10.0.0.1", 1)
        for sender in self.attackers:
            begin(sender, self.net)

    def senders(self, host: str, count: int) -> list[Sender]:
        """Of one user: without a login users are told apart by their hosts."""
        self.net.remote_host = host
        client = self.net.client()
        made = [client.sender("a") for _ in range(count)]
        self.net.pump()
        return made

    def pass_time(self, seconds: float, bytes_per_s: int, until: Callable[[], bool] = lambda: False) -> float:
        """What has begun goes on. Returns after how many seconds it was as wanted."""
        for second in range(round(seconds)):
            for sender in self.attackers:
                if not sender.is_detached:
                    sender.append(bytes(bytes_per_s))
            self.net.advance(1)
            if until():
                return second + 1
        return seconds

    @property
    def shut_out(self) -> list[Sender]:
        return [sender for sender in self.attackers if sender.is_detached]

    def reasons(self) -> list[tuple[Any, ...]]:
        return [(event["reason"], event["remote_host"], event["address"]) for event in self.net.audits]


def begin(sender: Sender, net: Net) -> None:
    sender.start()
    sender.append(BEGINNING)
    net.pump()


def is_done(scene: Scene) -> bool:
    return scene.honest.sent[-1].outcome == ACCEPTED


@pytest.mark.parametrize("distribution", ["balanced", "closest", "multicast"])
@pytest.mark.parametrize("count", [1, 5])
def test_a_trickle_holds_nobody_up_for_longer_than_the_timeout(distribution: str, count: int) -> None:
    scene = Scene(count, 1 if distribution == "multicast" else count, distribution=distribution)
    scene.honest.send(b"waits")
    took_s = scene.pass_time(3 * NOTICED_S, TRICKLE, lambda: is_done(scene))
    assert TIMEOUT_S <= took_s <= NOTICED_S * 1.25
    assert set(scene.reasons()) == {(REASON, "10.0.0.66", "a")}
    said = [line for line in scene.net.log_texts("POLICY") if "held up others" in line]
    assert said
    assert f"[{REASON}: router, messageProgressTimeout]" in said[0]
    (first, *_) = scene.shut_out
    assert first.refusal.name == "amqp:resource-limit-exceeded"
    assert (first.refusal.description or "").startswith("a message under way held up others for ")
    scene.net.nothing_left()


def test_one_user_may_hold_half_of_the_receivers_however_fast() -> None:
    scene = Scene(5, 5)
    scene.honest.send(b"waits")
    took_s = scene.pass_time(3 * NOTICED_S, FAST, lambda: is_done(scene))
    assert TIMEOUT_S <= took_s <= NOTICED_S * 1.25
    scene.pass_time(NOTICED_S, FAST)
    assert len(scene.shut_out) == 3
    for _ in range(10):
        scene.honest.send(b"passes")
    scene.net.pump()
    assert scene.honest.outcomes == [ACCEPTED] * 11
    scene.pass_time(3 * TIMEOUT_S, FAST)
    assert len(scene.shut_out) == 3
    scene.net.nothing_left()


def test_no_message_holds_the_only_receiver_for_ever_however_fast() -> None:
    scene = Scene(1, 1)
    scene.honest.send(b"waits")
    took_s = scene.pass_time(2 * LONGEST * TIMEOUT_S, FAST, lambda: is_done(scene))
    assert LONGEST * TIMEOUT_S <= took_s <= LONGEST * TIMEOUT_S + NOTICED_S
    scene.net.nothing_left()


def test_his_own_messages_before_the_others_do_not_hide_that_those_wait() -> None:
    scene = Scene(1, 1)
    (hides,) = scene.senders("10.0.0.66", 1)
    for _ in range(20):
        hides.send(b"his own")
    scene.honest.send(b"waits")
    for _ in range(20):
        hides.send(b"his own")
    assert scene.pass_time(3 * NOTICED_S, TRICKLE, lambda: is_done(scene)) <= NOTICED_S * 1.25


def test_where_nobody_waits_a_message_takes_as_long_as_it_likes() -> None:
    scene = Scene(5, 5)
    scene.pass_time(3 * NOTICED_S, TRICKLE)
    assert not scene.shut_out
    scene.honest.send(b"waits")
    scene.pass_time(TIMEOUT_S - 2, TRICKLE)
    assert not scene.shut_out  # its time begins as somebody waits
    assert scene.net.audits == []


def test_a_message_that_its_receiver_takes_slowly_is_not_at_fault() -> None:
    scene = Scene(1, 1)
    (receiver,) = scene.receivers
    scene.honest.send(b"waits")
    receiver.client.stop_reading()
    for _ in range(round(2 * NOTICED_S)):
        # As much as the router takes; the receiver takes 32 kB in a second.
        (sender,) = scene.attackers
        if sender.link.session.outgoing_bytes < 200_000:
            sender.append(bytes(200_000))
        receiver.client._take(bytes(receiver.client.inbox[:32_000]))
        del receiver.client.inbox[:32_000]
        receiver.client._is_paused = False
        scene.net.advance(1)
    assert not scene.shut_out
    assert scene.net.audits == []


def test_what_is_thrown_away_does_not_come_for_ever() -> None:
    """Its sender learns the outcome when all of it has come: until then the router reads it."""
    net = Net(progress_s=TIMEOUT_S, idle_timeout_s=0)
    sender = net.client().sender(None)
    net.pump()
    sending = sender.start()
    sender.append(BEGINNING)
    for _ in range(round(NOTICED_S)):
        sender.append(bytes(TRICKLE))
        net.advance(1)
    assert sender.was_closed
    assert sending.updates[-1].state == 0x26
    assert [event["reason"] for event in net.audits] == ["message_stalled"]
