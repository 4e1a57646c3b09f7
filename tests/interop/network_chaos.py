"""A network whose links and routers die at random, under load: `make chaos`, or `make chaos SECONDS=60 SEED=7`.

Three interior routers in a ring and two edges, each a process; every link between routers runs through a relay that can
be cut or held up. 8 senders and 16 receivers are spread over all five. Every second or so a link is cut or held up for
a while, or a router is killed (SIGKILL) and started again; now and then a client dies, too. At the end everything is
mended, and all goes back to what it was at the beginning.

Exit status 0 only if what docs/reliability.md claims of deliveries held.
"""

import argparse
import random
import selectors
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from chaos_clients import NAMES, Client, Ledger, Receiver, Sender
from chaos_relay import Relay
from harness import eventually
from proton import Delivery
from router_network import Node, Processes, processes

from router.management.client import ManagementClient
from router.tools.connection_options import ConnectionOptions
from router.tools.transport import connect

INTERIORS, EDGES = ("A", "B", "C"), ("E1", "E2")
# Each connects to the listener of another; an edge's second is its stand-by.
STAND_BYS = (("E1", "B"), ("E2", "A"))
LINKS = (("A", "B"), ("B", "C"), ("C", "A"), ("E1", "A"), ("E2", "C"), *STAND_BYS)
SENDING = ("even.a", "even.a", "even.b", "nearest.a", "nearest.a", "multicast.a", "multicast.a", "multicast.b")
RECEIVING = ("even.a",) * 4 + ("even.b",) * 3 + ("nearest.a",) * 4 + ("multicast.a",) * 3 + ("multicast.b",) * 2
BLOW_EVERY_S, CLIENT_DIES_EVERY_S = 1.5, 0.5
MENDING_S, DRAIN_S = 60.0, 30.0
LOOK_EVERY_S = 0.2
CONFIGURATION = """\
router {{
    mode: {mode}
    id: {name}
}}
listener {{
    name: clients
    host: 127.0.0.1
    port: 0
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}}
address {{
    prefix: nearest
    distribution: closest
}}
address {{
    prefix: multicast
    distribution: multicast
}}
"""
LISTENER = """\
listener {{
    name: {role}
    host: 127.0.0.1
    port: 0
    role: {role}
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}}
"""
CONNECTOR = """\
connector {{
    name: to-{name}
    host: 127.0.0.1
    port: {port}
    role: {role}
    saslMechanisms: ANONYMOUS
}}
"""


def role_of(link: tuple[str, str]) -> str:
    return "edge" if link[0] in EDGES else "inter-router"


class Fleet:
    """The five routers and the relays between them.

    ports  by router and listener: where it listens now. A router that is not there has none
    """

    def __init__(self, running: Processes) -> None:
        self.ports: dict[str, dict[str, int]] = {}
        self.deaths = 0
        self._running = running
        self._pool = ThreadPoolExecutor(1)  # whoever starts a router has to live as long as the router
        self._starting: dict[str, Future[None]] = {}
        self.relays = {link: Relay("-".join(link), self._target(link)) for link in LINKS}
        self._texts = {name: self._configuration(name) for name in (*INTERIORS, *EDGES)}
        for name in self._texts:
            self._start(name)
        self.wait_for_uplinks()

    def _target(self, link: tuple[str, str]) -> Callable[[], int | None]:
        return lambda: self.ports.get(link[1], {}).get(role_of(link))

    def _configuration(self, name: str) -> str:
        is_edge = name in EDGES
        text = CONFIGURATION.format(mode="edge" if is_edge else "interior", name=name)
        if not is_edge:
            text += LISTENER.format(role="inter-router") + LISTENER.format(role="edge")
        for link, relay in self.relays.items():
            if link[0] == name:
                text += CONNECTOR.format(name=link[1], port=relay.port, role=role_of(link))
        return text

    def node(self, name: str) -> Node:
        return self._running[name]

    def names(self) -> tuple[str, ...]:
        return tuple(self._texts)

    def _start(self, name: str) -> None:
        node = self._running.run(name, self._texts[name])
        found = {"clients": node.clients}
        for role in () if name in EDGES else ("inter-router", "edge"):
            found[role] = int(node.wait_for_log(rf"Listening on 127\.0\.0\.1:(\d+) \({role}\)")[1])
        self.ports[name] = found

    def kill(self, name: str) -> None:
        del self.ports[name]
        self.node(name).kill()
        self.deaths += 1

    def restart(self, name: str) -> None:
        """Begins to start it; it is there when it has ports."""
        if name not in self._starting or self._starting[name].done():
            self._starting[name] = self._pool.submit(self._start, name)

    def mend(self) -> "Future[None]":
        """All links and routers work again, in a while."""
        return self._pool.submit(self._mend)

    def _mend(self) -> None:
        for relay in self.relays.values():
            relay.resume()
            relay.is_open = True
        for name in self._texts:
            if name not in self.ports:
                self._start(name)
        self.wait_for_uplinks()

    def wait_for_uplinks(self) -> None:
        """Each edge has its first uplink and a stand-by: it does not go back to the first one by itself."""
        for link in STAND_BYS:
            self.relays[link].is_open = False
            self.relays[link].cut()
        for count in (1, 2):
            for name in EDGES:
                has_count = partial(self._has_uplinks, name, count)
                assert eventually(has_count, MENDING_S), "\n".join(self.node(name).lines[-20:])
            for link in STAND_BYS:
                self.relays[link].is_open = True

    def _has_uplinks(self, name: str, count: int) -> bool:
        with self.manage(name) as client:
            roles = [str(row["role"]) for row in client.query("connection").entities()]
        return roles.count("edge") == count

    def close(self) -> None:
        for relay in self.relays.values():
            relay.close()
        self._pool.shutdown()

    # What management shows

    def manage(self, name: str) -> Any:
        return connect(ConnectionOptions(host="127.0.0.1", port=self.ports[name]["clients"], timeout_s=10))

    def state(self) -> dict[str, Counter[str]]:
        """Of each router, what has to be the same before and after."""
        found = {}
        for name in self._texts:
            with self.manage(name) as client:
                found[name] = Counter(shape(client))
        return found


