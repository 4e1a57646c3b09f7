"""Attack: an Attach, its answer or a Detach that fits into a frame of its sender, but not into one of the next router.

The link is routed, and each of these frames continues as one frame to a neighbour or a broker. Many clients share that
connection. The next router closes a connection on which a frame is too large.
"""

from typing import Any

import proton
import pytest
from memory_net import ACCEPTED, Client, Fleet, Net

from router.connection.auto_links import Place
from router.connection.link_routes import LinkRoute

BROKER = Place(kind="container", text="broker")
# Of a link's terminus: with it an Attach is just small enough for this router, and with a longer name for no other.
ALMOST = 16 * 1024 - 1700


def fleet() -> tuple[Fleet, Client]:
    made = Fleet("A", "B")
    made.connect("A", "B")
    made.settle()
    for direction, key in (("send", "Cq"), ("receive", "Dq")):
        route = LinkRoute(pattern="q/#", direction=direction, name=key, key=key, place=BROKER)  # type: ignore[arg-type]
        made["B"].surroundings.link_routes.add(route)
    container = made["B"].client("broker", role="route-container")
    made.tick(2)
    return made, container


def still_routes(made: Fleet) -> bool:
    sender = made["A"].client("honest").sender("q")
    made.pump()
    sender.send(b"m")
    made.pump()
    return sender.outcomes == [ACCEPTED] and not made["A"].ends[0].is_dead


def filters(size: int) -> dict[str, Any]:
    return {"filter": {proton.symbol("f"): "x" * size}}


def test_a_client_attaches_with_a_long_filter_and_a_long_name() -> None:
    made, _ = fleet()
    receiver = made["A"].client("c" * 1000).receiver("q", source=filters(ALMOST))
    made.pump()
    assert receiver.refusal.name == "amqp:frame-size-too-small"
    assert still_routes(made)


def small_frames(net: Net, name: str, **terms: Any) -> Client:
    client = net.client(name, opens=False, **terms)
    client.transport.max_frame_size = 4096
    client.open()
    net.pump()
    return client


def one(**terms: Any) -> tuple[Net, Client]:
    net = Net()
    route = LinkRoute(pattern="q/#", direction="receive", name="q", key="Dq", place=BROKER)
    net.surroundings.link_routes.add(route)
    make = small_frames if terms.pop("is_small", False) else Net.client
    container = make(net, "broker", role="route-container")
    net.pump()
    return net, container


def test_a_container_has_smaller_frames_than_the_client() -> None:
    net, container = one(is_small=True)
    client = net.client()
    long, short = client.receiver("q", source=filters(8000)), client.receiver("q", source=filters(1000))
    net.pump()
    assert long.refusal.name == "amqp:frame-size-too-small"
    assert not short.is_detached
    assert len(container.attached_by_router) == 1
    assert not container.router_closed


def test_a_container_answers_with_long_termini() -> None:
    """As bob does who is a container: whoever attaches would lose its connection."""
    net, container = one()

    def answer(link: Any) -> None:
        link.source.address = "q"
        link.source.filter.put_object({proton.symbol("f"): "x" * 8000})
        link.open()

    container._answer_attach = answer  # type: ignore[method-assign]
    client = small_frames(net, "c")
    receiver = client.receiver("q")
    net.pump()
    assert receiver.refusal.name == "amqp:frame-size-too-small"
    assert not client.router_closed
    client.kill()
    container.kill()
    net.pump()
    net.nothing_left()


@pytest.mark.parametrize("who", ["client", "container"])
def test_a_detach_with_a_long_error(who: str) -> None:
    """The other learns the error, without what makes it long."""
    net, container = one(is_small=who == "client")
    client = net.client("c") if who == "client" else small_frames(net, "c")
    receiver = client.receiver("q")
    net.pump()
    ends: list[Any] = [receiver, container.attached_by_router[0]]
    said, told = ends if who == "client" else reversed(ends)
    said.link.condition = proton.Condition("x:y", "why", {"long": "x" * 8000})
    said.close()
    net.pump()
    assert told.refusal.name == "x:y"
    assert not told.refusal.info
    assert not client.router_closed
    assert not container.router_closed
    net.no_errors()
