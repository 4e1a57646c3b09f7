"""Long work is done in slices: whatever happens in between, each message has one outcome and nothing is left.

Attack: what a peer can make long (an End of thousands of links, a Disposition of thousands of deliveries, a connection
that is lost with both) leaves links, deliveries and events half worked off, while others, or it, go on.
"""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_net import ACCEPTED, MODIFIED, REJECTED, RELEASED, Client, Net, Receiver, Sender, Sending

from router.amqp.engine import limit_slices

FINAL = {ACCEPTED, REJECTED, RELEASED, MODIFIED}
MANY = 70  # links, more than end with their session at once; and deliveries, more than are lost at once


@pytest.fixture(autouse=True)
def _one_event_at_once() -> Iterator[None]:
    limit_slices(-1e-9)
    yield
    limit_slices(0)


class Crowd:
    """One router; clients with many links on few addresses, and what was sent."""

    def __init__(self) -> None:
        self.net = Net({"m": "multicast"}, is_sliced=True, capacity=2 * MANY)
        self.clients: list[Client] = []
        self.receivers: list[Receiver] = []
        self.senders: list[Sender] = []
        self.sent: list[Sending] = []
        self.ended: set[Client] = set()

    def do(self, kind: str, which: int, size: int) -> None:
        net = self.net
        living = [each for each in self.clients if not (each.is_dead or each.router_closed or each in self.ended)]
        if kind == "come" or not living:
            client = net.client()
            self.clients.append(client)
            for number in range(size):
                self.receivers.append(client.receiver("am"[number % 2], credit=size, accepts=False))
            self.senders += [client.sender("a"), client.sender("m"), client.sender(None)]
        elif kind == "send":
            self.send(living, which, size)
        elif kind == "settle":
            mine = [each for each in self.receivers if each.client in living and not each.is_detached]
            for receiver in mine[which::3]:
                for item in receiver.complete:
                    if not item.is_settled_here:
                        item.give(sorted(FINAL)[(which + size) % 4])
        elif kind == "pump":
            for _ in range(size):
                net.do_later()
                for client in net.clients:
                    client.push_to_router()
                    client.pull_from_router()
        else:
            client = living[which % len(living)]
            if kind == "end" and client not in self.ended:
                self.ended.add(client)
                client.session.close()
            elif kind == "close":
                client.close()
            elif kind == "kill":
                client.kill()
            elif kind == "detach":
                for end in [end for end in self.receivers if end.client is client][: size // 2]:
                    end.detach()

    def send(self, living: list[Client], which: int, size: int) -> None:
        mine = [each for each in self.senders if each.client in living and not each.is_detached]
        for sender in mine[which::3]:
            while size > 0 and sender.link.credit > 0 and sender.is_attached:
                size -= 1
                self.sent.append(sender.send(address="a" if size % 2 else "m"))


KINDS = ("come", "send", "send", "settle", "pump", "pump", "end", "close", "kill", "detach")
STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 2), st.sampled_from((1, 3, 10, MANY))), min_size=3, max_size=25
)


@pytest.mark.slow
@settings(deadline=None)
@given(STEPS)
def test_whatever_happens_between_slices_nothing_is_left(steps: list[tuple[str, int, int]]) -> None:
    crowd = Crowd()
    crowd.do("come", 0, 3)
    crowd.net.pump()
    for step in steps:
        crowd.do(*step)
    net = crowd.net
    net.pump()
    # All receivers go: each message that is in flight still has its outcome then.
    for client in crowd.clients:
        for end in crowd.receivers:
            if end.client is client and not client.is_dead and client not in crowd.ended:
                end.close()
    net.pump()
    for sending in crowd.sent:
        client = sending.sender.client
        if not (client.is_dead or client.router_closed or sending.sender.is_detached or client in crowd.ended):
            assert sending.outcome in FINAL
            assert len([update for update in sending.updates if update.is_settled]) == 1
    receiver, sender = net.client().receiver("by", credit=5, accepts=True), net.client().sender("by")
    net.pump()
    mark = sender.send(b"still here")
    net.pump()
    assert mark.outcome == ACCEPTED
    assert receiver.bodies == [b"still here"]
    net.nothing_left()
