"""Attack: a sender settles many messages at once, and a receiver gives their outcomes before the router's next turn.

The turn passes on what the sender said, long after the engine has released the messages: the router read free memory.
Only the sanitizer sees it each time: tests/asan runs this file with it.
"""

from collections.abc import Iterator

import pytest
from memory_net import ACCEPTED, Net

from router.amqp.engine import limit_slices

MANY = 5


@pytest.fixture(autouse=True)
def _one_event_at_once() -> Iterator[None]:
    limit_slices(-1e-9)
    yield
    limit_slices(0)


@pytest.mark.parametrize("distribution", ["balanced", "multicast"])
@pytest.mark.parametrize("settles", [True, False])
@pytest.mark.parametrize("turns", range(MANY - 1))
def test_the_receiver_is_quicker_than_the_turns(distribution: str, settles: bool, turns: int) -> None:
    net = Net({"a": distribution}, is_sliced=True)
    client, other = net.client(), net.client()
    receivers = [other.receiver("a", credit=2 * MANY) for _ in range(1 + (distribution == "multicast"))]
    sender = client.sender("a")
    net.pump()
    sendings = [sender.send(b"%d" % number) for number in range(MANY)]
    net.pump()
    for sending in sendings:
        sending.update(ACCEPTED)
        if settles:
            sending.settle()
    client.push_to_router()
    for _ in range(turns):
        client.go_on()
    assert client.router.has_more
    for receiver in receivers:
        for item in receiver.complete:
            item.accept()
    while other.push_to_router():
        pass
    net.look_back()  # the engine's memory is released, as it is every second
    net.pump()
    assert all(not receiver.is_detached for receiver in receivers)
    late = sender.send(b"late")
    net.pump()
    assert [receiver.bodies[-1] for receiver in receivers] == [b"late"] * len(receivers)
    assert late.outcome is None
    net.nothing_left()
