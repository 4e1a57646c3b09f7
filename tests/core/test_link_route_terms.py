"""A link route carries what an Attach says beside the termini: settlement modes, size, properties and capabilities.

They are negotiated with the container that serves the link (AMQP 1.0 §2.7.3). Source: docs/spec/routing.md §15.3.
"""

from typing import Any

import proton
import pytest
from memory_net import ACCEPTED, Client, Net, Receiver, broker, broker_at, receiver_of, sender_of
from test_far_link_routes import line
from test_far_link_routes import link_routes as far_link_routes
from test_link_routes import link_routes

from router.amqp.codec import encode
from router.amqp.engine.attach_fields import AttachWriter, Capabilities
from router.amqp.guard.performatives import read_frame
from router.values import Array, symbol, uint

CAPABILITIES = Capabilities(encode(symbol("OFFERED")), encode(Array(symbol, (symbol("WANTED"), symbol("TOO")))))
ANSWERED = Capabilities(encode(symbol("BROKER")))
OFFERED, DESIRED, PROPERTIES, MAX_SIZE = 11, 12, 13, 10


def says(client: Client, name: str, capabilities: Capabilities, *, is_receiver: bool) -> None:
    """proton has no call for the capabilities of a link."""
    say = client.say
    writer = AttachWriter(lambda data: say(data), 8 if not client.uttered else 0, lambda: None)
    writer.expect(name.encode(), capabilities, is_receiver=is_receiver)
    client.say = writer  # type: ignore[method-assign]


def answers(container: Client, **terms: Any) -> None:
    """The container's answers to Attaches say these."""
    answer = container._answer_attach

    def answer_with(link: Any) -> None:
        for key, value in terms.items():
            setattr(link, key, value)
        answer(link)

    container._answer_attach = answer_with  # type: ignore[method-assign]


def attach_of(client: Client) -> Any:
    return client.frames("attach")[-1]


@pytest.mark.parametrize("is_receiver", [True, False])
@pytest.mark.parametrize("routers", ["A", "AB", "ABC"])
def test_the_terms_of_a_link_go_both_ways(routers: str, is_receiver: bool) -> None:
    fleet: Any
    if routers == "A":
        fleet = Net()
        near = fleet
        link_routes(near)
        container = broker(near)
    else:
        fleet = line(*routers)
        far_link_routes(fleet[routers[-1]])
        near, container = fleet["A"], broker_at(fleet, routers[-1])
    client = near.client()
    fleet.pump()
    says(client, "l", CAPABILITIES, is_receiver=is_receiver)
    says(container, f"l@{client.name}", ANSWERED, is_receiver=not is_receiver)
    answers(container, max_message_size=777_777, properties={proton.symbol("from-broker"): 2})
    terms: dict[str, Any] = {
        "snd_settle_mode": 1, "rcv_settle_mode": 1, "max_message_size": 123_456,
        "properties": {proton.symbol("from-client"): 1},
    }  # fmt: skip
    end = (client.receiver if is_receiver else client.sender)("q", name="l", **terms)
    fleet.pump()
    came, answer = attach_of(container), attach_of(client)
    assert (came[3], came[4], came[MAX_SIZE], came[PROPERTIES]) == (1, 1, 123_456, {"from-client": 1})
    assert (came[OFFERED], list(came[DESIRED])) == ("OFFERED", ["WANTED", "TOO"])
    assert (answer[MAX_SIZE], answer[PROPERTIES], answer[OFFERED]) == (777_777, {"from-broker": 2}, "BROKER")
    assert answer[DESIRED] is None
    assert end.is_attached
    near.no_errors()


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("settles", [0, 1])
def test_the_modes_that_the_container_answers_are_the_clients(mode: int, settles: int) -> None:
    net = Net()
    link_routes(net)
    container = broker(net)
    answers(container, snd_settle_mode=mode, rcv_settle_mode=settles)
    client = net.client()
    sender, receiver = client.sender("q"), client.receiver("q")
    net.pump()
    for end in (sender, receiver):
        assert (end.link.remote_snd_settle_mode, end.link.remote_rcv_settle_mode) == (mode, settles)
    net.no_errors()


