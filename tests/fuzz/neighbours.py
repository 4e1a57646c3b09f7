"""A fuzzing campaign of hostile neighbours: routers and edges that say anything, beside honest ones.

    python -m tests.fuzz.neighbours --seconds 600 --seed 1
    python -m tests.fuzz.neighbours --replay 1:47            one scenario again, step by step

A scenario is a network of two routers and an edge with honest clients, and one or two hostile peers of the first
router. Each takes the place of a router or of an edge, by proton's own client: so most of its frames come in an order
that AMQP allows; tests/fuzz/connections.py has the others. What is in them is hostile (tests/fuzz/utterances.py), and
so is what the peers do: links of all kinds, messages that do not end, sessions ended and links detached in the midst
of a message, those that the router began or attached too, windows of one frame, sockets that are not read, connections
killed.

A failure is a crash of the process, a report of a sanitizer where proton and our C are built with one (tests/asan), an
engine that falls silent, an error in a router's log, a connection between the honest routers that ends, an honest
message without an outcome, or anything that is left when all peers have gone.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT), str(HERE), str(HERE.parent / "core")]

import rounds  # noqa: E402
import sanitized_modules  # noqa: E402, F401  before those of the router
import utterances  # noqa: E402
import wire  # noqa: E402
from memory_net import Client, Fleet, Net, Received, Receiver, Sender, Sending, encoded  # noqa: E402
from proton import Condition, Endpoint, symbol  # noqa: E402

from router.admission.connection_gate import Direction  # noqa: E402
from router.amqp.engine import limit_slices  # noqa: E402
from router.connection.own_routes import CannotServe, OwnRoutes  # noqa: E402
from router.core.addresses import LINK_ROUTES  # noqa: E402
from router.core.budget import Limits  # noqa: E402

DISTRIBUTIONS: Final = {"m": "multicast", "c": "closest", "b": "balanced", "u": "unavailable"}
CAPABILITIES: Final = ("qd.router", "qd.router-data", "qd.router-data", "qd.router-edge-downlink", "qd.waypoint",
                       "qd.fallback", "temporary-topic", "shared")  # fmt: skip
DIRECTIONS: Final[tuple[Direction, ...]] = ("send", "receive")
OUTCOMES: Final = (0x24, 0x25, 0x26, 0x27, 0x23)
FRAME_BYTES: Final = 512  # where windows are of one frame or a few
ACTIVE: Final = Endpoint.LOCAL_ACTIVE | Endpoint.REMOTE_ACTIVE
# Logged as errors though it is a peer's doing: what a neighbour says that cannot be read.
MODULES: Final = ("ROUTER", "ROUTER_MA", "ROUTER_HELLO", "SERVER", "AGENT")
SERVICES: Final = ("edge", "lookup", "heartbeat")

totals: Counter[str] = Counter()


class Hostile:
    """parts  messages that are under way: the sender, and the rest of the message"""

    def __init__(self, net: Net, chance: random.Random, role: str, *, is_narrow: bool) -> None:
        self.net, self.chance, self.role, self.is_narrow = net, chance, role, is_narrow
        self.sizes = utterances.SMALL if is_narrow else utterances.LARGE
        self.open()

    def open(self) -> None:
        chance = self.chance
        self.client = client = self.net.client(utterances.NAME, role=self.role, strip="no", opens=False)
        if self.is_narrow:
            client.transport.max_frame_size = FRAME_BYTES
            client.session_bytes = chance.choice((FRAME_BYTES, 2 * FRAME_BYTES, 50 * FRAME_BYTES))
            client.session.incoming_capacity = client.session_bytes
        client.open()
        self.receivers: list[Receiver] = []
        self.senders: list[Sender] = []
        self.parts: list[tuple[Sender, bytes]] = []
        self.heard = 0  # of the links that the router has attached
        self.told = 0  # times that it has told what consumers it has
        if self.role == "inter-router":
            for capability in ("qd.router", "qd.router-data", "qd.router-data"):
                ends: dict[str, Any] = {key: {"capabilities": symbol(capability)} for key in ("source", "target")}
                self.receivers.append(client.receiver(None, credit=1000, accepts=self.likes(), **ends))
                self.senders.append(client.sender(None, **ends))
        else:
            kind = {"capabilities": symbol("qd.router-edge-downlink")}
            self.receivers.append(client.receiver(utterances.NAME, credit=100, source=kind, target=kind))
            for address in "mbc":
                self.receivers.append(client.receiver(address, credit=100, accepts=self.likes()))
                self.senders.append(client.sender(address))
            self.senders += [client.sender(at) for at in (None, "_$qd.addr_lookup", "_$qd.edge_heartbeat")]
            self.receivers.append(client.receiver("_$qd.edge_addr_tracking", credit=3))
        self.route()

    def likes(self) -> bool:
        return self.chance.random() < 0.5

    # What there is

    def live_senders(self) -> list[Sender]:
        return [end for end in self.senders if end.link.state & Endpoint.LOCAL_ACTIVE and not end.is_detached]

    def live_receivers(self) -> list[Receiver]:
        return [end for end in self.receivers if end.link.state & Endpoint.LOCAL_ACTIVE and not end.is_detached]

    def ready(self) -> Sender | None:
        """One that may begin a message."""
        busy = [sender for sender, _ in self.parts]
        able = [sender for sender in self.live_senders() if sender.credit > 0 and sender not in busy]
        return self.chance.choice(able) if able else None

    def sessions(self) -> list[Any]:
        """Those that it has begun, and those that the router has."""
        found, session = [], self.client.connection.session_head(ACTIVE)
        while session is not None:
            found.append(session)
            session = session.next(ACTIVE)
        return found

    # Steps

    def step(self) -> str:
        client, chance = self.client, self.chance
        if client.router_closed or client.is_dead:
            self.open()
            return "open"
        for end in client.attached_by_router[self.heard :]:
            (self.receivers if isinstance(end, Receiver) else self.senders).append(end)  # type: ignore[arg-type]
        totals["links that the router attached to them"] += len(client.attached_by_router) - self.heard
        self.heard = len(client.attached_by_router)
        is_harsh = chance.random() < 0.15
        client.refusal_of_links = Condition("x:y", "z" * chance.choice((1, 70000))) if is_harsh else None
        client.made_address = chance.choice((None, "q.made", "", "x" * 3000))
        (act,) = chance.choices([act for act, _ in STEPS], [weight for _, weight in STEPS])
        act(self)
        return act.__name__

    def route(self) -> None:
        """Be somebody to whom others' messages and links go."""
        if self.role == "edge":
            self.net.pump()
            peer = self.client.router.peer
            if peer is None or not peer.is_open:
                return
            own = OwnRoutes(self.net.surroundings.link_routes)
            for direction in DIRECTIONS:
                with suppress(CannotServe):
                    own.add(peer, identity=f"{self.chance.random()}", name=None, pattern="q.#", direction=direction)
        elif self.senders and self.is_idle(self.senders[0]):
            keys = [f"M0{address}" for address in "mcb" if self.likes()]
            self.told += 1
            self.senders[0].send_bytes(utterances.has("Cq", "Dq", "M0nobody", *keys, sequence=self.told))

    def is_idle(self, sender: Sender) -> bool:
        return sender in self.live_senders() and sender.credit > 0 and all(sender is not busy for busy, _ in self.parts)

    def say_hello(self) -> None:
        if self.role == "inter-router" and self.is_idle(self.senders[0]):
            self.senders[0].send_bytes(utterances.hello())

    def say_control(self) -> None:
        sender = self.senders[0] if self.likes() and self.is_idle(self.senders[0]) else self.ready()
        if sender is not None and self.role == "inter-router":
            sender.send_bytes(utterances.control(self.chance), is_settled=self.likes())

    def send(self) -> None:
        if (sender := self.ready()) is not None:
            sender.send_bytes(utterances.message(self.chance, self.sizes), is_settled=self.chance.random() < 0.3)

    def begin_message(self) -> None:
        if (sender := self.ready()) is not None:
            sender.start()
            whole = utterances.message(self.chance, self.sizes) + bytes(self.chance.choice((0, self.sizes[-2])))
            cut = self.chance.randrange(len(whole) + 1)
            sender.append(whole[:cut])
            self.parts.append((sender, whole[cut:]))

    def go_on(self) -> None:
        if not self.parts:
            return
        sender, rest = self.parts.pop(self.chance.randrange(len(self.parts)))
        if sender not in self.live_senders():
            return
        if rest and self.likes():
            cut = self.chance.randrange(len(rest))
            sender.append(rest[:cut])
            self.parts.append((sender, rest[cut:]))
        else:
            sender.append(rest)
            sender.finish()

    def abort(self) -> None:
        if self.parts:
            sender, _ = self.parts.pop()
            if sender in self.live_senders():
                sender.sent[-1].abort()

    def attach(self) -> None:
        chance = self.chance
        sessions = self.sessions()
        if not sessions:
            return
        session = chance.choice(sessions)
        terms: dict[str, Any] = {}
        if chance.random() < 0.6:
            terms["capabilities"] = symbol(chance.choice(CAPABILITIES))
        address = chance.choice((*utterances.ADDRESSES, *[None] * 6))
        if chance.random() < 0.1:
            terms["dynamic"], address = True, None
        if self.likes():
            other = dict(terms) if self.likes() else {}
            self.senders.append(self.client.sender(address, session=session, target=terms, source=other))
        else:
            other = {key: value for key, value in terms.items() if key != "dynamic"} if self.likes() else {}
            self.receivers.append(
                self.client.receiver(address, session=session, credit=chance.choice((0, 1, 10, 1000)),
                                     accepts=self.likes(), source=terms, target=other)
            )  # fmt: skip

    def detach(self) -> None:
        if ends := [*self.live_senders(), *self.live_receivers()]:
            end = self.chance.choice(ends)
            self.parts = [part for part in self.parts if part[0] is not end]
            end.close() if self.likes() else end.detach()

    def begin_session(self) -> None:
        if len(self.sessions()) < 30:
            session = self.client.connection.session()
            if self.client.session_bytes is not None:
                session.incoming_capacity = self.client.session_bytes
            session.open()

    def end_session(self) -> None:
        """Perhaps one that the router has begun, with messages under way on it in either direction."""
        if sessions := self.sessions():
            self._end(self.chance.choice(sessions))

    def end_busy_session(self) -> None:
        """One by which a message comes that has not come whole, or by which one may, while its window is full."""
        receivers = self.live_receivers()
        if self.client.is_reading:
            receivers = [end for end in receivers if end._open is not None]
        if lanes := [end for end in receivers if end in self.client.attached_by_router]:
            receivers = lanes
        if receivers:
            totals["sessions ended in the midst of a message, or with a full window"] += 1
            self._end(self.chance.choice(receivers).link.session)

    def _end(self, session: Any) -> None:
        self.parts = [part for part in self.parts if part[0].link.session != session]
        for end in (*self.senders, *self.receivers):
            if end.link.session == session:
                end.is_detached = True
        session.close()

    def give_outcome(self) -> None:
        if items := [item for end in self.live_receivers() for item in end.received if not item.is_settled_here]:
            item: Received = self.chance.choice(items)
            item.give(self.chance.choice(OUTCOMES), is_settled=self.chance.random() < 0.6)

    def change_state(self) -> None:
        busy = [sender for sender, _ in self.parts]
        sent = [sending for end in self.live_senders() if end not in busy for sending in end.sent]
        if sent := [sending for sending in sent if not sending.is_settled_here]:
            sending: Sending = self.chance.choice(sent)
            sending.settle() if self.likes() else sending.update(self.chance.choice((0x24, 0x26)))

    def give_credit(self) -> None:
        if receivers := self.live_receivers():
            self.chance.choice(receivers).flow(self.chance.choice((1, 50, 1000)))

    def drain(self) -> None:
        if receivers := self.live_receivers():
            self.chance.choice(receivers).drain(self.chance.choice((0, 5)))

    def say_another_frame(self) -> None:
        """One of which its engine knows nothing: it is in order by chance alone, and confuses that engine itself."""
        client = self.client
        if not (client.transport.pending() > 0 or client.router.has_more or client.router.waits_for_room):
            client.say(wire.frame(utterances.performative(self.chance), self.chance.randrange(24)))
            totals["frames that no engine made"] += 1

    def stop_reading(self) -> None:
        self.client.stop_reading()

    def read(self) -> None:
        self.client.resume_reading()

    def wait(self) -> None:
        """The network's clock moves, by and by."""

    def close(self) -> None:
        self.client.close()

    def leave(self) -> None:
        self.client.kill()


