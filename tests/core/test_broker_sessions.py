"""The sessions of links that the router attaches at containers: a container may permit few, or few links in each.

Source: docs/spec/routing.md §14, §15.3; its fault was that a limit of the peer was taken for "no route".
"""

from typing import Any

import pytest
from memory_net import ACCEPTED, Client, Net, broker
from test_auto_links import auto_link, status
from test_link_routes import link_routes

_UINT_MAX = b"\x70\x7f\xff\xff\xff"


def lower_handles(container: Client, room: int) -> None:
    """The container's sessions have room for so many links, as cloud brokers say in their Begin."""
    say = container.say
    lowered = b"\x70" + (room - 1).to_bytes(4, "big")
    container.say = lambda data: say(data.replace(_UINT_MAX * 3, _UINT_MAX * 2 + lowered))  # type: ignore[method-assign]


def narrow_broker(net: Net, room: int, **terms: Any) -> Client:
    container = net.client("broker", role="route-container", **terms)
    lower_handles(container, room)
    net.pump()
    return container


def sessions_of(container: Client) -> list[int]:
    """How many links the router has on each session at the container."""
    links = [end.link for end in container.attached_by_router if not end.is_detached]
    return [sum(link.session == session for link in links) for session in {link.session for link in links}]


def test_another_session_is_begun_when_one_has_no_handle_left() -> None:
    net = Net()
    link_routes(net)
    autos = [auto_link(net, f"auto{number}", "out") for number in range(20)]
    container = narrow_broker(net, 8)
    senders = [net.client().sender(f"q.{number}") for number in range(20)]
    net.pump()
    assert {status(auto) for auto in autos} == {"active"}
    assert all(sender.is_attached for sender in senders)
    assert max(sessions_of(container)) == 8
    for sender in senders:
        sender.send()
    net.pump()
    assert all(sender.outcomes == [ACCEPTED] for sender in senders)
    net.no_errors()


@pytest.mark.parametrize("channels", [3, 6])
def test_a_container_that_takes_no_more_links_is_said_to(channels: int) -> None:
    """channels  one is of the container's own session"""
    net = Net()
    link_routes(net)
    container = narrow_broker(net, 4, channel_max=channels - 2)
    client = net.client()
    senders = [client.sender(f"q.{number}") for number in range(4 * channels)]
    net.pump()
    refused = [sender for sender in senders if sender.is_detached]
    assert len(senders) - len(refused) == sum(sessions_of(container)) >= 4 * (channels - 1) - 4
    assert {sender.refusal.name for sender in refused} == {"amqp:resource-limit-exceeded"}
    assert "takes no more links: no handle is left" in str(refused[0].refusal.description)
    auto = auto_link(net, "auto", "out")
    net.pump()
    if status(auto) == "failed":
        assert "takes no more links" in str(auto.last_error)
    lines = [text for text in net.log_texts() if "takes no more links" in text and "Auto Link" not in text]
    assert len(lines) == 1
    senders[0].close()
    net.pump()
    again = client.sender("q.again")
    net.pump()
    assert again.is_attached
    assert not again.is_detached
    net.no_errors()


def test_auto_links_have_a_session_of_their_own() -> None:
    net = Net()
    link_routes(net)
    auto_link(net, "auto1", "in")
    auto_link(net, "auto2", "out")
    container = broker(net)
    client = net.client()
    client.sender("q.1")
    client.receiver("q.2")
    net.pump()
    assert sorted(sessions_of(container)) == [1, 1, 2]


def test_an_attach_does_not_wait_for_its_session() -> None:
    """One is there in advance, also for the second and the third."""
    net = Net()
    link_routes(net)
    container = broker(net)
    client = net.client()
    net.pump()
    for number in range(3):
        receiver = client.receiver(f"q.{number}")
        assert client.push_to_router()
        assert container.pull_from_router()
        assert container.push_to_router()
        assert client.pull_from_router()
        assert receiver.is_attached
        net.pump()
