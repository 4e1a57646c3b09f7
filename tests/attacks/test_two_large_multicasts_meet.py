"""Attack: two users of different routers send a large multicast each, at the same time.

Each occupied the receivers near its sender first and waited for those near the other, which waited for it. Neither
ended, and the address was blocked for all users, until messageProgressTimeout closed a receiver's link. Now the router
still reads a message that waits for another streamed message, up to 2 MiB and within the sender's budgets.
"""

import pytest
from memory_net import ACCEPTED, Fleet, Net, encoded
from test_streaming import MEGABYTE, Upload, held_bytes

SIZE = 10_000_000  # more than the windows between routers
PIECE = 64 * 1024


def meet(fleet: Fleet) -> tuple[list[int], list[bool]]:
    """Returns how many messages each receiver has whole, and whether each sender was told `accepted`."""
    receivers = [fleet[name].client().receiver("m.news", credit=10, accepts=True) for name in ("A", "B")]
    fleet.tick(3)
    senders = [fleet[name].client().sender("m.news") for name in ("A", "B")]
    fleet.pump()
    payload = encoded(bytes(SIZE))
    sendings = [sender.start() for sender in senders]
    for sender in senders:
        sender.append(payload[:200_000])  # each occupies the receiver of its router
    left = [payload[200_000:]] * 2
    fleet.pump()
    for _ in range(200):
        for at, sender in enumerate(senders):
            if left[at] and sender.link.session.outgoing_bytes < PIECE:
                sender.append(left[at][:PIECE])
                left[at] = left[at][PIECE:]
                if not left[at]:
                    sender.finish()
        fleet.pump()
    return [len(receiver.complete) for receiver in receivers], [sending.outcome == ACCEPTED for sending in sendings]


@pytest.mark.parametrize("is_sliced", [False, True])
def test_both_reach_everybody(is_sliced: bool) -> None:
    fleet = Fleet("A", "B", distributions={"m.news": "multicast"}, is_sliced=is_sliced)
    fleet.connect("A", "B")
    fleet.settle()
    assert meet(fleet) == ([2, 2], [True, True])


def test_what_waits_for_many_receivers_is_no_more_than_for_one() -> None:
    """Attack: 2 MiB gathered for each of twenty receivers."""
    net = Net({"m.news": "multicast"})
    receivers = [net.client().receiver("m.news", credit=10, accepts=True) for _ in range(20)]
    first, second = (net.client().sender("m.news") for _ in range(2))
    net.pump()
    upload = Upload(first, 4 * MEGABYTE)
    upload.push(net, 200_000)  # it occupies them all
    late = net.client().receiver("m.news", credit=10, accepts=True)  # and this one is free
    net.pump()
    other = Upload(second, 4 * MEGABYTE)
    other.push(net)
    assert MEGABYTE < held_bytes(net) < 12 * MEGABYTE  # not 40
    upload.push(net)
    upload.finish()
    net.pump()
    while other.left:
        assert other.push(net) > 0
    other.finish()
    net.pump()
    assert [len(each.complete) for each in [*receivers, late]] == [2] * 20 + [1]
