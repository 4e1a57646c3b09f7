"""What the sender learns: the receiver's outcome with its data, exactly once; or what became of a lost one."""

from typing import Any

import proton
import pytest
from memory_net import ACCEPTED, MODIFIED, REJECTED, RELEASED, Net, Received, Receiver, Sender, Sending, sender_of
from proton import symbol
from test_auto_links import auto_link
from test_link_routes import link_routes


def pair(net: Net, address: str = "a", credit: int = 100) -> tuple[Sender, Receiver]:
    receiver = net.client("receives").receiver(address, credit=credit)
    sender = net.client("sends").sender(address)
    net.pump()
    return sender, receiver


def one(net: Net) -> tuple[Sender, Sending, Received]:
    sender, receiver = pair(net)
    sending = sender.send()
    net.pump()
    return sender, sending, receiver.complete[0]


@pytest.mark.parametrize("state", [ACCEPTED, REJECTED, RELEASED, MODIFIED])
def test_outcomes_propagate_in_one_disposition(state: int) -> None:
    """routing 83, 91"""
    net = Net()
    sender, sending, received = one(net)
    received.give(state)
    net.pump()
    assert [(update.state, update.is_settled) for update in sending.updates] == [(state, True)]
    assert len(sender.client.frames("disposition")) == 1
    (link,) = [link for link in net.core.links.values() if link.name == sender.link.name]
    assert [link.accepted, link.rejected, link.released, link.modified] == [
        int(state == each) for each in (ACCEPTED, REJECTED, RELEASED, MODIFIED)
    ]
    net.nothing_left()


def test_rejection_carries_its_error() -> None:
    """routing 84"""
    net = Net()
    _, sending, received = one(net)
    info: dict[Any, Any] = {symbol("why"): "because", symbol("code"): 7}
    received.give(REJECTED, condition=proton.Condition("app:refused", "will not have it", info))
    net.pump()
    condition = sending.updates[0].refusal
    assert (condition.name, condition.description, condition.info) == ("app:refused", "will not have it", info)


def test_modification_carries_its_fields() -> None:
    """routing 85"""
    net = Net()
    _, sending, received = one(net)
    received.give(MODIFIED, undeliverable=True, annotations={symbol("x-opt-note"): "v"})
    net.pump()
    (update,) = sending.updates
    assert (update.failed, update.undeliverable) == (True, True)
    assert update.annotations == {symbol("x-opt-note"): "v"}


CUSTOM = 0x999
DATA = [1, "two", symbol("three")]


def test_custom_states_carry_their_data() -> None:
    """routing 86; transactions: tests/attacks/test_transaction_past_its_coordinator.py"""
    net, code, data = Net(), CUSTOM, DATA
    _, sending, received = one(net)
    received.give(code, is_settled=False, data=data)
    net.pump()
    assert [(update.state, update.is_settled, update.data) for update in sending.updates] == [(code, False, data)]
    received.give(code)
    net.pump()
    assert sending.outcome == code
    net.nothing_left()


def test_senders_state_reaches_the_receiver() -> None:
    """routing 86: both ways, on a disposition"""
    net = Net()
    _, sending, received = one(net)
    sending.update(CUSTOM, DATA)
    net.pump()
    assert received.states == [CUSTOM]
    data: Any = received.delivery.remote.data
    assert data == DATA
    received.accept()
    net.pump()
    assert sending.outcome == ACCEPTED
    net.nothing_left()


def test_senders_state_on_the_transfer_reaches_the_receiver() -> None:
    """routing 86: a state that comes with the message, in one frame"""
    net = Net()
    sender, receiver = pair(net)
    sending = sender.send()
    sending.update(CUSTOM, DATA)
    net.pump()
    received = receiver.complete[0]
    assert received.delivery.remote_state == CUSTOM
    data: Any = received.delivery.remote.data
    assert data == DATA
    received.accept()
    net.pump()
    assert sending.outcome == ACCEPTED
    net.nothing_left()


def test_three_way_acknowledgement() -> None:
    """routing 87"""
    net = Net()
    sender, receiver = pair(net)
    sender.settles_back = False
    sending = sender.send()
    net.pump()
    received = receiver.complete[0]
    received.give(ACCEPTED, is_settled=False)
    net.pump()
    assert [(update.state, update.is_settled) for update in sending.updates] == [(ACCEPTED, False)]
    assert sender.credit == 249
    sending.settle()
    net.pump()
    assert received.came_settled
    received.settle()
    net.pump()
    assert sender.credit == 250
    (link,) = [link for link in net.core.links.values() if link.name == sender.link.name]
    assert link.accepted == 1
    net.nothing_left()


def test_three_way_with_a_receiver_that_settles_by_itself() -> None:
    """routing 87: disposition, then settlement, both from the receiver"""
    net = Net()
    sender, receiver = pair(net)
    for _ in range(3):
        sending = sender.send()
        net.pump()
        received = receiver.complete[-1]
        received.give(ACCEPTED, is_settled=False)
        net.pump()
        received.settle()
        net.pump()
        assert [update.state for update in sending.updates] == [ACCEPTED, ACCEPTED]
        assert [update.is_settled for update in sending.updates] == [False, True]
    assert sender.credit == 250
    net.nothing_left()


