"""Attack: messages and outcomes of a transaction on links that do not lead to the container of its coordinator.

They were delivered, or settled, before the commit, and a rollback took nothing back. A client that relies on
transactions loses or doubles messages, and gets no error.
"""

from typing import Any

import pytest
from frames_attacker import wire
from memory_net import ACCEPTED, MODIFIED, REJECTED, Client, Fleet, Net, Receiver, Sender, Sending
from memory_net.containers import receiver_of, sender_of
from memory_net.ends import encoded
from proton import Terminus

from policy.addressing.patterns import configured_tokens
from router.amqp.codec import encode_message
from router.connection.auto_links import Place
from router.connection.link_routes import LinkRoute, key_of
from router.core import coordinators
from router.core.budget import RECORD_BYTES
from router.values import Described, ulong

DECLARE, DISCHARGE, DECLARED, TRANSACTIONAL = range(0x31, 0x35)
UNKNOWN = "amqp:transaction:unknown-id"
IN_TRANSACTION = [b"txn-1"]
STREAMED = 100_000  # taken whole while it waits
LARGE = 300_000  # more than that
FILLER = 100_000


def route(net: Net, prefix: str, container: str) -> None:
    for direction in ("send", "receive"):
        tokens = configured_tokens(prefix, None)
        net.surroundings.link_routes.add(
            LinkRoute(
                name=f"{prefix}-{direction}",
                pattern="/".join(tokens),
                key=key_of(tokens, prefix, is_in=direction == "send"),
                direction=direction,
                place=Place(kind="container", text=container),
            )
        )


def coordinator(client: Client) -> Sender:
    sender = client.sender(None, target={"type": Terminus.COORDINATOR})
    client.net.pump()
    return sender


def request(sender: Sender, code: int, *fields: object) -> Sending:
    sending = sender.send_bytes(encode_message(body=Described(ulong(code), list(fields))))
    sender.client.net.pump()
    return sending


def declare(client: Client, container: Client, name: bytes = b"txn-1") -> Sender:
    """The client gets a transaction of that id from a new coordinator's link."""
    sender = coordinator(client)
    declare_on(sender, container, name)
    return sender


def declare_on(sender: Sender, container: Client, name: bytes) -> None:
    receiver_of(container).accepts = False
    sending = request(sender, DECLARE)
    receiver_of(container).complete[-1].give(DECLARED, data=[name])
    sender.client.net.pump()
    assert sending.updates[-1].state == DECLARED


def count_complete(container: Client) -> int:
    return sum(len(each.complete) for each in container.attached_by_router if isinstance(each, Receiver))


def house() -> Net:
    """Queues of the container `broker`, which has a coordinator, and those of another."""
    net = Net()
    for prefix, container in (("queue", "broker"), ("$coordinator", "broker"), ("other", "second")):
        route(net, prefix, container)
    for name in ("broker", "second"):
        net.client(name, role="route-container")
    net.pump()
    return net


def send(net: Net, client: Client, address: str | None, *, is_settled: bool = False, size: int = 1) -> Any:
    sender = client.sender(address)
    net.pump()
    send_on(net, sender, is_settled=is_settled, size=size)
    return sender


def send_on(net: Net, sender: Sender, *, is_settled: bool = False, size: int = 1) -> None:
    sending = sender.start()
    sending.update(TRANSACTIONAL, IN_TRANSACTION)
    sender.append(_message(size))
    if is_settled:
        sending.settle()
    else:
        sender.finish()
    net.pump()


def _message(size: int) -> bytes:
    return encoded(bytes(size), address="a")


