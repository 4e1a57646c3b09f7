"""Attack: a client of a link route requests much and takes nothing, or makes a broker end the session.

Auto links and all routed links to a broker had one session. What such a client did not take filled the window, and no
client received anything from the broker any more, for a minute or longer. When the broker ended the session because of
one client's link, the links of all other clients ended too. Now each routed link has its own session, auto links have
another, and the client pays for what it has requested.
"""

from typing import Any

import proton
import pytest
from memory_net import ACCEPTED, Client, Net, Receiver, Sender, broker, receiver_of, sender_of
from test_auto_links import auto_link
from test_link_routes import link_routes

from router.connection.lanes import MAX_BROKER_LANES
from router.core.budget import Limits
from router.core.routed import MAX_AHEAD

LIMITS = Limits()
WINDOW = 64 * 1024


def stalled(net: Net, address: str, credit: int, client: Client | None = None) -> Client:
    """A client that is alive, and takes nothing out of its session."""
    if client is None:
        client = net.client()
    session = client.connection.session()
    session.incoming_capacity = WINDOW
    session.open()
    receiver = client.receiver(address, session=session, credit=credit)
    del client.ends[receiver.link]
    net.pump()
    return client


def brokered(**terms: Any) -> tuple[Net, Client, Receiver, Sender]:
    """A broker with an auto link in, whose receiver here is ready."""
    net = Net({"auto": "balanced"}, phases={"auto": (0, 1)}, limits=LIMITS, **terms)
    link_routes(net)
    auto_link(net, "auto", "in")
    container = broker(net)
    ready = net.client().receiver("auto", credit=100, accepts=True)
    net.pump()
    return net, container, ready, sender_of(container)


def gives(container: Client, number: int, size: int, count: int) -> Sender:
    sender = sender_of(container, number)
    for _ in range(count):
        sender.send(b"x" * size)
    return sender


@pytest.mark.parametrize(("size", "count"), [(100_000, 400), (1_000_000, 40)])
def test_the_others_go_on(size: int, count: int) -> None:
    net, container, ready, auto = brokered()
    before = net.client().receiver("q.before", credit=100, accepts=True)
    net.pump()
    net.remote_host = "10.0.0.66"
    stalled(net, "q.stalled", count)
    gives(container, -1, size, count)
    net.pump()
    net.remote_host = "10.0.0.2"
    after = net.client().receiver("q.after", credit=100, accepts=True)
    net.pump()
    for number, receiver in ((1, before), (3, after)):
        sending = sender_of(container, number).send(b"for another")
        net.pump()
        assert sending.outcome == ACCEPTED
        assert receiver.bodies == [b"for another"]
    assert auto.send(b"by the auto link").outcome is None
    net.pump()
    assert auto.outcomes == [ACCEPTED]
    assert len(ready.bodies) == 1
    net.no_errors()


def test_many_that_take_nothing_fill_no_account_but_their_own() -> None:
    """A dozen such links filled the account of the broker's connection, which then held back all."""
    net, container, _, auto = brokered()
    others = net.peer(container).attachment.account
    net.remote_host = "10.0.0.66"
    client = net.client()
    for _ in range(12):
        stalled(net, "q.stalled", 1000, client)
        gives(container, -1, 100_000, 150)
        net.pump()
    assert others.held < 2 * 1024 * 1024
    assert not others.behind
    auto.send(b"by the auto link")
    net.pump()
    assert auto.outcomes == [ACCEPTED]
    held = net.peer(client).attachment.account.held
    assert LIMITS.connection // 4 < held < 2 * LIMITS.connection
    client.kill()
    net.pump()
    assert net.peer(container).attachment.account.held < 2 * 1024 * 1024
    net.no_errors()


def test_credit_is_passed_on_as_far_as_there_is_room() -> None:
    net, container, _, _ = brokered()
    stalled(net, "q.stalled", 1_000_000)
    assert sender_of(container).credit == MAX_AHEAD
    taking = net.client().receiver("q.taking", credit=1_000_000, accepts=True)
    net.pump()
    giving = sender_of(container)
    for _ in range(2):
        for _ in range(giving.credit):
            giving.send()
        net.pump()
        assert 0 < giving.credit <= MAX_AHEAD
    assert len(taking.complete) == len(giving.sent) > MAX_AHEAD
    net.no_errors()


def test_a_session_that_the_broker_ends_is_one_clients() -> None:
    """As RabbitMQ 3 does for an exchange that is not there, or an outcome that it does not know."""
    net, container, _, auto = brokered()
    client, mallory = net.client(), net.client()
    receiver, sender = client.receiver("q.good", credit=10, accepts=True), client.sender("q.good")
    net.pump()
    giving = sender_of(container, 1)
    bad = mallory.sender("q.missing")
    net.pump()
    ended = receiver_of(container).link.session
    ended.condition = proton.Condition("amqp:not-found", "no exchange")
    ended.close()
    net.pump()
    assert bad.is_detached
    sender.send(b"to the broker")
    giving.send(b"from the broker")
    auto.send(b"by the auto link")
    net.pump()
    assert sender.outcomes == giving.outcomes == auto.outcomes == [ACCEPTED]
    assert not receiver.is_detached
    assert not sender.is_detached
    net.no_errors()


@pytest.mark.parametrize("channels", [2, 3, 6, 24])
def test_nobody_takes_all_sessions(channels: int) -> None:
    """Where the broker permits few, the links of one user share. There is one for all where there is but one.

    channels  one of them is the broker's own
    """
    net = Net(limits=LIMITS, phases={"auto": (0, 1)})
    link_routes(net)
    auto_link(net, "auto", "in")
    container = broker(net, channel_max=channels - 2)  # a route-container's is one higher
    ready = net.client().receiver("auto", credit=10, accepts=True)
    net.pump()
    net.remote_host = "10.0.0.66"
    mallory = net.client()
    for number in range(2 * channels):
        stalled(net, "q.stalled", 100, mallory)
        gives(container, -1, 1_000_000, 10 if number < 2 else 1)
        net.pump()
    net.remote_host = "10.0.0.2"
    good = net.client().receiver("q.good", credit=10, accepts=True)
    net.pump()
    sender_of(container).send(b"good")
    sender_of(container, 0).send(b"auto")
    net.pump()
    assert good.is_attached
    if channels > 3:
        assert good.bodies == [b"good"]
    if channels > 2:
        assert ready.bodies == [b"auto"]
    assert len({end.link.session for end in container.attached_by_router}) <= channels - 1
    net.no_errors()


def test_sessions_are_used_again_and_bounded() -> None:
    net, container, _, _ = brokered()
    client = net.client()
    for _ in range(40):
        receiver = client.receiver("q.a", credit=10, accepts=True)
        net.pump()
        sender_of(container).send()
        net.pump()
        assert len(receiver.bodies) == 1
        receiver.close()
        net.pump()
    assert len({end.link.session for end in container.attached_by_router}) <= 4
    assert MAX_BROKER_LANES <= 512
    net.no_errors()
