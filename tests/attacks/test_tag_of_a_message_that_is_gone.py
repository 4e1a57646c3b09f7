"""Attack: a sender on a routed link sends a large settled message, which waits for its container, and leaves.

When its turn came, the router looked for the message's tag in the engine's memory of the message. That memory was free,
or belonged to another message, whose tag then went to the container.
"""

import pytest
from memory_net import Client, Net, broker, encoded, receiver_of

from router.connection.auto_links import Place
from router.connection.link_routes import LinkRoute

LARGE = 300_000  # more than is handed on in one piece
FILLER = 100_000
OTHERS = 9  # messages on the sender's connection, which the engine makes of the memory of those that are gone


def scene() -> tuple[Net, Client, Client]:
    net = Net()
    place = Place(kind="container", text="broker")
    net.surroundings.link_routes.add(LinkRoute(pattern="q", direction="send", place=place, name="q", key="Cq"))
    return net, broker(net), net.client()


@pytest.mark.parametrize("is_released", [True, False])
@pytest.mark.parametrize("leaves", [True, False])
def test_the_tag_is_the_senders(leaves: bool, is_released: bool) -> None:
    net, container, client = scene()
    sender = client.sender("q")
    own = client.receiver("x", credit=OTHERS)
    other = net.client().sender("x")
    net.pump()
    receiver = receiver_of(container)
    receiver.flow(100)
    net.pump()
    container.stop_reading()
    while not net.peer(container).attachment.is_blocked:
        sender.send(bytes(FILLER), is_settled=True)
        net.pump()
    sender.send_bytes(encoded(bytes(LARGE)), is_settled=True)
    net.pump()
    if leaves:
        sender.detach()
        net.pump()
    if is_released:
        net.look_back()
    for _ in range(OTHERS):
        other.send(b"another's")
    net.pump()
    assert own.bodies == [b"another's"] * OTHERS
    container.resume_reading()
    net.pump()
    tags = {transfer[1]: transfer[2] for transfer in reversed(container.frames("transfer")) if transfer[2] is not None}
    assert sorted(tags.values()) == sorted(str(number).encode() for number in range(1, len(sender.sent) + 1))
    assert len(receiver.complete) == len(tags)
    net.nothing_left()