@pytest.mark.parametrize("address", ["a", None])
@pytest.mark.parametrize("size", [1, 200_000])
def test_no_message_of_a_transaction_is_delivered_before_its_commit(address: str | None, size: int) -> None:
    net = house()
    receiver = net.client().receiver("a", credit=10, accepts=True)
    client = net.client()
    coordinator(client)
    sender = send(net, client, address, size=size)
    assert receiver.bodies == []
    assert sender.outcomes == [REJECTED]
    assert sender.sent[0].updates[0].condition.name == UNKNOWN
    sender.send(b"without one", address="a")
    net.pump()
    assert receiver.bodies == [b"without one"]
    net.no_errors()


@pytest.mark.parametrize("size", [1, 200_000])
def test_nor_is_a_settled_one_whose_sender_is_told_by_the_end_of_the_link(size: int) -> None:
    net = house()
    receiver = net.client().receiver("a", credit=10, accepts=True)
    sender = send(net, net.client(), "a", is_settled=True, size=size)
    assert receiver.bodies == []
    assert sender.refusal.name == UNKNOWN
    net.no_errors()


def test_no_message_is_drawn_into_a_transaction_later() -> None:
    net = house()
    receiver = net.client().receiver("a", credit=10)
    sender = net.client().sender("a")
    net.pump()
    sending = sender.send(b"m")
    net.pump()
    sending.update(TRANSACTIONAL, IN_TRANSACTION)
    net.pump()
    assert receiver.complete[0].states == []
    assert sender.refusal.name == UNKNOWN
    net.no_errors()


@pytest.mark.parametrize("is_settled", [True, False])
@pytest.mark.parametrize("distribution", ["balanced", "multicast"])
def test_no_message_is_settled_in_a_transaction(distribution: str, is_settled: bool) -> None:
    """The receiver's link ends, and the sender learns that the message may have been seen."""
    net = Net({"a": distribution})
    receivers = [net.client().receiver("a", credit=10) for _ in range(2 if distribution == "multicast" else 1)]
    sender = net.client().sender("a")
    net.pump()
    sender.send(b"m")
    net.pump()
    receivers[0].complete[0].give(TRANSACTIONAL, is_settled=is_settled, data=IN_TRANSACTION)
    net.pump()
    assert receivers[0].refusal.name == UNKNOWN
    for other in receivers[1:]:
        other.complete[0].accept()
    net.pump()
    assert sender.outcomes == [MODIFIED if len(receivers) == 1 else ACCEPTED]
    net.no_errors()
    net.nothing_left()


def test_a_container_has_the_transactions_of_its_own_coordinator() -> None:
    net = house()
    client = net.client()
    declare(client, net.clients[0])
    sender = client.sender("queue.x")
    net.pump()
    came = receiver_of(net.clients[0])
    came.accepts = False
    send_on(net, sender)
    assert [each.delivery.remote_state for each in came.complete] == [TRANSACTIONAL]
    receiver = client.receiver("queue.x", credit=1)
    net.pump()
    sending = sender_of(net.clients[0]).send(b"from the queue")
    net.pump()
    receiver.complete[0].give(TRANSACTIONAL, is_settled=False, data=IN_TRANSACTION)
    net.pump()
    assert [update.state for update in sending.updates] == [TRANSACTIONAL]
    assert not sender.is_detached
    net.no_errors()


def test_another_container_has_not() -> None:
    """Nor has a client without a coordinator the transactions of those that share the container with it."""
    net = house()
    client = net.client()
    declare(client, net.clients[0])
    assert send(net, client, "other.x").outcomes == [REJECTED]
    stranger = net.client()
    assert send(net, stranger, "queue.x").outcomes == [REJECTED]
    receiver = stranger.receiver("queue.x", credit=1)
    net.pump()
    sender_of(net.clients[0]).send(b"from the queue")
    net.pump()
    receiver.complete[0].give(TRANSACTIONAL, is_settled=False, data=IN_TRANSACTION)
    net.pump()
    assert receiver.refusal.name == UNKNOWN
    assert count_complete(net.clients[0]) == 1  # the Declare
    net.no_errors()


