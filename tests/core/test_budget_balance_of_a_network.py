"""Whatever users do over several routers: when they are gone, only what routers hold of each other is charged."""

import random
from typing import Any

import pytest
from memory_net import Client, Fleet, Net, Receiver, Sender

from router.core.attachments import Attachment
from router.core.budget import Limits

SIZES = (10, 900, 5_000, 16_000, 140_000, 300_000)
ADDRESSES = ("a", "b", "c", "m", "m2", "n")
LIMITS = Limits(link=300_000, connection=800_000, user=2_000_000, host=4_000_000, router=8_000_000)
ROUTERS = ("A", "B", "C", "E1", "E2")


def fleet_of(limits: Limits) -> Fleet:
    distributions = {"m": "multicast", "m2": "multicast", "n": "closest"}
    fleet = Fleet("A", "B", "C", edges=("E1", "E2"), distributions=distributions, limits=limits)
    fleet.connect("A", "B")
    fleet.connect("B", "C")
    fleet.connect("E1", "A", role="edge")
    fleet.connect("E2", "C", role="edge")
    fleet.settle()
    return fleet


def held_for_messages(net: Net) -> int:
    """What the core holds, without what engines hold and what routers told of, as of the second that begins."""
    for link in net.core.links.values():
        link.count_records()
    held = net.core.budgets.router.held
    for account in net.core.budgets.router.accounts:
        held -= account.addresses
        if not isinstance(account.party, Attachment):
            continue  # the connection is gone
        engine: Any = account.party.engine
        held -= engine.opened + engine.intake.charged
        held -= sum(link.size for link in engine.links.values())
        held -= sum(session.incoming + session.outgoing for session in engine.sessions.values())
    return held


class Users:
    def __init__(self, fleet: Fleet, seed: int) -> None:
        self.fleet = fleet
        self.chance = random.Random(seed)
        self.clients: list[tuple[str, Client]] = []

    def step(self) -> None:
        chance = self.chance
        if not self.clients or (chance.random() < 0.05 and len(self.clients) < 20):
            name = chance.choice(ROUTERS)
            self.fleet[name].remote_host = f"10.0.0.{chance.randrange(3)}"
            client = self.fleet[name].client()
            self.clients.append((name, client))
            for address in chance.sample(ADDRESSES, 2):
                client.sender(address).settles_back = False
                client.receiver(address, credit=chance.choice((0, 1, 30, 1000))).accepts = chance.random() < 0.3
            return
        name, client = chance.choice(self.clients)
        if client.is_dead or client.router_closed:
            self.clients.remove((name, client))
            return
        ends = [end for end in client.ends.values() if not end.is_detached and end.is_attached]
        senders = [end for end in ends if isinstance(end, Sender)]
        receivers = [end for end in ends if isinstance(end, Receiver)]
        what = chance.random()
        if what < 0.05:
            client.sender(chance.choice((*ADDRESSES, None))).settles_back = False
        elif what < 0.10:
            receiver = client.receiver(chance.choice(ADDRESSES), credit=chance.choice((0, 1, 30, 1000)))
            receiver.accepts = chance.random() < 0.3
        elif what < 0.75 and senders:
            sender = chance.choice(senders)
            for _ in range(min(sender.credit, chance.choice((1, 5, 20)))):
                size = chance.choice(SIZES)
                sender.send(bytes(size), address=chance.choice(ADDRESSES), is_settled=chance.random() < 0.3)
        elif what < 0.85 and receivers:
            receiver = chance.choice(receivers)
            if chance.random() < 0.5:
                receiver.flow(chance.choice((1, 10)))
            else:
                receiver.accept_all()
        elif what < 0.87 and ends:
            chance.choice(ends).detach()
        elif what < 0.88:
            client.kill()
            self.clients.remove((name, client))
        elif what < 0.93:
            self.fleet.tick()
        else:
            self.fleet.pump()


@pytest.mark.parametrize("limits", [Limits(), LIMITS], ids=["ample", "tight"])
@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_charged_when_users_are_gone(seed: int, limits: Limits) -> None:
    fleet = fleet_of(limits)
    users = Users(fleet, seed)
    most = 0
    for number in range(300):
        users.step()
        if number % 50 == 49:
            fleet.pump()
            most = max(most, *(held_for_messages(fleet[name]) for name in ROUTERS))
    assert most
    for _, client in users.clients:
        client.kill()
    fleet.tick(5)
    for name in ROUTERS:
        net = fleet[name]
        assert (name, held_for_messages(net)) == (name, 0)
        assert not net.core.budgets.router.held_back
        for link in net.core.links.values():
            assert not getattr(link, "holds", 0)
            assert not getattr(link, "unsettled", None)
    fleet.no_errors()