STEPS: Final[tuple[tuple[Callable[[Hostile], None], float], ...]] = (
    (Hostile.say_hello, 6), (Hostile.say_control, 8), (Hostile.route, 3), (Hostile.send, 14),
    (Hostile.begin_message, 6), (Hostile.go_on, 10), (Hostile.abort, 3), (Hostile.attach, 8), (Hostile.detach, 3),
    (Hostile.begin_session, 2), (Hostile.end_session, 1.2), (Hostile.end_busy_session, 4), (Hostile.give_outcome, 10),
    (Hostile.change_state, 4), (Hostile.give_credit, 4), (Hostile.drain, 2), (Hostile.stop_reading, 4),
    (Hostile.read, 4), (Hostile.say_another_frame, 1), (Hostile.wait, 6), (Hostile.close, 0.2), (Hostile.leave, 0.4),
)  # fmt: skip


class Honest:
    """Clients of the three routers, some of which use link routes that hostile peers serve."""

    def __init__(self, fleet: Fleet, chance: random.Random, *, is_narrow: bool) -> None:
        self.fleet, self.chance = fleet, chance
        self.sizes = (5, 140, 700, 3000) if is_narrow else (5, 2000, 60_000, 200_000)
        self.routed: dict[str, tuple[Client, list[Sender | Receiver]]] = {}
        self.parts: dict[Sender, int] = {}  # the rest of a message
        for router in ROUTERS:
            for address in "mcb":
                fleet[router].client().receiver(address, credit=10_000, accepts=True)
        self.senders = [fleet[router].client().sender(at) for router in ROUTERS for at in (*"mcb", *["nobody"] * 3)]

    def step(self) -> None:
        chance = self.chance
        if chance.random() < 0.35:
            self.use_route()
        sender = chance.choice(self.senders)
        size = chance.choice(self.sizes)
        if sender in self.parts:
            sender.append(bytes(self.parts.pop(sender)))
            sender.finish()
        elif sender.credit > 0 and size > 100 and chance.random() < 0.4:
            payload = encoded(bytes(size))
            sender.start()
            sender.append(payload[:-50])
            self.parts[sender] = 50
        elif sender.credit > 0:
            sender.send(bytes(size), is_settled=chance.random() < 0.1)

    def use_route(self) -> None:
        chance = self.chance
        router = chance.choice(ROUTERS)
        client, ends = self.routed.get(router, (None, []))
        if client is None or client.router_closed or client.is_dead:
            client, ends = self.routed[router] = self.fleet[router].client(), []
        what = chance.random()
        if what < 0.35:
            ends.append(client.sender("q.x"))
        elif what < 0.6:
            ends.append(client.receiver("q.y", credit=50, accepts=True))
        elif what < 0.65:
            client.receiver(None, credit=5, source={"dynamic": True, "address": None})
        elif what < 0.7:
            client.kill()
        elif ends:
            end = chance.choice(ends)
            if chance.random() < 0.3:
                end.close()
                ends.remove(end)
            elif isinstance(end, Sender) and end.credit > 0 and not end.is_detached:
                end.send(bytes(chance.choice(self.sizes)))

    def finish(self) -> None:
        for sender, rest in self.parts.items():
            sender.append(bytes(rest))
            sender.finish()
        self.parts.clear()

    def check(self) -> None:
        """Every message has its outcome."""
        for sender in self.senders:
            assert not sender.client.router_closed, "an honest client was disconnected"
            assert not sender.is_detached, f"an honest link was detached: {sender.condition}"
            for sending in sender.sent:
                is_told = bool(sending.updates) and sending.updates[-1].is_settled
                assert is_told or (sending.is_settled_here and not sending.updates), "a message without an outcome"
            totals["honest messages"] += len(sender.sent)