def test_what_another_router_lets_pass_costs_the_message_and_no_link() -> None:
    """As one of 1.20 does."""
    fleet = Fleet("A", "B")
    fleet.connect("A", "B")
    fleet.settle()
    receiver = fleet["B"].client().receiver("a", credit=10)
    fleet.tick(3)
    client = fleet["A"].client()
    sender = client.sender("a")
    fleet.pump()
    link = next(iter(Net.peer(client).attachment.in_links))
    type(link).may_transact = lambda _link, _delivery: True  # type: ignore[assignment,method-assign]
    try:
        sending = sender.start()
        sending.update(TRANSACTIONAL, IN_TRANSACTION)
        sender.append(_message(1))
        sender.finish()
        fleet.pump()
    finally:
        del type(link).may_transact
    sender.send(b"without one")
    fleet.pump()
    received = receiver.complete[-1]
    received.give(TRANSACTIONAL, data=IN_TRANSACTION)
    fleet.pump()
    assert receiver.refusal.name == UNKNOWN
    assert sender.outcomes[1] == MODIFIED
    fleet.no_errors()


@pytest.mark.parametrize("size", [100, STREAMED, LARGE])
@pytest.mark.parametrize("is_settled", [False, True])
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("leaves", [False, True])
def test_a_routed_message_keeps_its_transaction(leaves: bool, waits: bool, is_settled: bool, size: int) -> None:
    """Else the container takes it as a message outside of the transaction, and no rollback takes it back."""
    net = Net()
    route(net, "queue", "broker")
    route(net, "$coordinator", "broker")
    container = net.client("broker", role="route-container")
    net.pump()
    client = net.client()
    declare(client, container)
    sender = client.sender("queue")
    net.pump()
    receiver = receiver_of(container)
    receiver.accepts = False
    receiver.flow(100)
    net.pump()
    if waits:
        container.stop_reading()
        while not net.peer(container).attachment.is_blocked:
            sender.send(bytes(FILLER), is_settled=True)
            net.pump()
    send_on(net, sender, is_settled=is_settled, size=size)
    if leaves:
        sender.detach()
        net.pump()
        net.look_back()
    if waits:
        container.resume_reading()
        net.pump()
    assert len(receiver.complete[-1].body) == size
    state = container.frames("transfer")[-1][7]
    assert (state.descriptor, state.value) == (TRANSACTIONAL, IN_TRANSACTION)
    net.no_errors()


def sharing(*names: bytes) -> tuple[Net, list[Client], list[Sender]]:
    """Clients that share a container's connection, each with a transaction there; and their coordinators' links."""
    net = house()
    clients = [net.client() for _ in names]
    return net, clients, [declare(client, net.clients[0], name) for client, name in zip(clients, names, strict=True)]


def test_nobody_sends_into_the_transaction_of_another_at_the_same_container() -> None:
    """Broker-J counts them up for each connection, and all clients share the router's: the next number was guessed."""
    net, clients, _ = sharing(b"txn-1", b"txn-2")
    stranger = clients[1]
    assert send(net, stranger, "queue.x").outcomes == [REJECTED]
    sender = send(net, stranger, "queue.x", is_settled=True)
    assert sender.refusal.name == UNKNOWN
    assert count_complete(net.clients[0]) == len(clients)  # the Declares
    net.no_errors()


def test_nor_settles_in_it() -> None:
    net, (_, stranger), _ = sharing(b"txn-1", b"txn-2")
    receiver = stranger.receiver("queue.x", credit=1)
    net.pump()
    sending = sender_of(net.clients[0]).send(b"from the queue")
    net.pump()
    receiver.complete[0].give(TRANSACTIONAL, is_settled=False, data=IN_TRANSACTION)
    net.pump()
    assert receiver.refusal.name == UNKNOWN
    assert TRANSACTIONAL not in [update.state for update in sending.updates]
    net.no_errors()


