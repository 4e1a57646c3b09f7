"""Attack: a receiver gives outcomes whose annotations, or errors, are lists of tiny values, and settles nothing.

A null is one byte on the wire and was 72 in the engine, on both sides: 8 MB of outcomes took 1.1 GB and were charged 8
MiB, and 16 MB killed a router of 2 GiB. Or one frame names thousands of deliveries, and each got a copy.
"""

import sys
from pathlib import Path

import pytest
from memory_net import MODIFIED, REJECTED, Client, Net, Receiver, Sender

from router.amqp.engine import pool
from router.core.budget import Limits

sys.path.insert(0, str(Path(__file__).parent.parent / "fuzz"))

import wire

COUNT = 1_000
GROWTH_BYTES = 8 * 1024 * 1024
NULLS = wire.list_of(*[wire.NULL] * 1900)
INFO = wire.map_of(wire.symbol("k"), NULLS)
STATES = {
    "modified": wire.performative(0x27, wire.TRUE, wire.TRUE, INFO),
    "rejected": wire.performative(0x25, wire.performative(0x1D, wire.symbol("a:b"), wire.NULL, INFO)),
}
UNKNOWN = wire.described(0x34, NULLS)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def held(client: Client) -> int:
    return Net.peer(client).attachment.account.held


def delivered(net: Net, count: int) -> tuple[Client, Client, Receiver]:
    """(receiver's connection, sender's, the receiver) with messages that are not settled."""
    greedy, honest = net.client("greedy"), net.client("honest")
    receiver = greedy.receiver("a", credit=count)
    receiver.accepts = False
    net.pump()
    for at in range(0, count, 250):
        sender = honest.sender("a")
        net.pump()
        for _ in range(min(250, count - at)):
            sender.send(b"x")
    net.pump()
    assert len(receiver.received) == count
    return greedy, honest, receiver


def says(client: Client, first: int, last: int | None, state: bytes, *, is_settled: bool = False) -> None:
    said = wire.disposition(is_receiver=True, first=first, last=last, is_settled=is_settled, state=state)
    client.say(wire.frame(said))


@pytest.mark.parametrize("name", STATES)
def test_what_is_more_than_any_client_says_is_not_kept(name: str) -> None:
    net = Net()
    greedy, _, _ = delivered(net, COUNT)
    before = resident_bytes()
    for number in range(COUNT):
        says(greedy, number, None, STATES[name])
    assert resident_bytes() - before < GROWTH_BYTES
    net.no_errors()


@pytest.mark.parametrize(("name", "state"), [("modified", MODIFIED), ("rejected", REJECTED)])
def test_the_outcome_arrives_without_them(name: str, state: int) -> None:
    net = Net()
    greedy, honest, _ = delivered(net, 1)
    says(greedy, 0, None, STATES[name], is_settled=True)
    net.pump()
    (sender,) = honest.ends.values()
    assert isinstance(sender, Sender)
    (outcome,) = sender.sent[0].updates
    assert (outcome.state, outcome.is_settled) == (state, True)
    assert not outcome.annotations
    assert outcome.undeliverable is (name == "modified")


def test_a_state_that_is_nothing_but_values_is_refused() -> None:
    net = Net()
    greedy, _, _ = delivered(net, 1)
    says(greedy, 0, None, UNKNOWN)
    net.pump()
    assert greedy.condition is not None
    assert greedy.condition.name == "amqp:resource-limit-exceeded"


def test_one_frame_for_all_deliveries_has_no_details() -> None:
    net = Net()
    greedy, _, _ = delivered(net, COUNT)
    before = resident_bytes()
    error = wire.error("a:b", "x" * 15_000)
    says(greedy, 0, COUNT - 1, wire.performative(0x25, error))
    assert resident_bytes() - before < GROWTH_BYTES
    net.no_errors()


def test_its_connection_is_charged_until_it_has_settled() -> None:
    net = Net(limits=Limits())
    greedy, honest, receiver = delivered(net, 10)
    before, others = held(greedy), held(honest)
    error = wire.performative(0x25, wire.error("a:b", "x" * 15_000))
    for number in range(10):
        says(greedy, number, None, error)
    assert held(greedy) - before > 10 * 3 * 15_000
    assert held(honest) == others
    for number in range(10):
        says(greedy, number, None, error, is_settled=True)
    net.pump()
    assert held(greedy) <= before
    assert len(receiver.received) == 10
    net.no_errors()


def test_deliveries_that_had_an_error_are_not_used_for_others() -> None:
    net = Net()
    greedy, honest, _ = delivered(net, 20)
    error = wire.performative(0x25, wire.error("a:b", "x" * 15_000))
    says(greedy, 0, 19, error, is_settled=True)
    while net.carry():
        pass
    assert [pool.kept(Net.peer(each).engine.connection) for each in (greedy, honest)] == [0, 0]
