"""Attack: a user's receivers on another router take nothing, or settle nothing, of what he sends to them.

The messages filled the budget of the connection between the routers. It stopped, and the messages of all users on it
waited for him.

Large messages have their own sessions between the routers, each with a window. Messages that no receiver took filled
these windows, and no large message came any more. Between an edge and its interior there was only one session: nothing
came at all.

Honest pairs send over the same connections, with the same priorities, small messages and large ones.
"""

from collections.abc import Callable
from typing import Any

import pytest
from memory_net import ACCEPTED, RELEASED, Client, Fleet, Receiver, Sender

from router.core.budget import MIB, Limits
from router.core.remotes import DataOutLink
from router.core.streaming_links import MOST_OF_USER
from router.effects import Audit

LIMITS = Limits(link=1 * MIB, connection=2 * MIB, user=6 * MIB, host=12 * MIB, router=24 * MIB)
EDGE: dict[str, Any] = {"role": "edge"}


def fleet_of(*ends: str, limits: Limits = LIMITS) -> Fleet:
    edges = tuple(end for end in ("E1", "E2") if end in ends)
    fleet = Fleet("A", "B", "C", edges=edges, limits=limits)
    fleet.connect("A", "B")
    fleet.connect("B", "C")
    if "E1" in edges:
        fleet.connect("E1", "A", **EDGE)
    if "E2" in edges:
        fleet.connect("E2", "C", **EDGE)
    fleet.settle()
    return fleet


def client_of(fleet: Fleet, name: str) -> Client:
    """One of his: who has no login is told by his host."""
    fleet[name].remote_host = "10.0.0.66"
    client = fleet[name].client()
    fleet.pump()
    fleet[name].remote_host = "10.0.0.1"
    return client


class Mallory:
    """He has receivers on one router, and sends to them on others all that he may."""

    def __init__(self, fleet: Fleet, at: list[str], far: str, *, credit: int, count: int, is_settled: bool) -> None:
        self.fleet = fleet
        self.is_settled = is_settled
        self.names = [f"slow{index}" for index in range(count)]
        self.receivers: list[Receiver] = []
        for start in range(0, count, 4):
            client = client_of(fleet, far)
            self.receivers += [client.receiver(name, credit=credit) for name in self.names[start : start + 4]]
        self.senders: list[Sender] = []
        for name in at:
            client = client_of(fleet, name)
            self.senders += [client.sender(target) for target in self.names]

    def flood(self, size: int, rounds: int) -> int:
        """Returns how many messages he sent."""
        sent = 0
        for number in range(rounds):
            for sender in self.senders:
                for _ in range(min(sender.credit, 25)):
                    sender.send(bytes(size), priority=number % 10, is_settled=self.is_settled)
                    sent += 1
            self.fleet.pump()
        return sent


WAYS = [
    pytest.param(["A"], "B"),
    pytest.param(["A", "B"], "C", marks=pytest.mark.slow),
    pytest.param(["E1"], "C"),
    pytest.param(["A"], "E2", marks=pytest.mark.slow),
]


def honest_traffic(fleet: Fleet, at: list[str], far: str) -> Callable[[], None]:
    """Returns what sends from everywhere to `far`, and back, and looks whether all is accepted."""
    receiver = fleet[far].client().receiver("orders", credit=1000, accepts=True)
    senders = [fleet[name].client().sender("orders") for name in at]
    back = fleet[at[0]].client().receiver("answers", credit=1000, accepts=True)
    answering = fleet[far].client().sender("answers")
    fleet.tick(3)

    def send() -> None:
        before = len(receiver.bodies) + len(back.bodies)
        sent = [answering.send(b"answer", priority=priority) for priority in (0, 4, 9)]
        for sender in senders:
            sent += [sender.send(bytes(size), priority=priority) for size in (10, 20_000) for priority in (0, 4, 9)]
            sent += [sender.send(bytes(size)) for size in (200_000, 2_000_000)]
        fleet.pump()
        assert [each.outcome for each in sent] == [ACCEPTED] * len(sent)
        assert len(receiver.bodies) + len(back.bodies) - before == len(sent)

    return send


@pytest.mark.parametrize(
    ("size", "is_settled"),
    [(100, False), (15_000, False), (15_000, True)],
    ids=["small", "large", "presettled"],
)
@pytest.mark.parametrize("credit", [0, 100_000], ids=["takes nothing", "settles nothing"])
@pytest.mark.parametrize(("at", "far"), WAYS, ids=lambda each: each if isinstance(each, str) else "+".join(each))
def test_others_are_served(at: list[str], far: str, credit: int, size: int, is_settled: bool) -> None:
    fleet = fleet_of(*at, far)
    send_honestly = honest_traffic(fleet, at, far)
    mallory = Mallory(fleet, at, far, credit=credit, count=12, is_settled=is_settled)
    fleet.tick(3)
    mallory.flood(size, 12)
    send_honestly()
    fleet.tick(5)
    mallory.flood(size, 2)
    send_honestly()
    assert not any(end.router_closed for net in fleet.nets.values() for end in net.ends)
    fleet.no_errors()


@pytest.mark.parametrize(("size", "credit"), [(300_000, 0), (3_000_000, 0), (300_000, 1)])
@pytest.mark.parametrize(("at", "far"), WAYS, ids=lambda each: each if isinstance(each, str) else "+".join(each))
def test_large_messages_of_others_are_served(at: list[str], far: str, credit: int, size: int) -> None:
    fleet = fleet_of(*at, far, limits=Limits())
    send_honestly = honest_traffic(fleet, at, far)
    mallory = Mallory(fleet, at, far, credit=credit, count=10, is_settled=False)
    fleet.tick(3)
    for _ in range(2):
        for sender in mallory.senders:
            if sender.credit:
                sender.send(bytes(size))
        fleet.pump()
        send_honestly()
    fleet.no_errors()


