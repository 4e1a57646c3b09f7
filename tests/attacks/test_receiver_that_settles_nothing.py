"""Attack: a receiver with endless credit reads and settles nothing, and the senders' messages are large.

The senders' credit limits the number of its messages, but the engine keeps the bytes of each until it is settled.
"""

import pytest
from memory_net import ACCEPTED, Client, Net

from router.core.budget import Limits
from router.core.weights import COPIES

BUDGET = 2_000_000
SIZE = 60_000
COUNT = 160
FITS = BUDGET // (COPIES * SIZE)


def limits() -> Limits:
    return Limits(link=0, connection=BUDGET, user=0, host=0, router=0)


def held(client: Client) -> int:
    peer = client.router.peer
    assert peer is not None
    return peer.attachment.account.held


def test_its_budget_bounds_the_bytes_that_it_gets() -> None:
    """And it gets the rest as it settles."""
    net = Net(limits=limits())
    greedy = net.client("greedy")
    receiver = greedy.receiver("a", credit=10_000)
    receiver.accepts = False
    net.pump()
    senders = [net.client().sender("a") for _ in range(COUNT // 10)]
    net.pump()
    for sender in senders:
        for _ in range(10):
            sender.send(b"x" * SIZE)
            net.pump()
    assert FITS // 2 <= len(receiver.received) <= FITS + 2
    assert BUDGET // 2 < held(greedy) < 2 * BUDGET
    done = 0
    while done < len(receiver.received):
        message, done = receiver.received[done], done + 1
        message.accept()
        net.pump()
    assert len(receiver.received) == COUNT
    assert [outcome for sender in senders for outcome in sender.outcomes] == [ACCEPTED] * COUNT
    assert held(greedy) < BUDGET // 10
    net.no_errors()


@pytest.mark.parametrize("size", [SIZE, 300_000])
def test_nothing_is_held_for_it_when_it_has_gone(size: int) -> None:
    """A message that streams is charged for as well."""
    net = Net(limits=limits())
    greedy = net.client("greedy")
    receiver = greedy.receiver("a", credit=10)
    receiver.accepts = False
    net.pump()
    client = net.client()
    sender = client.sender("a")
    net.pump()
    sender.send(b"x" * size)
    net.pump()
    assert held(greedy) > COPIES * SIZE
    receiver.link.close()
    net.pump()
    assert len(sender.outcomes) == 1
    assert held(greedy) < COPIES * SIZE
    assert held(client) < COPIES * SIZE
