"""Attack: a large settled multicast waits because another large message occupies its receiver.

When its turn came, the router asked the engine for the state of the sender's delivery. That delivery was settled: the
engine had released it, or had made another message of it.
"""

from typing import Any

import pytest
from memory_net import Net, encoded
from proton import Link

from router.amqp.engine import IncomingWire

LARGE = 300_000  # more than the router gives to the engine in one piece


def test_a_settled_delivery_is_not_asked_for_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    settled: set[Any] = set()
    settle, remote_state = IncomingWire.settle, IncomingWire.remote_state

    def noting(delivery: Any) -> None:
        settled.add(delivery)
        settle(delivery)

    def guarded(delivery: Any) -> int:
        assert delivery not in settled
        return remote_state(delivery)

    monkeypatch.setattr(IncomingWire, "settle", staticmethod(noting))
    monkeypatch.setattr(IncomingWire, "remote_state", staticmethod(guarded))
    net = Net({"a": "multicast"})
    first, second = net.client().sender("a"), net.client().sender("a")
    receiver = net.client().receiver("a", credit=2)
    net.pump()
    first.start()
    first.append(encoded(bytes(LARGE)))
    net.pump()
    second.send_bytes(encoded(bytes(LARGE)), is_settled=True)
    net.pump()
    assert len(settled) == 1
    first.finish()
    net.pump()
    assert [len(body) for body in receiver.bodies] == [LARGE, LARGE]
    net.nothing_left()


def test_a_message_that_is_settled_at_once_is_not_asked_for_its_state_afterwards() -> None:
    """A small message with a state, to a receiver that takes settled messages only."""
    net = Net()
    sender = net.client().sender("a")
    receiver = net.client().receiver("a", credit=1, snd_settle_mode=Link.SND_SETTLED)
    net.pump()
    sending = sender.start()
    sending.update(666, [1])
    sender.append(encoded(b"m"))
    sender.finish()
    net.pump()
    assert receiver.bodies == [b"m"]
    net.nothing_left()
