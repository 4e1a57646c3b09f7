"""Attack: a receiver of a multicast takes only a part of a large message, and then settles that part.

The router learned that no receiver waits for the message, and did not continue it: the sender and all other receivers
waited until messageProgressTimeout, although no receiver held the message back.
"""

import pytest
from memory_net import ACCEPTED, REJECTED, Net
from test_streaming import MEGABYTE, Upload


@pytest.mark.parametrize("outcome", [ACCEPTED, REJECTED])
@pytest.mark.parametrize("is_sliced", [False, True])
def test_the_others_get_the_rest(outcome: int, is_sliced: bool) -> None:
    net = Net({"news": "multicast"}, session_bytes=MEGABYTE, is_sliced=is_sliced)
    mallory = net.client("mallory").receiver("news", credit=10)
    bob = net.client("bob").receiver("news", credit=10, accepts=True)
    sender = net.client("alice").sender("news")
    net.pump()
    upload = Upload(sender, 8 * MEGABYTE)
    upload.push(net, 300_000)
    mallory.client.stop_reading()
    upload.push(net)
    assert upload.left
    mallory.received[0].give(outcome)
    net.pump()
    upload.push(net)
    assert not upload.left
    upload.finish()
    net.pump()
    assert len(bob.complete) == 1
