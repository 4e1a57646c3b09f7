"""Attack: a lying neighbour floods long updates faster than another, distant neighbour reads.

The waiting updates were charged to the slow neighbour, and its connection was closed for it.
"""

import pytest
from memory_net import ACCEPTED, End, Fleet, Net
from test_network_messages import FakeNeighbour

from router.core.budget import MIB, Account, Limits
from router.values import int_, long

# A message of 1 MB.
KEYS = [f"M0{index:06d}{'x' * 3990}" for index in range(250)]
LIMITS = Limits(connection=16 * MIB, user=8 * MIB)  # a neighbour may have twice what a user may
ALL = "_topo/0/all/qdrouter.ma"


def second(fleet: Fleet, liar: FakeNeighbour) -> None:
    fleet.tick()
    liar.say("HELLO", {"pv": 1, "instance": int_(100), "seen": ["A"]})
    fleet.pump()


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet("A", "C", limits=LIMITS)
    made.connect("A", "C")
    made.settle()
    return made


@pytest.fixture
def liar(fleet: Fleet) -> FakeNeighbour:
    made = FakeNeighbour(fleet["A"])
    for _ in range(4):
        second(fleet, made)
    made.say("RA", {"pv": 1, "instance": int_(100), "ls_seq": long(1), "mobile_seq": long(0)}, "_topo/0/all/qdrouter")
    fleet.pump()
    return made


def account(net: Net, end: object) -> Account:
    peer = net.peer(end)  # type: ignore[arg-type]
    return peer.attachment.account


@pytest.mark.parametrize("to", [ALL, "_topo/0/C/qdrouter.ma"])
def test_what_waits_for_a_slow_neighbour_is_charged_to_the_one_that_sent_it(
    fleet: Fleet, liar: FakeNeighbour, to: str
) -> None:
    net = fleet["A"]
    (slow,) = net.ends
    far: End = slow.other
    far.is_stuck = True
    for number in range(1, 41):
        if not number % 10:  # more than are passed on in a second
            second(fleet, liar)
        keys = [f"{key[:-6]}{number:06d}" for key in KEYS]
        update = {"pv": 1, "mobile_seq": long(number), "exist": keys, "hints": [3] * len(keys)}
        liar.say("MAU", update, to)
        net.pump()
    assert not slow.router_closed
    assert not account(net, slow).behind
    assert account(net, liar.client).behind
    # Nobody who is honest has paid, and what waited is paid back.
    far.is_stuck = False
    fleet.pump()
    fleet.tick(3)
    receiver = fleet["C"].client().receiver("orders", credit=10, accepts=True)
    fleet.tick(3)
    sender = net.client().sender("orders")
    fleet.pump()
    sender.send(b"m")
    fleet.pump()
    assert (receiver.bodies, sender.outcomes) == ([b"m"], [ACCEPTED])
    liar.client.kill()
    fleet.pump()
    assert account(net, slow).held < MIB
    fleet.no_errors()
