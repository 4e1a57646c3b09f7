"""What a full budget costs its owner, step by step, and nobody else."""

from collections.abc import Callable
from typing import Any

import pytest
from memory_net import ACCEPTED, Client, Net, Sender

from router.core.budget import Account, Budgets, Level, Limits
from router.core.watch import Watch
from router.effects import Audit, Log

BODY = b"x" * 10_000
HELD = 12_000  # a queued message of BODY, at least; at most 13,000


def flood(sender: Sender, net: Net, messages: int = 200) -> int:
    """Send as much as there is credit for. Returns how many messages that was."""
    sent = 0
    for _ in range(messages):
        if sender.credit <= 0:
            break
        sender.send(BODY)
        sent += 1
        net.pump()
    return sent


def denials(net: Net) -> list[Any]:
    return [
        effect.event for effect in net.effects if isinstance(effect, Audit) and effect.event["reason"] == "byte_budget"
    ]


def account(client: Client) -> Any:
    assert client.router.peer is not None
    return client.router.peer.attachment.account


def test_a_link_over_its_budget_is_held_back_and_nobody_else() -> None:
    net = Net(limits=Limits(link=100_000))
    client = net.client()
    full, other = client.sender("a"), client.sender("b")
    slow, quick = net.client().receiver("a"), net.client().receiver("b", credit=1000, accepts=True)
    net.pump()
    flood(full, net)
    assert account(client).held < 100_000 + 250 * 11_000  # what had been granted may be sent, and is not taken
    queued = net.core.budgets.router.held
    assert len(quick.complete) == 0
    for _ in range(20):
        other.send(BODY)
    net.pump()
    assert other.outcomes == [ACCEPTED] * 20
    assert not denials(net)
    # Nothing is lost, and everything goes on.
    slow.accepts = True
    slow.flow(1000)
    net.pump()
    assert full.outcomes == [ACCEPTED] * len(full.sent)
    assert flood(full, net, 50) == 50
    net.pump()
    assert full.outcomes == [ACCEPTED] * len(full.sent)
    assert net.core.budgets.router.held < queued


def test_credit_is_kept_back_while_too_much_is_held() -> None:
    net = Net(limits=Limits(link=100_000), capacity=20)
    client = net.client()
    sender = client.sender("a")
    slow = net.client().receiver("a")
    net.pump()
    flood(sender, net)
    assert sender.credit == 0
    slow.flow(1)  # one leaves: its credit does not come back, there is too much as it is
    net.pump()
    slow.accept_all()
    net.pump()
    assert sender.outcomes.count(ACCEPTED) == 1
    assert sender.credit == 0
    slow.accepts = True
    slow.accept_all()
    slow.flow(100)
    net.pump()
    assert sender.credit == 20


@pytest.mark.parametrize("kind", ["connection", "user", "host", "router"])
def test_the_level_that_is_full_is_named_in_audit_and_log(kind: str) -> None:
    limits: dict[str, int] = {"link": 0, "connection": 0, "user": 0, "host": 0, "router": 0, kind: 300_000}
    net = Net(limits=Limits(**limits))
    client = net.client("greedy")
    sender = client.sender("a")
    net.client().receiver("a")
    net.pump()
    flood(sender, net)
    (event,) = denials(net)
    assert event["limit"] == 300_000
    assert event["rule"]["item"].startswith(f"{kind}ByteBudget")
    assert event["stage"] == "transfer"
    lines = [effect.text for effect in net.effects if isinstance(effect, Log) and "byte_budget" in effect.text]
    assert len(lines) == 1
    assert f"{kind}ByteBudget" in lines[0]
    assert net.core.budgets.router.held < 300_000 * 1.25


def test_new_sessions_and_links_are_refused_while_it_lasts() -> None:
    net = Net(limits=Limits(link=0, connection=300_000))
    client, other = net.client(), net.client()
    sender = client.sender("a")
    slow = other.receiver("a")
    net.pump()
    flood(sender, net)
    link, session = client.sender("b"), client.connection.session()
    session.open()
    others = other.sender("b")
    net.pump()
    assert link.is_detached
    assert link.refusal.name == "amqp:resource-limit-exceeded"
    assert session.remote_condition is not None
    assert session.remote_condition.name == "amqp:resource-limit-exceeded"
    assert others.is_attached
    assert not others.is_detached
    assert [event["stage"] for event in denials(net)] == ["transfer", "begin", "attach"]
    slow.accepts = True
    slow.flow(1000)
    net.pump()
    later = client.sender("b")
    net.pump()
    assert not later.is_detached


def test_those_with_less_than_their_share_go_on() -> None:
    """A full level costs those who have more than their part of it."""
    net = Net(limits=Limits(link=0, connection=0, user=0, host=0, router=1_100_000))
    greedy, modest = net.client(), net.client()
    flooding, honest = greedy.sender("a"), modest.sender("b")
    net.client().receiver("a")
    reader = net.client().receiver("b", credit=0)
    net.pump()
    flood(flooding, net)
    for _ in range(5):
        honest.send(BODY)
    net.pump()
    assert account(greedy).behind
    assert not account(modest).behind
    reader.accepts = True
    reader.flow(100)
    net.pump()
    assert honest.outcomes == [ACCEPTED] * 5