def test_nor_discharges_it() -> None:
    net, _, (own, strangers) = sharing(b"txn-1", b"txn-2")
    sending = request(strangers, DISCHARGE, b"txn-1", True)
    assert sending.updates[0].condition is not None
    assert sending.updates[0].condition.name == UNKNOWN
    assert len(receiver_of(net.clients[0]).complete) == 1  # its own Declare
    request(own, DISCHARGE, b"txn-1", False)
    assert len(receiver_of(net.clients[0], -2).complete) == 2
    net.no_errors()


def test_over_another_router_neither() -> None:
    """There the clients share the connection between the routers, and are told apart where they are connected."""
    fleet = Fleet("A", "B")
    fleet.connect("A", "B")
    for prefix in ("queue", "$coordinator"):
        route(fleet["B"], prefix, "broker")
    container = fleet["B"].client("broker", role="route-container")
    fleet.settle()
    fleet.tick(3)
    own, stranger = fleet["A"].client(), fleet["A"].client()
    for client, name in ((own, b"txn-1"), (stranger, b"txn-2")):
        sender = coordinator(client)
        fleet.pump()
        receiver_of(container).accepts = False
        request(sender, DECLARE)
        fleet.pump()
        receiver_of(container).complete[-1].give(DECLARED, data=[name])
        fleet.pump()
    senders = [client.sender("queue") for client in (own, stranger)]
    fleet.pump()
    receiver_of(container, -2).accepts = False
    for each in senders:
        send_on(fleet["A"], each)
        fleet.pump()
    assert [each.outcomes for each in senders] == [[None], [REJECTED]]
    fleet.no_errors()


@pytest.mark.parametrize("ends", ["discharge", "close", "leave"])
def test_an_id_is_nobodys_once_its_transaction_is_over(ends: str) -> None:
    """The container may give it to another client as soon as it has the Discharge, or the link has ended."""
    net, (client,), (link,) = sharing(b"txn-1")
    sender = client.sender("queue.x")
    net.pump()
    receiver_of(net.clients[0]).accepts = False
    send_on(net, sender)
    assert sender.outcomes == [None]
    charged = net.peer(client).attachment.account.held
    if ends == "discharge":
        request(link, DISCHARGE, b"txn-1", False)
    elif ends == "close":
        link.close()
        net.pump()
    else:
        receiver_of(net.clients[0], 0).close()
        net.pump()
    send_on(net, sender)
    assert sender.outcomes == [None, REJECTED]
    assert net.peer(client).attachment.account.held <= charged - coordinators.TRANSACTION_BYTES
    net.no_errors()


def test_what_was_given_an_outcome_before_the_discharge_is_settled_after_it() -> None:
    """Clients of proton do so where they are not told to settle before."""
    net, (client,), (link,) = sharing(b"txn-1")
    receiver, sender = client.receiver("queue.x", credit=2), client.sender("queue.x")
    net.pump()
    receiver_of(net.clients[0]).accepts = False
    send_on(net, sender)
    receiver_of(net.clients[0]).complete[0].give(TRANSACTIONAL, is_settled=False, data=IN_TRANSACTION)
    sending = sender_of(net.clients[0], -2).send(b"from the queue")
    net.pump()
    receiver.complete[0].give(TRANSACTIONAL, is_settled=False, data=IN_TRANSACTION)
    net.pump()
    request(link, DISCHARGE, b"txn-1", False)
    receiver.complete[0].settle()
    sender.sent[0].settle()
    net.pump()
    assert (sending.updates[-1].state, sending.updates[-1].is_settled) == (TRANSACTIONAL, True)
    assert not receiver.is_detached
    assert not sender.is_detached
    net.no_errors()