ROUTERS: Final = ("A", "C", "E1")


def run(seed: str, is_loud: bool) -> None:
    """One scenario. Errors: AssertionError, and whatever the router raises."""
    chance = random.Random(seed)
    is_narrow = chance.random() < 0.6
    warnings = rounds.hear_warnings()
    rounds.stream_from(150 if is_narrow else None)
    is_sliced = chance.random() < 0.3
    limit_slices(-1e-9 if is_sliced else 0)  # one event at once, or all
    terms: dict[str, Any] = {"idle_timeout_s": 0}
    if is_narrow:
        terms |= {"max_frame_bytes": FRAME_BYTES, "session_bytes": chance.choice((1, 4, 50)) * FRAME_BYTES}
    fleet = Fleet(
        "A", "C", edges=("E1",), distributions=DISTRIBUTIONS,
        limits=Limits() if chance.random() < 0.5 else Limits(link=200_000, connection=3_000_000),
        progress_s=chance.choice((0, 20)), read_bytes=chance.choice((700, 16_384, 65_536)), is_sliced=is_sliced,
        **terms,
    )  # fmt: skip
    ends = (*fleet.connect("A", "C", **terms), *fleet.connect("E1", "A", role="edge", **terms))
    fleet.settle()
    honest = Honest(fleet, chance, is_narrow=is_narrow)
    fleet.settle()
    role = chance.choice(("inter-router", "inter-router", "edge"))
    hostiles = [Hostile(fleet["A"], chance, role, is_narrow=is_narrow) for _ in range(chance.choice((1, 1, 2)))]
    for _ in range(2):
        for hostile in hostiles:
            hostile.say_hello()
        fleet.tick()
    for hostile in hostiles:
        hostile.route()
    for number in range(chance.choice((60, 120, 240))):
        which = chance.randrange(len(hostiles))
        what = hostiles[which].step()
        if is_loud:
            print(f"{number}: {role} {which} {what}", flush=True)
        totals["steps"] += 1
        if what == "wait" and chance.random() < 0.5:
            fleet.tick()
        if chance.random() < 0.6:
            honest.step()
        pace = chance.random()
        if pace < 0.7:
            fleet.pump()
        elif pace < 0.85:
            for _ in range(chance.randrange(1, 12)):
                for net in fleet.nets.values():
                    net.carry()
    honest.finish()
    fleet.pump()
    for hostile in hostiles:
        hostile.client.kill()
    fleet.tick(3)
    honest.check()
    for end in ends:
        assert not end.is_dead, "a connection between honest routers has ended"
        assert not end.router_closed
    for net in fleet.nets.values():
        _no_errors(net)
    rounds.no_engine_is_silent(warnings)
    _nothing_left(fleet)
    for net in fleet.nets.values():
        net.clients.clear()