def shape(client: ManagementClient) -> Iterator[str]:
    """Connections, links and addresses of a router, without what is new each time and without idle streaming links."""

    def rows(type: str) -> Iterator[dict[str, Any]]:
        return client.query(type).entities()

    for row in rows("connection"):
        yield f"connection {row['role']} {row['dir']} {row['container'] if row['role'] != 'normal' else ''}"
    seen: Counter[str] = Counter()
    for row in rows("router.link"):
        if row["linkType"] == "endpoint" and "temp." in str(row["owningAddr"]):
            owner = "temp"
        else:
            owner = str(row["owningAddr"])
        text = f"link {row['linkType']} {row['linkDir']} {owner}"
        if row["linkType"] == "inter-router":
            seen[text] += 1
            if seen[text] > 20:  # two neighbours; what is more is streaming links
                text = ""
        elif row["linkName"].startswith("qdlink.large."):  # the same between an edge and its interior
            text = ""
        if row["unsettledCount"] or row["undeliveredCount"]:
            yield f"{text} with {row['unsettledCount']} unsettled, {row['undeliveredCount']} undelivered"
        elif text:
            yield text
    for row in rows("router.address"):
        key = "temp" if "temp." in row["key"] else row["key"]
        outstanding = sum(row["transitOutstanding"] or ())
        yield (
            f"address {key} {row['distribution']}, local {row['subscriberCount']}, far {row['remoteCount']} "
            f"{sorted(row['remoteHostRouters'] or ())}, outstanding {outstanding}"
        )


@dataclass(slots=True)
class Place:
    """Where a client belongs. client  None: its router is not there"""

    kind: type[Client]
    address: str
    router: str
    client: Client | None = None