class Silent:
    """A connection that hears what its account costs it, and does nothing."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def hold_back(self, level: Level) -> None:
        self.heard.append(f"held back for {level.kind}")

    def let_go(self) -> None:
        self.heard.append("let go")

    def crowd(self, *, is_crowded: bool) -> None:
        raise AssertionError(is_crowded)

    def exhaust(self, level: Level) -> None:
        self.heard.append(f"closed for {level.kind}")


def test_many_connections_of_one_user_make_nobody_elses_share_small() -> None:
    budgets = Budgets(Limits(link=0, connection=0, user=0, host=0, router=1_000_000))

    def account_of(user: str) -> tuple[Silent, Account]:
        party = Silent()
        made = Account(budgets, party, budgets.levels_for(user, "10.0.0.1"))
        made.join(budgets.user(user))
        return party, made

    honest, queue = account_of("honest")
    queue.charge(300_000)
    crowd = [account_of("evil") for _ in range(1000)]
    for _, each in crowd:
        each.charge(1000)
    queue.charge(10_000)  # 310 times what each of them has
    assert honest.heard == []
    assert any(party.heard for party, _ in crowd)
    for _, each in crowd:
        each.charge(200)
    assert honest.heard == []
    assert any("closed for router" in party.heard for party, _ in crowd)


def test_no_more_is_closed_than_has_to_go() -> None:
    """What a closed connection holds is on its way out: nobody else goes for it."""
    budgets = Budgets(Limits(link=0, connection=0, user=100_000, host=0, router=0))
    parties = [Silent() for _ in range(10)]
    accounts = [Account(budgets, party, budgets.levels_for(str(at), "h")) for at, party in enumerate(parties)]
    for account in accounts:
        account.join(budgets.user("all"))
        account.charge(5_000)
    accounts[0].charge(90_000)
    for account in accounts[1:]:
        for _ in range(5):
            account.charge(1_000)
    assert ["closed for user" in party.heard for party in parties] == [True, *[False] * 9]


def test_the_greatest_is_closed_where_holding_back_is_not_enough() -> None:
    net = Net(limits=Limits(link=0, connection=0, user=0, host=0, router=1_000_000))
    greedy, modest = net.client(), net.client()
    net.pump()
    account(modest).charge(200_000)
    account(greedy).charge(1_000_000)  # by something that holding back does not stop
    net.pump()
    account(greedy).charge(200_000)
    net.work.finish()
    net.pump()
    assert greedy.router_closed
    assert greedy.condition is not None
    assert greedy.condition.name == "amqp:resource-limit-exceeded"
    assert not modest.router_closed


def test_a_receiver_that_does_not_settle_gets_no_more() -> None:
    net = Net(limits=Limits(link=0, connection=4_000_000, user=0, host=0, router=0))
    reader = net.client()
    receiver = reader.receiver("a", credit=100_000)
    senders = [net.client().sender("a") for _ in range(20)]
    net.pump()
    watch = Watch(net.core, net.effects.append)
    for _ in range(5):
        for sender in senders:
            for _ in range(sender.credit):
                sender.send(b"x")
        net.pump()
        net.advance(1)
        for _ in watch.on_second():
            net.pump()
    # 4,000,000 bytes are 1,953 records of 2,048; 1,024 more may leave before they are counted.
    assert len(receiver.received) < 1_953 + 1_024 + 64
    assert not reader.router_closed
    assert [event["detail"].split(":")[0] for event in denials(net)] == [
        "more from its senders",
        "more to its receivers",
    ]
    receiver.accepts = True
    for _ in range(10):
        receiver.accept_all()
        net.pump()
        for _ in watch.on_second():
            net.pump()
        net.pump()
    assert all(outcome == ACCEPTED for sender in senders for outcome in sender.outcomes)


def test_what_a_gone_connection_left_still_counts_for_its_user() -> None:
    net = Net(limits=Limits(link=0, connection=0, user=500_000, host=0, router=0))
    slow = net.client().receiver("a")
    net.pump()
    taken = 0
    for _ in range(20):
        client = net.client()
        sender = client.sender("a")
        net.pump()
        taken += flood(sender, net, 10)
        net.pump()
        client.kill()
    assert net.core.budgets.router.held < 500_000 * 1.25 + 200_000
    slow.accepts = True
    slow.flow(10_000)
    net.pump()
    assert net.core.budgets.router.held < 100_000


def test_copies_of_a_multicast_message_are_paid_once() -> None:
    net = Net({"m": "multicast"}, limits=Limits(link=0, connection=1_000_000, user=0, host=0, router=0))
    client = net.client()
    sender = client.sender("m")
    slow: list[Any] = [net.client().receiver("m") for _ in range(100)]
    net.pump()
    sender.send(b"x" * 60_000)
    net.pump()
    assert 120_000 < account(client).held < 120_000 + 100 * 2_100 + 20_000  # here, and in the engine
    for receiver in slow:
        receiver.accepts = True
        receiver.flow(1)
    net.pump()
    assert sender.outcomes == [ACCEPTED]
    assert account(client).held < 20_000


def test_management_replies_that_nobody_reads_are_the_readers() -> None:
    net = Net(limits=Limits(link=0, connection=300_000, user=0, host=0, router=0))
    client = net.client()
    client.receiver("a")
    net.pump()
    address = net.core.resolve("a")
    send: Callable[..., bool] = net.core.send
    for _ in range(50):
        send(address, BODY)
    net.pump()
    assert account(client).behind


def test_one_network_of_64_bits_is_one_host() -> None:
    """Attack: a budget for each of the addresses of one's own network."""
    net = Net()
    for number in range(5):
        net.remote_host = f"2001:db8:0:7::{number + 1:x}"
        net.client()
    net.pump()
    levels = [(level.kind, level.name, len(level.accounts)) for level in net.core.budgets.levels()]
    assert levels[1:3] == [("host", "2001:db8:0:7::", 5), ("user", "anonymous from 2001:db8:0:7::", 5)]
