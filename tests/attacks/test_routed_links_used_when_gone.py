"""Attack: routed links end on one side while their other side ends, in turns.

The router used links of its engine after their memory was free, and freed one twice:
 - A client has more links in a session than end with it in one turn, detaches one of them, and ends the session. The
   container answers that Detach between two turns.
 - A container is lost, and more links lead to it than learn of the loss in one turn. The engine's objects of its
   connection were released before all links had learned of it. Clients that left in between made the router use them.

Client and container may be the same person. Only the sanitizer sees it each time: tests/asan runs this file with it.
"""

from collections.abc import Callable

import pytest
from memory_net import Client, Net, Receiver, broker

from router.connection.auto_links import Place
from router.connection.link_routes import LinkRoute

MANY = 70  # more than end, or learn something, at once


def scene() -> tuple[Net, Client, Client, list[Receiver]]:
    """A client with many links that go on to a container."""
    net = Net(is_sliced=True)
    place = Place(kind="container", text="broker")
    net.surroundings.link_routes.add(LinkRoute(pattern="q", direction="receive", place=place, name="q", key="Dq"))
    container, client = broker(net), net.client()
    receivers = [client.receiver("q") for _ in range(MANY)]
    net.pump()
    assert all(receiver.is_attached for receiver in receivers)
    return net, container, client, receivers


@pytest.mark.parametrize("turns", [0, 1, MANY // 2, MANY - 5, MANY + 5])
@pytest.mark.parametrize("is_closed", [True, False])
def test_a_container_answers_a_detach_while_the_session_ends(turns: int, is_closed: bool) -> None:
    net, container, client, receivers = scene()
    last = receivers[-1]
    if is_closed:
        last.close()
    else:
        last.detach()
    client.push_to_router()
    while client.router.has_more:
        client.go_on()
    client.session.close()
    client.push_to_router()
    for _ in range(turns):
        client.go_on()
    assert client.router.has_more, "the session has not ended yet"
    while container.pull_from_router() or container.push_to_router():
        pass
    net.pump()
    assert not net.peer(client).engine.links
    net.nothing_left()


LEAVING: dict[str, Callable[[Client, list[Receiver]], None]] = {
    "detach": lambda _client, receivers: receivers[-1].detach(),
    "close": lambda _client, receivers: receivers[-1].close(),
    "end": lambda client, _receivers: client.session.close(),
    "go": lambda client, _receivers: client.kill(),
}


@pytest.mark.parametrize("way", LEAVING)
@pytest.mark.parametrize("detaches_before", [False, True])
def test_a_client_leaves_while_a_lost_container_is_released(way: str, detaches_before: bool) -> None:
    """Whichever of what is done later has its turns first."""
    net, container, client, receivers = scene()
    if detaches_before:
        receivers[-2].detach()
        client.push_to_router()
    container.kill()
    others = [steps for steps in net.remainders if "give_back" not in repr(steps)]
    assert len(others) < len(net.remainders)
    for steps in others:
        net.remainders.remove(steps)
    while net.do_later():
        pass
    LEAVING[way](client, receivers)
    client.push_to_router()
    net.remainders += others
    net.pump()
    net.nothing_left()