def test_a_sender_settling_first_settles_the_receiver() -> None:
    """routing 87 (§9.1: a later receiver outcome is ignored), for targeted and anonymous links"""
    for address in ("a", None):
        net = Net()
        receiver = net.client().receiver("a", credit=2)
        sender = net.client().sender(address)
        net.pump()
        sendings = [sender.send(address="a") for _ in range(4)]
        net.pump()
        for sending in sendings:
            sending.settle()
        net.pump()
        assert [item.came_settled for item in receiver.complete] == [True, True]
        receiver.accept_all()
        net.pump()
        receiver.flow(10)
        net.pump()
        assert [item.came_settled for item in receiver.complete] == [True] * 4
        assert not any(sending.updates for sending in sendings)
        assert sender.credit == 250
        assert all(link.load == 0 for link in net.core.links.values() if hasattr(link, "load"))
        net.nothing_left()


def test_settling_without_a_state() -> None:
    """routing 83 (§9.1: settled without state gives settled; §19.4: no counter)"""
    net = Net()
    sender, sending, received = one(net)
    received.settle()
    net.pump()
    assert [(update.state, update.is_settled) for update in sending.updates] == [(0, True)]
    assert sender.credit == 250


def test_receiver_loss_tells_sent_from_unsent() -> None:
    """routing 88, 91"""
    net = Net()
    sender, receiver = pair(net, credit=3)
    sendings = [sender.send() for _ in range(8)]
    net.pump()
    receiver.client.kill()
    net.pump()
    assert [sending.outcome for sending in sendings] == [MODIFIED] * 3 + [RELEASED] * 5
    assert all(len(sending.updates) == 1 for sending in sendings)
    assert all(sending.updates[0].failed for sending in sendings[:3])
    net.nothing_left()


def test_receiver_detach_is_a_loss() -> None:
    """routing 88"""
    net = Net()
    sender, receiver = pair(net, credit=1)
    sendings = [sender.send() for _ in range(3)]
    net.pump()
    receiver.close()
    net.pump()
    assert [sending.outcome for sending in sendings] == [MODIFIED, RELEASED, RELEASED]
    net.nothing_left()


def test_messages_of_a_sender_that_left_are_delivered() -> None:
    """routing 89, 90"""
    net = Net()
    sender, receiver = pair(net, credit=2)
    for number in range(5):
        sender.send(b"%d" % number)
    sender.client.push_to_router()
    sender.client.kill()
    net.pump()
    assert receiver.bodies == [b"0", b"1"]
    receiver.accept_all()
    net.pump()
    receiver.flow(10)
    net.pump()
    assert receiver.bodies == [b"%d" % number for number in range(5)]
    receiver.accept_all()
    net.pump()
    net.nothing_left()


def test_receiver_that_wants_settled_messages() -> None:
    """routing 81"""
    net = Net()
    receiver = net.client().receiver("a", credit=2, snd_settle_mode=proton.Link.SND_SETTLED)
    sender = net.client().sender("a")
    net.pump()
    sendings = [sender.send() for _ in range(3)]
    net.pump()
    assert [item.came_settled for item in receiver.complete] == [True, True]
    assert [sending.outcome for sending in sendings] == [ACCEPTED, ACCEPTED, None]
    receiver.flow(1)
    net.pump()
    assert sendings[2].outcome == ACCEPTED
    net.nothing_left()


def test_progress_reports_reach_the_sender() -> None:
    """routing 83 (§9.1: received with section-number and section-offset)"""
    net = Net()
    sender, sending, received = one(net)
    received.give(proton.Delivery.RECEIVED, is_settled=False, section_number=2, section_offset=77)
    net.pump()
    assert [(update.state, update.is_settled) for update in sending.updates] == [(proton.Delivery.RECEIVED, False)]
    received.accept()
    net.pump()
    assert sending.outcome == ACCEPTED
    assert sender.credit == 250