def test_transactions_are_bounded_and_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Declares without end would be remembered without end."""
    monkeypatch.setattr(coordinators, "MAX_OPEN", 3)
    net = house()
    client = net.client()
    link = coordinator(client)
    account = net.peer(client).attachment.account
    before = account.held
    for name in (b"1", b"2", b"3"):
        declare_on(link, net.clients[0], name)
    assert account.held == before + 3 * coordinators.TRANSACTION_BYTES
    refused = request(link, DECLARE)
    assert refused.updates[0].condition is not None
    assert refused.updates[0].condition.name == "amqp:resource-limit-exceeded"
    request(link, DISCHARGE, b"2", False)
    receiver_of(net.clients[0]).complete[-1].accept()
    net.pump()
    declare_on(link, net.clients[0], b"4")
    client.kill()
    net.pump()
    net.no_errors()


@pytest.mark.parametrize(
    "payload",
    [
        b"no message", encode_message(body="text"), encode_message(body=Described(ulong(DISCHARGE), [])),
        encode_message(body=Described(ulong(DISCHARGE), ["txn-1"])),
        encode_message(body=Described(ulong(DISCHARGE), [b"txn-1"]), subject="a" * 5000),
        encode_message(body=Described(ulong(DISCHARGE), [b"txn-1"]), subject="a" * LARGE),
    ],
)  # fmt: skip
def test_a_coordinator_gets_nothing_that_the_router_cannot_read(payload: bytes) -> None:
    """It might read it otherwise, and find the transaction of another in it."""
    net, _, (link,) = sharing(b"txn-1")
    link.send_bytes(payload)
    net.pump()
    assert link.outcomes[-1] == REJECTED
    assert len(receiver_of(net.clients[0]).complete) == 1
    net.no_errors()


def test_a_small_message_of_a_transaction_costs_no_more_than_another() -> None:
    """Each was charged as the beginning of a message of 128 KiB, until the container gave its outcome."""
    net = Net()
    route(net, "queue", "broker")
    route(net, "$coordinator", "broker")
    container = net.client("broker", role="route-container")
    net.pump()
    client = net.client()
    declare(client, container)
    sender = client.sender("queue")
    net.pump()
    receiver = receiver_of(container)
    receiver.accepts = False
    receiver.flow(100)
    net.pump()
    levels = [level for end in (container, client) for level in net.peer(end).attachment.account.levels]
    before = [level.held for level in levels]
    for _ in range(100):
        send_on(net, sender, is_settled=False, size=100)
    assert len(receiver.complete) == 100
    assert max(level.held - held for level, held in zip(levels, before, strict=True)) <= 100 * RECORD_BYTES
    net.no_errors()


@pytest.mark.parametrize("is_routed", [False, True])
def test_no_message_that_waits_is_drawn_into_a_transaction(is_routed: bool) -> None:
    """A Disposition for a message that has not come whole was not judged, and its state left with the message."""
    net = Net()
    if is_routed:
        route(net, "a", "broker")
        container = net.client("broker", role="route-container")
    else:
        receiver = net.client().receiver("a", credit=0)
    net.pump()
    sender = net.client().sender("a")
    net.pump()
    if is_routed:
        receiver = receiver_of(container)
        receiver.accepts = False
        receiver.flow(100)
        net.pump()
        container.stop_reading()
        while not net.peer(container).attachment.is_blocked:
            sender.send(bytes(FILLER), is_settled=True)
            net.pump()
    number, payload = len(sender.sent), _message(LARGE)
    sender.start()
    sender.append(payload[:200_000])
    net.pump()
    state = wire.described(TRANSACTIONAL, wire.list_of(wire.binary(b"txn-1")))
    sender.client.say(wire.frame(wire.disposition(is_receiver=False, first=number, is_settled=False, state=state)))
    if is_routed:
        container.resume_reading()
    else:
        receiver.flow(1)
    net.pump()
    sender.append(payload[200_000:])
    sender.finish()
    net.pump()
    assert len(receiver.complete[-1].body) == LARGE
    assert not any(transfer[7] for transfer in receiver.client.frames("transfer"))
    net.no_errors()
