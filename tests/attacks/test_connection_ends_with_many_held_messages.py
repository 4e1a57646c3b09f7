"""Attack: a connection ends with many messages that wait for a budget or a streamed message, or with many routed links.

All messages that came before the end are forwarded, as routing §9.4 asks, and each link's container learns of the end.
That was done in one pass, without a pause for other connections.
"""

from memory_net import Net, broker

from router.connection.auto_links import Place
from router.connection.link_routes import LinkRoute

COUNT = 200
BROKER = Place(kind="container", text="broker")


def test_they_are_forwarded_in_steps() -> None:
    net = Net(is_sliced=True)
    reader, client = net.client("reader"), net.client("client")
    receiver = reader.receiver("a", credit=2 * COUNT)
    net.pump()
    sender = client.sender("a")
    net.pump()
    (link,) = net.peer(client).attachment.in_links
    link.wire.hold()
    for _ in range(COUNT):
        sender.send(b"x")
    net.pump()
    assert not receiver.received
    client.kill()
    most, before = 0, 0
    while net.carry():
        most, before = max(most, len(receiver.received) - before), len(receiver.received)
    assert len(receiver.received) == COUNT
    assert 0 < most <= COUNT // 4, "in one go"
    net.nothing_left()


def test_containers_learn_of_many_routed_links_in_steps() -> None:
    """A client hangs up that has some hundred links through link routes."""
    net = Net(is_sliced=True)
    for direction in ("send", "receive"):
        net.surroundings.link_routes.add(
            LinkRoute(pattern="q", direction=direction, place=BROKER, name=direction, key="Cq")
        )
    container, client = broker(net), net.client()
    net.pump()
    for _ in range(COUNT):
        client.receiver("q")
    net.pump()
    router = net.peer(container).hosting
    assert len(router.routed) == COUNT
    client.kill()
    most, before = 0, COUNT
    while net.carry():
        most, before = max(most, before - len(router.routed)), len(router.routed)
    assert not router.routed
    assert 0 < most <= COUNT // 2, "in one go"
    net.nothing_left()