@pytest.mark.parametrize("size", [100, 300_000])
def test_who_settles_last_settles_over_a_link_route(size: int) -> None:
    """rcv-settle-mode second: the receiver gives an outcome, the sender settles, then the receiver does."""
    net = Net()
    link_routes(net)
    container = broker(net)
    answers(container, rcv_settle_mode=1)
    client = net.client()
    sender, receiver = client.sender("q", rcv_settle_mode=1), client.receiver("q", credit=5, rcv_settle_mode=1)
    net.pump()
    taking, giving = receiver_of(container, 0), sender_of(container, 1)
    taking.accepts = giving.settles_back = sender.settles_back = False
    for source, sink in ((sender, taking), (giving, receiver)):
        sending = source.send(b"x" * size)
        net.pump()
        (item,) = sink.complete
        item.give(ACCEPTED, is_settled=False)
        net.pump()
        assert (sending.updates[-1].state, sending.updates[-1].is_settled) == (ACCEPTED, False)
        sending.settle()
        net.pump()
        assert item.delivery.settled
        item.settle()
        net.pump()
    assert isinstance(receiver, Receiver)
    net.no_errors()


def test_capabilities_that_do_not_fit_the_frames_of_the_next_peer_cost_the_link_alone() -> None:
    net = Net()
    link_routes(net)
    container = net.client("broker", role="route-container")
    container.transport.max_frame_size = 512
    net.pump()
    client = net.client()
    other = client.receiver("q.other")
    net.pump()
    large = Capabilities(desired=encode(Array(symbol, tuple(symbol("x" * 100) for _ in range(10)))))
    says(client, "l", large, is_receiver=True)
    receiver = client.receiver("q", name="l")
    net.pump()
    assert receiver.refusal.name == "amqp:frame-size-too-small"
    assert not other.is_detached
    net.no_errors()


def attach(name: str, *, is_receiver: bool) -> bytes:
    body = b"\x00\x53\x12" + encode([name, uint(0), is_receiver])
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body


def test_an_attach_gets_its_capabilities_however_it_is_cut() -> None:
    other, mine = attach("other", is_receiver=True), attach("mine", is_receiver=True)
    transfer = (1008).to_bytes(4, "big") + b"\x02\x00\x00\x00" + b"\x00\x53\x14" + bytes(997)
    data = bytes(5) + transfer + other + attach("mine", is_receiver=False) + mine + transfer
    whole = bytearray()
    done: list[bool] = []
    for piece in (1, 2, 3, 7, 20, len(data)):
        whole.clear()
        done.clear()
        writer = AttachWriter(whole.extend, 5, lambda: done.append(True))
        writer.expect(b"mine", CAPABILITIES, is_receiver=True)
        for at in range(0, len(data), piece):
            assert not done or piece > 1 or at > data.index(mine)
            writer(data[at : at + piece])
        assert done
        begin = len(data) - len(transfer) - len(mine)
        assert whole[:begin] == data[:begin]
        assert whole.endswith(transfer)
        changed = read_frame(memoryview(whole[begin : len(whole) - len(transfer)]))
        assert changed is not None
        assert changed.capabilities == CAPABILITIES
        assert changed.link_name == b"mine"


def test_nothing_is_kept_for_links_that_are_gone_before_their_attach() -> None:
    net = Net()
    link_routes(net)
    container = broker(net)
    client = net.client()
    net.pump()
    says(client, "l", CAPABILITIES, is_receiver=True)
    receiver = client.receiver("q", name="l")
    client.push_to_router()
    client.session.close()
    net.pump()
    assert not isinstance(net.peer(client).engine.write, AttachWriter)
    assert not isinstance(net.peer(container).engine.write, AttachWriter)
    assert receiver is not None
    net.no_errors()
