"""Three interior routers in a ring, two edges with stand-bys: connections and clients die while messages of every sort
are under way, some of them in parts. Afterwards nobody was told what is not true, and nothing is left.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from memory_net import ACCEPTED, MODIFIED, REJECTED, RELEASED, Client, End, Fleet, Receiver, Sender, Sending
from memory_net.ends import encoded

INTERIORS, EDGES = ("A", "B", "C"), ("E", "F")
RING = (("A", "B"), ("B", "C"), ("C", "A"))
UPLINKS = (("E", "A"), ("E", "B"), ("F", "C"), ("F", "A"))
ADDRESSES = ("even", "near", "many")
DISTRIBUTIONS = {"near": "closest", "many": "multicast"}
SIZES = (10, 10, 10, 1000, 30_000, 200_000)  # the last is passed on before it is complete
FINAL = {ACCEPTED, REJECTED, RELEASED, MODIFIED}


@dataclass
class Message:
    """accepted, came  how often, by receivers"""

    address: str
    sending: Sending
    client: Client
    is_presettled: bool
    accepted: int = 0
    came: Counter[int] = field(default_factory=Counter)


class Chaos:
    def __init__(self, seed: int, *, is_sliced: bool) -> None:
        self.chance = random.Random(seed)
        read = self.chance.choice((16_000, 5000, 700))
        self.fleet = Fleet(
            *INTERIORS, edges=EDGES, distributions=DISTRIBUTIONS, is_sliced=is_sliced, read_bytes=read, capacity=40
        )
        self.ends: dict[tuple[str, str], tuple[End, End] | None] = {}
        for pair in (*RING, *UPLINKS):
            self.connect(pair)
        self.fleet.settle()
        self.messages: dict[bytes, Message] = {}
        self.seen: set[int] = set()
        self.receivers: list[tuple[int, Receiver]] = []
        self.senders: list[tuple[str, Sender]] = []
        self.unfinished: list[tuple[Sending, bytes]] = []
        self._number = 0
        for name in (*INTERIORS, *EDGES):
            for address in ADDRESSES:
                if self.chance.random() < 0.7:
                    self.receive(name, address)
                self.send_on(name, address)
        self.fleet.settle()

    # What happens

    def connect(self, pair: tuple[str, str]) -> None:
        if self.ends.get(pair) is None:
            terms: dict[str, Any] = {"role": "edge"} if pair in UPLINKS else {}
            self.ends[pair] = self.fleet.connect(*pair, **terms)

    def disconnect(self, pair: tuple[str, str]) -> None:
        ends = self.ends[pair]
        if ends is not None:
            if self.chance.random() < 0.5:
                ends[0].is_stuck = ends[1].is_stuck = True
                self.carry(self.chance.randrange(40))
            ends[self.chance.randrange(2)].kill()
            self.ends[pair] = None

    def receive(self, name: str, address: str) -> None:
        self._number += 1
        receiver = self.fleet[name].client().receiver(address, credit=self.chance.choice((2, 30, 1000)))
        self.receivers.append((self._number, receiver))

    def send_on(self, name: str, address: str) -> None:
        client = self.fleet[name].client()
        self.senders.append((address, client.sender(None if self.chance.random() < 0.3 else address)))

    def send(self) -> None:
        address, sender = self.chance.choice(self.senders)
        if sender.client.is_dead or sender.credit <= 0 or any(each.sender is sender for each, _ in self.unfinished):
            return
        self._number += 1
        name = b"%d" % self._number
        payload = encoded(
            name + b" " + bytes(self.chance.choice(SIZES)), address=address, priority=self.chance.randrange(10)
        )
        is_presettled = self.chance.random() < 0.15
        if len(payload) > 20_000 and self.chance.random() < 0.7 and not is_presettled:
            sending = sender.start()
            cut = self.chance.randrange(1, len(payload))
            sender.append(payload[:cut])
            self.unfinished.append((sending, payload[cut:]))
        else:
            sending = sender.send_bytes(payload, is_settled=is_presettled)
        self.messages[name] = Message(address, sending, sender.client, is_presettled)

    def finish(self) -> None:
        at = self.chance.randrange(len(self.unfinished))
        sending, rest = self.unfinished.pop(at)
        if not sending.sender.client.is_dead and not sending.is_settled_here:
            if self.chance.random() < 0.1:
                sending.abort()
                self.messages = {name: each for name, each in self.messages.items() if each.sending is not sending}
            else:
                sending.sender.append(rest)
                sending.sender.finish()

    def take(self, share: float) -> None:
        for number, receiver in self.receivers:
            if receiver.client.is_dead:
                continue
            for item in receiver.complete:
                if id(item) in self.seen or self.chance.random() > share:
                    continue
                self.seen.add(id(item))
                message = self.messages.get(item.body.partition(b" ")[0])
                outcome = self.chance.choice((ACCEPTED, ACCEPTED, ACCEPTED, REJECTED, RELEASED, MODIFIED))
                if message is not None:
                    message.came[number] += 1
                    message.accepted += outcome == ACCEPTED
                if not item.is_settled_here:
                    item.give(outcome)
                receiver.flow(1)

    def carry(self, rounds: int) -> None:
        for _ in range(rounds):
            for net in self.fleet.nets.values():
                net.carry()

    def step(self) -> None:
        chance = self.chance
        for _ in range(chance.randrange(6)):
            self.send()
        happens = chance.random()
        if happens < 0.06:
            self.disconnect(chance.choice([*self.ends]))
        elif happens < 0.2:
            self.connect(chance.choice([*self.ends]))
        elif happens < 0.23:
            clients = [end.client for _, end in (*self.receivers, *self.senders)]
            chance.choice(clients).kill()
        elif happens < 0.28:
            self.receive(chance.choice((*INTERIORS, *EDGES)), chance.choice(ADDRESSES))
        elif happens < 0.33:
            self.send_on(chance.choice((*INTERIORS, *EDGES)), chance.choice(ADDRESSES))
        elif happens < 0.45:
            self.fleet.tick()
        elif happens < 0.6 and self.unfinished:
            self.finish()
        self.carry(chance.choice((1, 3, 10, 60)))
        if chance.random() < 0.5:
            self.take(chance.choice((0.3, 1.0)))

    # How it ends

    def end(self) -> list[str]:
        """Everything is mended, finished and taken. What is wrong then?"""
        while self.unfinished:
            self.finish()
        for pair in self.ends:
            self.connect(pair)
        for _ in range(40):
            self.fleet.pump()
            self.take(1.0)
            self.fleet.tick()
        return [*self.faults()]

    def faults(self) -> list[str]:
        found = []
        for name, each in self.messages.items():
            outcome = each.sending.outcome
            if not each.client.is_dead and not each.is_presettled and outcome not in FINAL:
                found.append(f"{name!r} for {each.address}: outcome {outcome}, updates {each.sending.updates}")
            if outcome == ACCEPTED and not each.accepted:
                found.append(f"{name!r} for {each.address}: accepted by nobody")
            if each.address != "many" and each.came.total() > 1:
                found.append(f"{name!r} for {each.address}: came {dict(each.came)}")
        for router, net in self.fleet.nets.items():
            for key, live in net.core.table.addresses.items():
                if live.outstanding:
                    found.append(f"{router}: {key} has {live.outstanding} outstanding")
        return found

    def leave(self) -> None:
        for net in self.fleet.nets.values():
            for client in net.clients:
                client.kill()
        for pair in UPLINKS:
            self.disconnect(pair)
        self.fleet.tick(3)
        for net in self.fleet.nets.values():
            net.nothing_left()
            assert net.core.budgets.router.held == 0


@pytest.mark.slow
@pytest.mark.parametrize("is_sliced", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_nobody_is_told_what_is_not_true_when_connections_die(seed: int, is_sliced: bool) -> None:
    """network 74, 75, 76"""
    chaos = Chaos(seed, is_sliced=is_sliced)
    for _ in range(120):
        chaos.step()
    assert chaos.end() == []
    assert len(chaos.messages) > 100
    chaos.leave()
