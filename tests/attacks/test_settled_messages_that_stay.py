"""Attack: unfinished messages fill a connection's budget, then all of them are settled, and the connection stays.

The engine kept each buffer, and the content of its outcome, for later messages of the connection. That was beyond every
budget, and the same again on the next connection. Now they are released within a second.
"""

import pytest
from memory_net import ACCEPTED, REJECTED, Client, Net

from router.amqp.engine import pool

SIZE = 60_000
COUNT = 60


def kept(client: Client) -> int:
    return pool.kept(Net.peer(client).engine.connection)


def carry_all(net: Net) -> None:
    """As `pump`, without what is done every second."""
    while net.carry():
        pass


def test_the_list_is_found_in_the_engine_that_we_ship() -> None:
    assert pool._AT is not None


@pytest.mark.parametrize("state", [ACCEPTED, REJECTED])
def test_what_was_settled_is_released_within_a_second(state: int) -> None:
    net = Net()
    client, reader = net.client(), net.client()
    receiver = reader.receiver("a", credit=2 * COUNT)
    receiver.accepts = False
    net.pump()
    sender = client.sender("a")
    net.pump()
    for _ in range(COUNT):
        sender.send(b"x" * SIZE)
        net.pump()
    for message in receiver.received:
        message.give(state)
    carry_all(net)
    assert sender.outcomes == [state] * COUNT
    assert [kept(client), kept(reader)] == [COUNT, COUNT]
    net.look_back()
    assert [kept(client), kept(reader)] == [0, 0]
    sender.send(b"y" * SIZE)
    net.pump()
    assert receiver.received[-1].payload.endswith(b"y" * SIZE)
    net.no_errors()


def test_a_connection_that_ends_meanwhile_is_let_alone() -> None:
    net = Net()
    client, reader = net.client(), net.client()
    reader.receiver("a", credit=COUNT * 4)
    net.pump()
    sender = client.sender("a")
    net.pump()
    for _ in range(COUNT * 4):
        sender.send(b"x")
    carry_all(net)
    ends = {net.peer(client).engine, net.peer(reader).engine}
    assert ends <= net.work.busy
    steps = net.work.looking_back()
    next(steps)
    client.kill()
    reader.kill()
    carry_all(net)
    assert all(engine.is_freed for engine in ends)
    for _ in steps:
        pass
    net.nothing_left()