def test_one_user_has_a_share_of_the_links_for_large_messages() -> None:
    fleet = fleet_of("A", "B", limits=Limits())
    mallory = Mallory(fleet, ["A"], "B", credit=0, count=3 * MOST_OF_USER, is_settled=False)
    fleet.tick(3)
    for sender in mallory.senders:
        sender.send(bytes(300_000))
    fleet.pump()
    streaming = [
        link
        for link in fleet["A"].core.links.values()
        if isinstance(link, DataOutLink) and link.slot is None and link.attachment.is_trunk
    ]
    assert len(streaming) == MOST_OF_USER
    # What waited behind his own comes when that is taken.
    for receiver in mallory.receivers:
        receiver.flow(10)
        receiver.accepts = True
    fleet.tick(3)
    assert [sending.outcome for sender in mallory.senders for sending in sender.sent] == [ACCEPTED] * len(
        mallory.senders
    )
    fleet.no_errors()


def test_what_has_no_room_where_its_receiver_is_is_released_and_on_record() -> None:
    """From two routers, each of which lets him have as much on its way as he may."""
    fleet = fleet_of("A", "B", "C", limits=Limits(link=MIB, connection=2 * MIB, user=2 * MIB, host=12 * MIB))
    send_honestly = honest_traffic(fleet, ["A", "B"], "C")
    mallory = Mallory(fleet, ["A", "B"], "C", credit=0, count=12, is_settled=False)
    fleet.tick(3)
    mallory.flood(15_000, 12)
    outcomes = [outcome for sender in mallory.senders for outcome in sender.outcomes]
    assert set(outcomes) == {RELEASED, None}
    held = fleet["C"].core.budgets.user("anonymous from 10.0.0.66").held
    assert MIB < held <= 4 * MIB  # each of his connections may have its share
    events = [effect.event for effect in fleet["C"].effects if isinstance(effect, Audit)]
    kept = [event for event in events if event["reason"] == "byte_budget"]
    assert all("userByteBudget of 'anonymous from 10.0.0.66'" in str(event["rule"]) for event in kept)
    assert 0 < len(kept) <= len(mallory.receivers)
    send_honestly()
    fleet.no_errors()


@pytest.mark.parametrize("connections", [3, 14])
def test_whose_receivers_are_flooded_goes_on_sending(connections: int) -> None:
    """He filled the budget of the receivers' user, who was held back, or lost one of many connections."""
    limits = Limits(link=1 * MIB, connection=2 * MIB, user=4 * MIB, host=64 * MIB, router=256 * MIB)
    fleet = fleet_of("A", "B", "C", limits=limits)
    fleet["B"].remote_host = "10.0.0.7"
    clients = [fleet["B"].client() for _ in range(connections)]
    for number, client in enumerate(clients):
        client.receiver(f"slow{number}")
    taker = fleet["A"].client().receiver("quick", credit=1000, accepts=True)
    fleet.tick(3)
    senders = [client.sender("quick") for client in clients]
    for number in range(connections):
        for router, host in (("A", 1), ("C", 1), ("A", 2), ("C", 2)):
            fleet[router].remote_host = f"10.0.1.{host}"
            client = fleet[router].client()
            attacker = client.sender(f"slow{number}")
            fleet.pump()
            for _ in range(4):
                for _ in range(min(attacker.credit, 25)):
                    attacker.send(bytes(15_000))
                fleet.pump()
    for _ in range(20):
        sent = [sender.send(bytes(15_000)) for sender in senders]
        fleet.pump()
        assert [each.outcome for each in sent] == [ACCEPTED] * len(sent)
    assert len(taker.bodies) == 20 * len(senders)
    assert not any(client.router_closed for client in clients)
    fleet.no_errors()


def test_routers_of_one_login_are_not_held_back_for_each_other() -> None:
    """A user on three routers filled what all of them together might have on the one in the middle."""
    starts, ends = ("A1", "A2", "A3"), ("D1", "D2", "D3")
    limits = Limits(link=1 * MIB, connection=2 * MIB, user=6 * MIB, host=48 * MIB, router=64 * MIB)
    fleet = Fleet(*starts, "B", *ends, limits=limits)
    for name in starts:
        fleet.connect(name, "B")
    for name in ends:
        fleet.connect("B", name)
    fleet.settle()
    fleet.tick(3)
    receiver = fleet["D1"].client().receiver("orders", credit=1000, accepts=True)
    fleet.tick(3)
    honest = [fleet[name].client().sender("orders") for name in ("A1", "B")]
    slow = [client_of(fleet, name).receiver(f"slow{number}", credit=100_000) for number, name in enumerate(ends * 4)]
    fleet.tick(3)
    senders = [client_of(fleet, name).sender(f"slow{number}") for name in starts for number in range(len(slow))]
    fleet.tick(2)
    for _ in range(6):
        for sender in senders:
            for _ in range(min(sender.credit, 25)):
                sender.send(bytes(15_000))
        fleet.pump()
    sent = [sender.send(bytes(size)) for sender in honest for size in (10, 20_000)]
    fleet.pump()
    assert [each.outcome for each in sent] == [ACCEPTED] * len(sent)
    assert len(receiver.bodies) == len(sent)
    fleet.no_errors()