class Crowd:
    """Clients at all routers, on one thread; and what happens to them and the routers."""

    def __init__(self, fleet: Fleet, ledger: Ledger, luck: random.Random) -> None:
        self.fleet, self.ledger, self.luck = fleet, ledger, luck
        self.selector = selectors.DefaultSelector()
        names = fleet.names()
        wanted: list[tuple[type[Client], str]] = [(Receiver, address) for address in RECEIVING]
        wanted += [(Sender, address) for address in SENDING]
        self.places = [Place(kind, at, names[number % len(names)]) for number, (kind, at) in enumerate(wanted)]
        self.blows: Counter[str] = Counter()
        self.is_stopping = False
        # Clients that have no turn for some seconds are given up by their routers: the machine's fault, not theirs.
        self.longest_turn_s = self._last_turn = 0.0
        self._next_tick = self._next_blow = self._next_death = 0.0
        self._later: list[tuple[float, Callable[[], None]]] = []

    # Clients

    def admit(self, place: Place) -> None:
        ports = self.fleet.ports.get(place.router)
        if ports is None:
            return
        try:
            client = place.kind(ports["clients"], place.address, self.ledger, self.luck)
        except OSError:
            return  # it was killed just now, or does not listen yet
        if isinstance(client, Sender):
            client.is_stopping = self.is_stopping
        place.client = client
        self.selector.register(client.socket, selectors.EVENT_READ, client)

    def bury(self, place: Place) -> None:
        """Its connection is no more."""
        client, place.client = place.client, None
        if client is not None:
            if not client.is_gone:
                self.selector.unregister(client.socket)
            client.kill()

    def turn(self) -> None:
        """Read, do, write, once."""
        for key, _ in self.selector.select(0.002):
            key.data.read()
            if key.data.is_gone:
                self.selector.unregister(key.fileobj)
        now = time.monotonic()
        self.longest_turn_s = max(self.longest_turn_s, now - (self._last_turn or now))
        self._last_turn = now
        is_tick = now >= self._next_tick
        for place in self.places:
            client = place.client
            if client is None:
                if is_tick:
                    self.admit(place)
            elif client.is_gone and not client.is_leaving:
                self.bury(place)
            elif not client.is_gone:
                client.work()
                if is_tick:
                    client.tick()
                client.write()
        if is_tick:
            self._next_tick = now + 0.25

    # Blows

    def blow(self) -> None:
        """Something dies, or stops for a while."""
        luck = self.luck
        link = luck.choice(LINKS)
        relay = self.fleet.relays[link]
        what = luck.choices(("cut", "cut for a while", "stall", "kill"), (4, 3, 3, 3))[0]
        if what == "kill":
            name = luck.choice([*self.fleet.names()])
            if name not in self.fleet.ports:
                return
            for place in self.places:
                if place.router == name and place.client is not None:
                    place.client.read()  # what it said is said
            self.fleet.kill(name)
            for place in self.places:
                if place.router == name:
                    self.bury(place)
            self.after(luck.uniform(0.0, 2.0), lambda: self.fleet.restart(name))
        elif what == "stall":
            relay.stall()
            self.after(luck.uniform(0.2, 5.0), luck.choice((relay.cut, relay.resume)))
        else:
            if what != "cut":
                relay.is_open = False
                self.after(luck.uniform(0.5, 4.0), lambda: setattr(relay, "is_open", True))
            relay.cut()
        self.blows[what] += 1

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        self._later.append((time.monotonic() + seconds, act))

    def do_what_is_due(self, now: float) -> None:
        due = [act for at, act in self._later if at <= now]
        self._later = [(at, act) for at, act in self._later if at > now]
        for act in due:
            act()

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            self.turn()
            self.do_what_is_due(now)
            if now >= self._next_blow:
                self._next_blow = now + 2 * BLOW_EVERY_S * self.luck.random()
                self.blow()
            if now >= self._next_death:
                self._next_death = now + 2 * CLIENT_DIES_EVERY_S * self.luck.random()
                place = self.luck.choice(self.places)
                if place.client is not None:
                    self.bury(place)
                    self.admit(place)
        self.do_what_is_due(float("inf"))

    # The end

    def turn_until(self, claim: Callable[[], bool], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not (is_so := claim()) and time.monotonic() < end:
            # The claim may take long to look at: it is not to hold up the clients.
            next_look = time.monotonic() + LOOK_EVERY_S
            while time.monotonic() < next_look:
                self.turn()
        return is_so

    def sent_so_far(self) -> dict[str, int]:
        """By sender, the number that its next message has."""
        return {place.client.name: place.client.count for place in self.places if isinstance(place.client, Sender)}

    def not_served(self, since: dict[str, int]) -> list[str]:
        """Senders that were told `accepted` of no message that they sent since then."""
        accepted = int(Delivery.ACCEPTED)
        told = (message.split("/") for message, states in self.ledger.told.items() if states == [accepted])
        served = {sender for sender, number, _ in told if int(number) >= since.get(sender, 0)}
        found = []
        for place in self.places:
            text = f"{place.kind.__name__} of {place.address} at {place.router}"
            client = place.client
            if client is None:
                found.append(f"{text} is not connected")
            elif isinstance(client, Sender) and client.name not in served and not client.is_presettling:
                found.append(
                    f"{text} ({client.name}, anonymous: {client.is_anonymous}) is not served: credit "
                    f"{client.link.credit}, sent {client.count}, unsettled {len(client.unsettled)}, to send again "
                    f"{len(client.again)}"
                )
        return found

    def come_to_rest(self) -> None:
        """No new messages; those under way get their outcomes."""
        self.is_stopping = True
        for place in self.places:
            if isinstance(place.client, Sender):
                place.client.is_stopping = True
        self.turn_until(lambda: not self.ledger.alive, DRAIN_S)

    def leave(self) -> None:
        clients = [place.client for place in self.places if place.client is not None]
        for client in clients:
            client.leave()
        self.turn_until(lambda: all(client.is_gone for client in clients), DRAIN_S)
        for client in clients:
            client.end()
        self.selector.close()


@dataclass(frozen=True)
class Outcome:
    """wrong       what contradicts the claims
    repeated    multicast messages that a receiver had twice while paths changed
    longest_turn_s  for which no client had a turn: with more than 8 s routers close idle connections
    """

    wrong: list[str]
    blows: Counter[str]
    told: Counter[str]
    sent: int
    client_deaths: int
    repeated: int
    longest_turn_s: float

    def text(self) -> str:
        return (
            f"{self.sent} messages, {dict(self.blows)}, {self.client_deaths} clients died, told {dict(self.told)}, "
            f"{self.repeated} multicast copies came twice, longest turn {self.longest_turn_s:.1f} s, "
            f"{len(self.wrong)} faults"
        )


def differences(before: dict[str, Counter[str]], after: dict[str, Counter[str]]) -> list[str]:
    found = []
    for name in before:
        found += [f"{name}: gone: {text} ({count})" for text, count in (before[name] - after[name]).items()]
        found += [f"{name}: left over: {text} ({count})" for text, count in (after[name] - before[name]).items()]
    return found


def wreak(folder: Path, seconds: float, seed: int) -> Outcome:
    """A network of its own in `folder`. Errors: AssertionError where a router itself fails"""
    ledger, luck = Ledger(), random.Random(seed)
    wrong: list[str] = []
    with processes(folder) as running:
        fleet = Fleet(running)
        try:
            before: dict[str, Counter[str]] = {}

            def is_settled() -> bool:
                last = dict(before)
                before.update(fleet.state())
                return before == last and all(is_complete(name, before[name]) for name in before)

            assert eventually(is_settled, MENDING_S), before
            crowd = Crowd(fleet, ledger, luck)
            crowd.run(seconds)
            mended = fleet.mend()
            crowd.turn_until(mended.done, MENDING_S)
            mended.result(0)
            since = crowd.sent_so_far()
            if not crowd.turn_until(lambda: not crowd.not_served(since), MENDING_S):
                wrong += crowd.not_served(since)
                wrong += [f"{name}: {text}" for name, state in fleet.state().items() for text in sorted(state)]
            crowd.come_to_rest()
            told = Counter(NAMES.get(states[0], str(states[0])) for states in ledger.told.values() if states)
            repeated = [text for text in ledger.check() if " on multicast." in text and ": delivered to " in text]
            wrong += [text for text in ledger.check() if text not in set(repeated)]
            crowd.leave()
            after: dict[str, Counter[str]] = {}

            def is_as_before() -> bool:
                after.update(fleet.state())
                return after == before

            if not eventually(is_as_before, MENDING_S):
                wrong += differences(before, after)
        finally:
            fleet.close()
    return Outcome(
        wrong=wrong,
        blows=crowd.blows,
        told=told,
        sent=ledger.sent,
        client_deaths=ledger.kills,
        repeated=len(repeated),
        longest_turn_s=crowd.longest_turn_s,
    )


def is_complete(name: str, state: Counter[str]) -> bool:
    """Has the router all the connections that it is to have, and does it know of all edges, where it is to?"""
    role = "edge" if name in EDGES else "inter-router"
    known = sum(text.startswith(tuple(f"address H{edge} " for edge in EDGES)) for text in state)
    connections = sum(count for text, count in state.items() if text.startswith(f"connection {role}"))
    return connections == 2 and (name in EDGES or known == len(EDGES))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome = wreak(Path(folder), arguments.seconds, arguments.seed)
    print(f"{arguments.seconds:g} s, seed {arguments.seed}: {outcome.text()}")
    for text in outcome.wrong[:40]:
        print(text)
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
