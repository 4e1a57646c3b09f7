"""The sessions of links that the router attaches at containers: a container may permit few, or few links in each.

Source: docs/spec/routing.md §14, §15.3; its fault was that a limit of the peer was taken for "no route".
"""

from typing import Any

import proton
import pytest
from memory_net import ACCEPTED, Client, Net, broker, sender_of
from test_auto_links import auto_link, status
from test_link_routes import link_routes

from router.core.budget import Limits

FRAME = 16_384  # of a listener, unless it has another
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
    container = narrow_broker(net, 8, channel_max=6)
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


def test_each_auto_link_has_a_session() -> None:
    net = Net()
    link_routes(net)
    auto_link(net, "auto1", "in")
    auto_link(net, "auto2", "out")
    container = broker(net)
    client = net.client()
    client.sender("q.1")
    client.receiver("q.2")
    net.pump()
    assert sorted(sessions_of(container)) == [1, 1, 1, 1]


def test_auto_links_leave_sessions_to_others() -> None:
    """Where the container permits few, they share some of these."""
    net = Net()
    link_routes(net)
    autos = [auto_link(net, f"auto{number}", "in") for number in range(40)]
    container = broker(net, channel_max=14)
    for number in range(3):
        net.remote_host = f"10.0.0.{number + 1}"
        net.client().receiver("q.1")
        net.pump()
    assert {status(auto) for auto in autos} == {"active"}
    assert sessions_of(container).count(1) >= 3
    assert sum(sessions_of(container)) == 43


def test_nothing_is_said_of_a_link_that_the_container_has_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Flow told the window with the handle of the link. Where Broker-J refuses a link, it ends the session for that,
    and its connection as soon as the next session begins: each client could so interrupt all others.
    """
    net = Net(limits=Limits())
    link_routes(net)
    auto_link(net, "auto", "in")
    container = broker(net)
    client = net.client()
    net.pump()
    monkeypatch.setattr(container, "_answer_attach", lambda _: None)
    client.receiver("q.none")
    auto_link(net, "more", "in")
    net.pump()
    attached = {frame.channel for frame in container.frames("attach")[-2:]}
    assert len(attached) == 2
    flows = [frame for frame in container.frames("flow") if frame.channel in attached]
    assert all(flow[4] is None for flow in flows)


@pytest.mark.parametrize("product", ["Apache Qpid Broker-J Core", "another"])
def test_the_windows_of_a_broker_that_overruns_them_grow(product: str) -> None:
    """Broker-J looks at the window as it begins a message, and sends all of that: its connection was closed for it."""
    size, count = 1_000_000, 30
    net = Net(limits=Limits())
    link_routes(net)
    container = net.client("broker", role="route-container", opens=False)
    container.connection.properties = {proton.symbol("product"): product}
    container.open()
    net.pump()
    client = net.client()
    session = client.connection.session()
    session.incoming_capacity = 64 * 1024
    session.open()
    receiver = client.receiver("q.stalled", session=session, credit=count)
    del client.ends[receiver.link]
    net.pump()
    giving = sender_of(container)
    for _ in range(count):
        giving.send(bytes(size))
    net.pump()
    unsent = giving.link.session.outgoing_bytes
    assert unsent == 0 if product.startswith("Apache") else unsent > 15 * size
    held = net.peer(client).attachment.account.held
    assert held < Limits().connection
    net.no_errors()


def test_a_stalled_address_of_an_auto_link_stops_no_other() -> None:
    """All auto links of a connection shared one session, whose window what nobody took had filled, however it grew."""
    size, count = 1_000_000, 80
    addresses = {"stalled": "balanced", "good": "balanced"}
    net = Net(addresses, phases=dict.fromkeys(addresses, (0, 1)), limits=Limits())
    for address in addresses:
        auto_link(net, address, "in")
    container = broker(net)
    net.pump()
    stalls = net.client()
    session = stalls.connection.session()
    session.incoming_capacity = 64 * 1024
    session.open()
    receiver = stalls.receiver("stalled", session=session, credit=count)
    del stalls.ends[receiver.link]
    good = net.client().receiver("good", credit=10, accepts=True)
    net.pump()
    bad, well = sender_of(container, 0), sender_of(container, 1)
    for _ in range(count):
        bad.send(bytes(size))
    net.pump()
    well.send(b"good")
    net.pump()
    assert good.bodies == [b"good"]
    net.no_errors()


def test_the_windows_of_auto_links_fit_the_account_of_their_connection() -> None:
    net = Net(limits=Limits())
    for number in range(30):
        auto_link(net, f"auto{number}", "in")
    container = broker(net)
    net.pump()
    windows = {flow.channel: flow[1] * FRAME for flow in container.frames("flow")}
    assert len(windows) >= 30
    assert sum(windows.values()) < Limits().connection


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
