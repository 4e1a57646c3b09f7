"""Connections of clients and of containers killed at random under load, on routed links and auto links.

As test_chaos.py, with what a container adds: it takes the links that the router attaches, gets messages on some and
sends on others. When it dies, routed links end at clients that live, and these attach again.
PALISADE_CHAOS_SECONDS and PALISADE_CHAOS_SEED as there.
"""

import itertools
import random
import selectors
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from chaos_clients import CREDIT, NAMES, Client, Ledger, Receiver, Sender
from harness import eventually, running_router
from open_house import OPEN_HOUSE, management, port_of
from proton import Connection, Delivery, Link, Session
from test_chaos import GROWTH_KB, SECONDS, SEED, Crowd, counts, tenths

BROKERS = """
listener {
    name: brokers
    host: 127.0.0.1
    port: 0
    role: route-container
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
    policyVhost: open-house
}
"""
# Clients send to the first two and receive from the others.
TO_QUEUE, TO_ROUTE, FROM_QUEUE, FROM_ROUTE = "queue.to", "route.to", "queue.from", "route.from"
WAYS = "".join(
    f"{kind} {{\n    {key}: {address}\n    direction: {direction}\n    connection: brokers\n}}\n"
    for kind, key, address, direction in (
        ("autoLink", "address", TO_QUEUE, "out"),
        ("linkRoute", "prefix", TO_ROUTE, "in"),
        ("autoLink", "address", FROM_QUEUE, "in"),
        ("linkRoute", "prefix", FROM_ROUTE, "out"),
    )
) + "".join(f"address {{\n    prefix: {address}\n    waypoint: yes\n}}\n" for address in (TO_QUEUE, FROM_QUEUE))
CONTAINERS = 4
# How a routed link may end, and an attach be refused, when containers die.
EXPECTED = ("qd:routed-link-lost", "qd:no-route-to-dest")


class Routed(Client):
    """What the client of a routed link adds to it: it attaches again when its container is gone."""

    link: Link

    def attach(self, session: Any) -> Link:
        super().attach(session).free()
        self.session, self.tries = session, itertools.count(1)
        return self.attach_again()

    def attach_again(self) -> Link:
        raise NotImplementedError

    def let_go(self) -> None:
        """What was under way on the link has no outcome."""
        raise NotImplementedError

    def on_closed(self, end: Link | Connection) -> None:
        if end != self.link or end.remote_condition is None or end.remote_condition.name not in EXPECTED:
            super().on_closed(end)
            return
        self.let_go()
        self.link.close()
        self.link = self.attach_again()
        self.link.open()

    def on_delivery(self, delivery: Delivery) -> None:
        if delivery.link == self.link:
            super().on_delivery(delivery)


class RoutedSender(Routed, Sender):
    """What it sent while its container was going, behind the router's Detach, has no outcome."""

    def attach_again(self) -> Link:
        self.is_anonymous = False
        link: Link = self.session.sender(f"{self.name}.{next(self.tries)}")
        link.target.address = self.address
        return link

    def let_go(self) -> None:
        self.forget()


class RoutedReceiver(Routed, Receiver):
    def attach_again(self) -> Link:
        link: Link = self.session.receiver(f"{self.name}.{next(self.tries)}")
        link.source.address = self.address
        link.flow(CREDIT)
        return link

    def let_go(self) -> None:
        self.on_written()
        self.held.clear()
        self.part.clear()


class Taking(Receiver):
    """A link on which a container gets messages."""

    def __init__(self, container: "Container", name: str, link: Link) -> None:
        self.name, self.address, self.ledger, self.luck = name, "", container.ledger, container.luck
        self.link, self.is_leaving = link, False
        self.part, self.held, self.answered = bytearray(), [], []
        link.flow(CREDIT)


class Giving(Sender):
    """A link on which a container sends."""

    def __init__(self, container: "Container", name: str, link: Link) -> None:
        self.name, self.ledger, self.luck, self.transport = name, container.ledger, container.luck, container.transport
        self.address = str(link.remote_source.address)
        self.link, self.is_leaving = link, False
        self.is_anonymous, self.is_presettling, self.is_stopping = False, self.luck.random() < 0.15, False
        self.count, self.unsettled, self.again = 0, {}, []