def test_a_second_disposition_changes_nothing() -> None:
    """routing 91: a receiver that repeats itself after settling"""
    net = Net()
    sender, sending, received = one(net)
    received.accept()
    net.pump()
    receiver_client = net.clients[0]
    number = b"\x43"
    fields = b"\x41" + number + number + b"\x41\x00\x53\x26\x45"
    body = b"\x00\x53\x15\xc0" + bytes([len(fields) + 1, 5]) + fields
    for _ in range(3):
        receiver_client.say((len(body) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body)
    net.pump()
    assert [update.state for update in sending.updates] == [ACCEPTED]
    assert sender.credit == 250
    net.nothing_left()


def test_delays_are_counted() -> None:
    """routing 83 (§19.1: settled after more than 1 and at most 10 s, and after more than 10 s)"""
    net = Net()
    sender, receiver = pair(net)
    for wait in (1, 3, 11):
        sender.send()
        net.pump()
        net.advance(wait)
        receiver.accept_all()
        net.pump()
    (link,) = [link for link in net.core.links.values() if link.name == sender.link.name]
    assert (link.delayed_1s, link.delayed_10s) == (1, 1)


def names(*outcomes: str) -> proton.Array:
    symbols = [proton.symbol(f"amqp:{outcome}:list") for outcome in outcomes]
    return proton.Array(proton.UNDESCRIBED, proton.Data.SYMBOL, *symbols)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("offered", "given", "told"),
    [
        (("accepted", "rejected", "released"), "leaves", RELEASED),
        (("accepted", "rejected", "released"), MODIFIED, RELEASED),
        (("accepted", "modified"), RELEASED, MODIFIED),
        (("accepted", "modified"), REJECTED, MODIFIED),
        (("accepted", "released"), REJECTED, RELEASED),
        (("accepted",), "leaves", 0),
        (("accepted",), REJECTED, 0),
        (("accepted", "rejected", "released", "modified"), "leaves", MODIFIED),
        (("something",), REJECTED, REJECTED),
    ],
)
@pytest.mark.parametrize("size", [10, 300_000])
def test_a_sender_is_told_what_its_source_offers(offered: tuple[str, ...], given: Any, told: int, size: int) -> None:
    """AMQP 1.0 §3.5.3. RabbitMQ 3 ends the session for `modified`. 0: settled with its source's default-outcome."""
    net = Net()
    sender = net.client().sender("a", source={"outcomes": names(*offered)})
    client = net.client()
    receiver = client.receiver("a", credit=1)
    net.pump()
    sending = sender.send(bytes(size))
    net.pump()
    if given == "leaves":
        client.close()
    else:
        receiver.complete[0].give(given)
    net.pump()
    assert sending.updates[-1].is_settled
    assert sending.updates[-1].state == told
    if told == MODIFIED:
        assert sending.updates[-1].failed == (given != RELEASED)
        assert sending.updates[-1].undeliverable == (given == REJECTED)
    net.no_errors()


def test_a_broker_is_told_what_its_source_offers() -> None:
    """The container says so in its answer to the Attach of an auto link, or of a routed one."""
    net = Net(phases={"q": (0, 1)})
    auto_link(net, "q", "in")
    link_routes(net, "r")
    container = net.client("broker", role="route-container")
    answer = container._answer_attach

    def offer(link: Any) -> None:
        link.remote_source.outcomes.put_object(names("accepted", "rejected", "released"))  # it answers with this one
        answer(link)

    container._answer_attach = offer  # type: ignore[method-assign]
    net.pump()
    for address in ("q", "r.1"):
        client = net.client()
        client.receiver(address, credit=1)
        net.pump()
        sending = sender_of(container).send()
        net.pump()
        client.close()
        net.pump()
        assert sending.outcome == RELEASED
    net.no_errors()


@pytest.mark.parametrize("size", [10, 300_000])
@pytest.mark.parametrize("state", [ACCEPTED, REJECTED, RELEASED])
def test_a_sender_that_asks_for_it_settles_first(state: int, size: int) -> None:
    """rcv-settle-mode second: it has the outcome unsettled, and its credit when it has settled."""
    net = Net()
    receiver = net.client().receiver("a", credit=1000)
    sender = net.client().sender("a", rcv_settle_mode=1)
    sender.settles_back = False
    net.pump()
    for _ in range(3):
        sending = sender.send(bytes(size))
        net.pump()
        credit = sender.credit
        receiver.received[-1].give(state)
        net.pump()
        assert [(update.state, update.is_settled) for update in sending.updates] == [(state, False)]
        assert sender.credit == credit
        sending.settle()
        net.pump()
        assert sender.credit == credit + 1 == 250
    net.no_errors()


def test_a_sender_that_settles_nothing_gets_no_further_credit() -> None:
    net = Net(capacity=5)
    receiver = net.client().receiver("a", credit=1000, accepts=True)
    sender = net.client().sender("a", rcv_settle_mode=1)
    sender.settles_back = False
    net.pump()
    for _ in range(5):
        sender.send()
    net.pump()
    assert sender.credit == 0
    for sending in sender.sent:
        sending.settle()
    net.pump()
    assert sender.credit == 5
    for _ in range(5):
        sender.send(is_settled=True)
    net.pump()
    assert sender.credit == 5
    assert len(receiver.complete) == 10
    net.nothing_left()


def test_one_that_settles_before_it_has_the_outcome() -> None:
    net = Net(capacity=5)
    receiver = net.client().receiver("a", credit=1000)
    sender = net.client().sender("a", rcv_settle_mode=1)
    net.pump()
    for _ in range(3):
        sending = sender.send()
        net.pump()
        sending.settle()
        net.pump()
        receiver.received[-1].accept()
        net.pump()
    assert sender.credit == 5
    net.nothing_left()
