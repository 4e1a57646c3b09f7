"""Attack: a receiver asks for more than its session's window holds, reads nothing, and detaches.

What had not been sent to it stayed in the engine, which counted it for the session forever: beyond half a MiB nothing
more came on that session. Receivers of an edge's clients share one session between the edge and its interior.
"""

import pytest
from memory_net import ACCEPTED, Fleet

from router.core.budget import Limits

WINDOW = 1024 * 1024


@pytest.mark.parametrize("is_settled", [False, True])
def test_others_of_an_edge_get_theirs(is_settled: bool) -> None:
    fleet = Fleet("INT", edges=("E",), limits=Limits(connection=16 * WINDOW), capacity=1000)
    fleet.connect("E", "INT", role="edge")
    fleet.settle()
    client = fleet["E"].client()
    names = [f"burst {number}" for number in range(6)]
    for name in names:
        client.receiver(name, credit=1000)
    staying = fleet["E"].client().receiver("orders", credit=10, accepts=True)
    fleet.tick(3)
    senders = [fleet["INT"].client().sender(name) for name in names]
    other = fleet["INT"].client().sender("orders")
    fleet.tick(2)
    end = fleet["INT"].ends[0].other
    end.is_stuck = True
    for sender in senders:
        for _ in range(min(sender.credit, 100)):
            sender.send(bytes(100_000), is_settled=is_settled)
    for _ in range(3000):
        fleet["INT"].carry()
    client.kill()
    for _ in range(100):
        fleet["E"].carry()
    fleet["INT"].pump()
    end.is_stuck = False
    fleet.pump()
    assert is_settled or not any(outcome is None for sender in senders for outcome in sender.outcomes)
    sent = [other.send(bytes(1000)) for _ in range(5)]
    fleet.pump()
    assert [each.outcome for each in sent] == [ACCEPTED] * 5
    assert len(staying.bodies) == 5
    fleet.no_errors()
