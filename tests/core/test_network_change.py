"""Networks whose connections come and go: every message gets an outcome, and none that nobody gave."""

import random
from collections import Counter

import pytest
from memory_net import ACCEPTED, MODIFIED, RELEASED, End, Fleet, Receiver, Sender, Sending

RING = ("AB", "BC", "CD", "DA")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("distribution", ["balanced", "closest", "multicast"])
def test_no_message_is_lost_or_accepted_by_nobody_whatever_breaks(distribution: str, seed: int) -> None:
    """network 76: connections of a ring are lost and made again, some stop reading first, receivers come and go"""
    chance = random.Random(f"{distribution} {seed}")
    fleet = Fleet("A", "B", "C", "D", distributions={"a": distribution})
    ends: dict[str, tuple[End, End] | None] = {pair: fleet.connect(*pair) for pair in RING}
    receivers: list[Receiver] = [fleet[name].client().receiver("a", credit=1000) for name in "BCD"]
    fleet.settle()
    senders: list[Sender] = [fleet[name].client().sender("a") for name in "ABC"]
    fleet.pump()
    accepted: Counter[bytes] = Counter()
    came: Counter[bytes] = Counter()
    seen: set[int] = set()
    sent: list[tuple[Sending, bytes]] = []

    def take() -> None:
        for receiver in receivers:
            for item in receiver.complete:
                if id(item) not in seen:
                    seen.add(id(item))
                    came[item.body] += 1
                    if chance.random() < 0.8:
                        accepted[item.body] += 1
                        item.accept()
                    else:
                        item.give(RELEASED)

    for _ in range(60):
        for sender in senders:
            for _ in range(chance.randrange(4)):
                if sender.credit > 0:
                    body = b"%d" % len(sent)
                    sent.append((sender.send(body, priority=chance.randrange(10)), body))
        happens = chance.random()
        pair = chance.choice(RING)
        connected = ends[pair]
        if happens < 0.15 and connected is not None:
            if chance.random() < 0.5:
                connected[0].is_stuck = connected[1].is_stuck = True
            fleet.pump(rounds=1000)
            connected[chance.randrange(2)].kill()
            ends[pair] = None
        elif happens < 0.4 and connected is None:
            ends[pair] = fleet.connect(*pair)
        elif happens < 0.5:
            fleet.tick()
        if chance.random() < 0.7:
            fleet.pump()
        if chance.random() < 0.5:
            take()
    for pair in RING:
        if ends[pair] is None:
            fleet.connect(*pair)
    for _ in range(3):
        fleet.pump()
        take()
    fleet.pump()
    assert len(sent) > 50
    for sending, body in sent:
        assert sending.outcome in (ACCEPTED, RELEASED, MODIFIED)
        assert sending.outcome != ACCEPTED or accepted[body]
    if distribution != "multicast":
        assert all(count == 1 for count in came.values())
    fleet.settle()
    assert all(net.host is not None and len(net.host.own_links) == 2 for net in fleet.nets.values())
    last = senders[0].send(b"last")
    fleet.pump()
    take()
    fleet.pump()
    assert last.outcome in (ACCEPTED, RELEASED)
    fleet.no_errors()
    for net in fleet.nets.values():
        live = net.core.table.addresses.get("M0a")
        assert live is None or not live.outstanding
    for net in fleet.nets.values():
        for client in net.clients:
            client.kill()
    fleet.tick(3)
    for net in fleet.nets.values():
        net.nothing_left()