def _no_errors(net: Net) -> None:
    for entry in net.logs:
        assert "internal" not in entry.text.lower(), entry.text
        assert "Traceback" not in entry.text, entry.text
        assert entry.level != "critical" or "Duplicate" in entry.text, entry.text
        is_peers_doing = entry.module in MODULES or any(what in entry.text.lower() for what in SERVICES)
        assert entry.level != "error" or is_peers_doing, entry.text


def _nothing_left(fleet: Fleet) -> None:
    for net in fleet.nets.values():
        for peer in net.peers:
            peer.kill()
    fleet.pump()
    for net in fleet.nets.values():
        net.pump()
        core = net.core
        assert not core.links, core.links
        paying = sum(held for _, held in net.host._paying.values()) if net.host is not None else 0
        held = [(level.kind, level.name, level.held) for level in core.budgets.levels() if level.held > paying]
        assert not held, held
        for key, live in core.table.addresses.items():
            # Those of other routers stay until they expire.
            is_router = core.network is not None and key[0] == "R" and key[1:] in core.network.routers
            stays = live.holders or live.remotes or live.is_control or key[0] in LINK_ROUTES or is_router
            assert stays, f"the address {key} is left"
            assert not [way for way in live.ways.values() if way.count], f"{key} still counts messages"


if __name__ == "__main__":
    sys.exit(rounds.main(__doc__, __file__, run, totals))