class Container(Client):
    """Takes every link that the router attaches."""

    def begin(self) -> None:
        self.ends: dict[str, Taking | Giving] = {}
        self.numbers_of_links = itertools.count(1)
        self.is_stopping = False

    def successor(self) -> "Container":
        made = Container(self.port, self.address, self.ledger, self.luck)
        made.is_stopping = self.is_stopping
        return made

    def on_opened(self, end: Any) -> None:
        if isinstance(end, Session):
            end.open()
            return
        name = f"{self.name}-{next(self.numbers_of_links)}"
        end.source.copy(end.remote_source)
        end.target.copy(end.remote_target)
        end.open()
        self.ends[end.name] = Taking(self, name, end) if end.is_receiver else Giving(self, name, end)

    def on_closed(self, end: Link | Connection) -> None:
        """A client has gone from a routed link. What was sent meanwhile has no outcome."""
        gone = self.ends.pop(end.name, None) if isinstance(end, Link) else None
        if gone is None:
            super().on_closed(end)
        elif isinstance(gone, Giving):
            gone.forget()
        else:
            gone.on_written()
        end.close()

    def on_delivery(self, delivery: Delivery) -> None:
        end = self.ends.get(delivery.link.name)
        if end is not None:
            end.on_delivery(delivery)

    def work(self) -> None:
        for end in self.ends.values():
            if isinstance(end, Giving):
                end.is_stopping = self.is_stopping
            end.work()

    def on_written(self) -> None:
        for end in self.ends.values():
            end.on_written()

    def end(self) -> None:
        for end in self.ends.values():
            if isinstance(end, Giving):
                end.forget()
            else:
                end.on_written()
        super().end()


class CrowdWithContainers(Crowd):
    def __init__(self, port: int, port_of_brokers: int, ledger: Ledger, luck: random.Random) -> None:
        self.ledger, self.luck = ledger, luck
        self.selector = selectors.DefaultSelector()
        self.clients: list[Client] = [Container(port_of_brokers, "", ledger, luck) for _ in range(CONTAINERS)]
        for kind, address in (
            (Sender, TO_QUEUE), (RoutedSender, TO_ROUTE), (Receiver, FROM_QUEUE), (RoutedReceiver, FROM_ROUTE),
        ):  # fmt: skip
            self.clients += [kind(port, address, ledger, luck) for _ in range(4)]
        for client in self.clients:
            self.selector.register(client.socket, selectors.EVENT_READ, client)
        self.next_kill = self.next_tick = 0.0
        self.is_over = False

    def turn(self) -> None:
        super().turn()
        for at, client in enumerate(self.clients):
            if client.is_gone and client.is_leaving and not self.is_over:
                self.ledger.kills += 1
                self.selector.unregister(client.socket)
                client.end()
                self.clients[at] = client.successor()
                self.selector.register(self.clients[at].socket, selectors.EVENT_READ, self.clients[at])

    def leave(self) -> None:
        self.is_over = True
        super().leave()

    def come_to_rest(self) -> None:
        for client in self.clients:
            if isinstance(client, Container):
                client.is_stopping = True
        super().come_to_rest()


@pytest.mark.slow
def test_nobody_is_told_what_is_not_true_when_clients_and_containers_die_under_load(
    certificates: Certificates, router_python: Path, tmp_path: Path
) -> None:
    """routing 110, 118: and nothing is left of the dead."""
    ledger, luck = Ledger(), random.Random(SEED)
    folder = tmp_path / "router"
    with running_router(folder, certificates, python=router_python, extra=OPEN_HOUSE + BROKERS + WAYS) as router:
        with management(router) as client:
            before, files = counts(client), router.open_files()
        crowd = CrowdWithContainers(port_of(router, "free"), port_of(router, "brokers"), ledger, luck)
        sizes_kb = crowd.run(SECONDS, router.resident_kb)
        fifth = len(sizes_kb) // 5
        before_kb, last_kb = min(sizes_kb[fifth : 2 * fifth]), min(sizes_kb[-2 * fifth :])
        crowd.come_to_rest()
        wrong = list(dict.fromkeys(ledger.check()))
        crowd.leave()
        told = Counter(NAMES.get(states[0], str(states[0])) for states in ledger.told.values() if states)
        ways = Counter(ledger.address[message] for message in ledger.received if message in ledger.address)
        print(f"{SECONDS:g} s, seed {SEED}: {ledger.sent} messages, {ledger.kills} kills, {dict(told)}, received "
              f"{dict(ways)}, kB in each tenth: {tenths(sizes_kb)}, at most {max(sizes_kb)}")  # fmt: skip
        assert wrong == [], f"{len(wrong)}: " + "\n".join(wrong[:20])
        with management(router) as client:
            assert eventually(lambda: counts(client) == before, 10.0), (before, counts(client))
            assert eventually(lambda: router.open_files() == files, 10.0), (
                f"{files} before, now {router.open_file_names()}"
            )
        assert last_kb - before_kb < GROWTH_KB, f"from {before_kb} kB up to {last_kb} kB"
        assert ledger.kills > SECONDS * 2
        for address in (TO_QUEUE, TO_ROUTE, FROM_QUEUE, FROM_ROUTE):
            assert ways[address] > SECONDS * 5, ways
