"""Attack: a receiver gives a message a state, does not settle it, and leaves: its sender received two outcomes.

The first was the receiver's, the second `modified`. A sender that took the first for the outcome had an `accepted`
message that failed, or sent one a second time. An outcome is final (AMQP 1.0 §2.6.12): the first one stays valid.
"""

from collections.abc import Callable

import pytest
from memory_net import ACCEPTED, MODIFIED, REJECTED, RELEASED, Client, Net

RECEIVED = 0x23
ENDS: dict[str, Callable[[Client], object]] = {
    "killed": lambda client: client.kill(),
    "detached": lambda client: next(iter(client.ends.values())).close(),
}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize(
    ("said", "stands"),
    [(outcome, outcome) for outcome in (ACCEPTED, REJECTED, RELEASED, MODIFIED)] + [(RECEIVED, MODIFIED)],
)
@pytest.mark.parametrize("size", [10, 300_000])
def test_what_the_sender_was_told_stands(how: str, said: int, stands: int, size: int) -> None:
    """routing 9.3"""
    net = Net()
    receiver = net.client().receiver("a", credit=10)
    sender = net.client().sender("a")
    net.pump()
    sending = sender.send(bytes(size))
    net.pump()
    receiver.received[0].give(said, is_settled=False)
    net.pump()
    assert [(each.state, each.is_settled) for each in sending.updates] == [(said, False)]
    ENDS[how](receiver.client)
    net.pump()
    assert [(each.state, each.is_settled) for each in sending.updates] == [(said, False), (stands, True)]
    net.nothing_left()
