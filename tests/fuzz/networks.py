"""A fuzzing campaign of a network that changes: what senders are told is true, and nothing is left.

    python -m tests.fuzz.networks --seconds 600 --seed 1
    python -m tests.fuzz.networks --replay 1:47            one scenario again, step by step

A scenario is three routers in a ring and two edges. Their clients are honest, but come and go: they kill their
connections, end sessions and close links in the midst of messages. So do the routers: connections between them are
lost, perhaps after they have stopped reading, and they end sessions of large messages. A broker serves link routes.

A failure is a crash of the process, a report of a sanitizer where proton and our C are built with one (tests/asan), an
engine that falls silent, an error in a router's log, a message that comes torn, or twice where it may not, one without
an outcome, or `accepted` though nobody has accepted it, or anything that is left when all clients have gone.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT), str(HERE), str(HERE.parent / "core")]

import rounds  # noqa: E402
import sanitized_modules  # noqa: E402, F401  before those of the router
from memory_net import (  # noqa: E402
    ACCEPTED,
    MODIFIED,
    RELEASED,
    Client,
    End,
    Fleet,
    Received,
    Receiver,
    Sender,
    Sending,
    encoded,
)

from policy.addressing.patterns import configured_tokens  # noqa: E402
from router.admission.connection_gate import Direction  # noqa: E402
from router.amqp.engine import IncomingWire, Session, limit_slices  # noqa: E402
from router.connection.auto_links import Place  # noqa: E402
from router.connection.link_routes import LinkRoute, key_of  # noqa: E402
from router.core.trunk_links import DataInLink  # noqa: E402

RING: Final = (("A", "B"), ("B", "C"), ("C", "A"))
UPLINKS: Final = (("E1", "A"), ("E2", "B"))
FRAME_BYTES: Final = 512  # where windows are of one frame or a few
DIRECTIONS: Final[tuple[Direction, ...]] = ("send", "receive")
BROKER: Final = Place(kind="container", text="broker")

totals: Counter[str] = Counter()


class Network:
    """accepted, came  how often, by the first bytes of the bodies
    sizes           of the bodies
    sent            what was sent to the address `a`: the sending, its body's first bytes, whether it was settled
    parts           messages under way: the sending, the rest, the body's first bytes
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.is_narrow = chance.random() < 0.5
        rounds.stream_from(150 if self.is_narrow else None)
        is_sliced = chance.random() < 0.3
        limit_slices(-1e-9 if is_sliced else 0)  # one event at once, or all
        self.terms: dict[str, Any] = {"idle_timeout_s": 0}
        if self.is_narrow:
            windows = chance.choice((1, 4, 50))
            self.terms |= {"max_frame_bytes": FRAME_BYTES, "session_bytes": windows * FRAME_BYTES}
        self.body_bytes = (8, 8, 140, 200, 700, 3000) if self.is_narrow else (8, 8, 2000, 150_000, 400_000)
        self.distribution = chance.choice(("balanced", "closest", "multicast"))
        has_fallback = chance.random() < 0.2 and self.distribution != "multicast"
        self.fleet = Fleet(
            *("A", "B", "C"), edges=("E1", "E2"), distributions={"a": self.distribution},
            read_bytes=chance.choice((700, 3000, 16_384, 65_536)), is_sliced=is_sliced,
            fallbacks=frozenset({"a"}) if has_fallback else frozenset(), progress_s=chance.choice((0, 30)),
            **self.terms,
        )  # fmt: skip
        self.connections: dict[tuple[str, str], tuple[End, End] | None] = dict.fromkeys((*RING, *UPLINKS))
        for pair in self.connections:
            self.connect(pair)
        link_routes, tokens = self.fleet["C"].surroundings.link_routes, configured_tokens("q", None)
        for direction in DIRECTIONS:
            key = key_of(tokens, "q", is_in=direction == "send")
            link_routes.add(LinkRoute(pattern="q", direction=direction, key=key, place=BROKER, name=direction))
        self.receivers: list[Receiver] = []
        self.gone: list[Receiver] = []  # whose connection still is there
        self.senders: list[Sender] = []
        self.routed: list[tuple[Sender | Receiver, Client]] = []
        self.broker: Client | None = None
        self.accepted: Counter[bytes] = Counter()
        self.came: Counter[bytes] = Counter()
        self.sizes: dict[bytes, int] = {}
        self.sent: list[tuple[Sending, bytes, bool]] = []
        self.sent_by_route: list[Sending] = []
        self.parts: dict[Sender, tuple[Sending, bytes, bytes]] = {}
        self.taken: set[int] = set()
        self.kept: list[Received] = []
        for _ in range(3):
            self.add_receiver()
        self.serve()
        self.fleet.settle()
        for _ in range(4):
            self.add_sender()
        self.fleet.pump()

    # What there is

    def connect(self, pair: tuple[str, str]) -> None:
        terms = {**self.terms, "role": "edge"} if pair in UPLINKS else self.terms
        self.connections[pair] = self.fleet.connect(*pair, **terms)

    def client(self) -> Client:
        client = self.fleet[self.chance.choice(list(self.fleet.nets))].client(opens=False)
        if self.is_narrow and self.chance.random() < 0.5:
            client.transport.max_frame_size = FRAME_BYTES
            client.session.incoming_capacity = self.chance.choice((1, 4)) * FRAME_BYTES
        return client.open()

    @staticmethod
    def is_live(end: Sender | Receiver) -> bool:
        return not (end.client.is_dead or end.client.router_closed or end.is_detached)

    # Steps

    def add_receiver(self) -> None:
        self.receivers.append(self.client().receiver("a", credit=self.chance.choice((1, 5, 1000))))

    def remove_receiver(self) -> None:
        """It kills its connection, closes its link, or ends its session, perhaps in the midst of a message."""
        if not self.receivers:
            return
        busy = [receiver for receiver in self.receivers if receiver._open is not None]
        receiver = self.chance.choice(busy if busy and self.chance.random() < 0.7 else self.receivers)
        self.receivers.remove(receiver)
        totals["receivers that left in the midst of a message"] += receiver._open is not None
        how = self.chance.random()
        if how < 0.3:
            receiver.client.kill()
        elif how < 0.6:
            receiver.client.session.close()
        else:
            receiver.close()
            self.gone.append(receiver)

    def stall_receiver(self) -> None:
        if self.receivers:
            receiver = self.chance.choice(self.receivers)
            receiver.client.is_reading = not receiver.client.is_reading

    def add_sender(self) -> None:
        self.senders.append(self.client().sender("a" if self.chance.random() < 0.6 else None))

    def remove_sender(self) -> None:
        idle = [sender for sender in self.senders if self.chance.random() < 0.3 or sender not in self.parts]
        if idle:
            sender = self.chance.choice(idle)
            self.senders.remove(sender)
            self.parts.pop(sender, None)
            sender.is_detached = True  # nobody asks any more what it was told
            sender.client.kill() if self.chance.random() < 0.5 else sender.client.session.close()

    def send(self) -> None:
        for sender in self.senders:
            if not self.is_live(sender):
                continue
            if sender in self.parts:
                self._go_on(sender)
            elif sender.credit > 0 and self.chance.random() < 0.6:
                self._begin(sender)

    def _begin(self, sender: Sender) -> None:
        chance = self.chance
        body, size = b"%08d" % len(self.sizes), chance.choice(self.body_bytes)
        self.sizes[body] = size
        payload = encoded(body + bytes(size - 8), address="a")
        totals["messages"] += 1
        if chance.random() < 0.3 and size > 8:
            sending, cut = sender.start(), chance.randrange(1, len(payload))
            sender.append(payload[:cut])
            self.parts[sender] = sending, payload[cut:], body
            self.sent.append((sending, body, False))
        else:
            is_settled = chance.random() < 0.1
            self.sent.append((sender.send_bytes(payload, is_settled=is_settled), body, is_settled))

    def _go_on(self, sender: Sender) -> None:
        sending, rest, body = self.parts[sender]
        how = self.chance.random()
        if how < 0.1:
            sending.abort()
            del self.parts[sender]
            self.sent.remove((sending, body, False))
        elif how < 0.5:
            self._finish(sender)
        elif how < 0.8:
            cut = len(rest) // 2
            sender.append(rest[:cut])
            self.parts[sender] = sending, rest[cut:], body

    def _finish(self, sender: Sender) -> None:
        _, rest, _ = self.parts.pop(sender)
        if self.is_live(sender):
            sender.append(rest)
            sender.finish()

    def take(self, share: float = 1.0) -> None:
        """Receivers give outcomes for a share of what has come."""
        for receiver in (*self.receivers, *self.gone):
            if receiver.client.is_dead:
                continue
            for item in receiver.complete:
                if id(item) not in self.taken and self.chance.random() <= share:
                    self._take(item)
            is_poor = self.is_live(receiver) and receiver not in self.gone and receiver.credit < 3
            if is_poor and self.chance.random() < 0.5:
                receiver.flow(10)

    def _take(self, item: Received) -> None:
        self.taken.add(id(item))
        self.kept.append(item)
        whole = item.body
        body = whole[:8]
        assert len(whole) == self.sizes[body], f"{len(whole)} bytes came of {self.sizes[body]}"
        self.came[body] += 1
        if self.chance.random() < 0.8:
            self.accepted[body] += 1
            item.accept() if not item.is_settled_here else None
        elif not item.is_settled_here:
            item.give(RELEASED)

    def lose_connection(self) -> None:
        """One between routers, or an uplink, of which either end may have stopped reading before."""
        pair = self.chance.choice(list(self.connections))
        ends = self.connections[pair]
        if ends is None:
            self.connect(pair)
            return
        if self.chance.random() < 0.5:
            ends[0].is_stuck = ends[1].is_stuck = True
        for _ in range(self.chance.choice((0, 3, 30, 300))):
            self.carry()
        ends[self.chance.randrange(2)].kill()
        self.connections[pair] = None
        totals["connections lost"] += 1

    def make_connection(self) -> None:
        if lost := [pair for pair, ends in self.connections.items() if ends is None]:
            self.connect(self.chance.choice(lost))

    def end_lane(self) -> None:
        """A router ends a session by which large messages come to it."""
        ends = [end for pair in self.connections.values() if pair is not None for end in pair if not end.is_dead]
        lanes: list[tuple[End, Session]] = []
        for end in ends:
            peer = end.router.peer
            if peer is not None and not peer.engine.is_freed:
                lanes += [(end, lane) for lane in peer.engine.sessions.values() if self._is_lane(lane)]
        if lanes:
            end, lane = self.chance.choice(lanes)
            lane.close()
            end.net.work.touched.add(end.net.peer(end).engine)
            end.net.work.finish()
            totals["sessions between routers ended"] += 1

    @staticmethod
    def _is_lane(session: Session) -> bool:
        """Has it links for large messages, on which they come, and no others?"""
        return bool(session.wires) and all(
            isinstance(wire, IncomingWire) and (wire.name.startswith("qdlink.large.") or _is_streaming(wire.core))
            for wire in session.wires.values()
        )

    def serve(self) -> None:
        """The broker comes, goes, or has the use of one of its links."""
        chance = self.chance
        if self.broker is None or self.broker.is_dead or self.broker.router_closed:
            self.broker = self.fleet["C"].client("broker", role="route-container")
            return
        ends = [end for end in self.broker.attached_by_router if self.is_live(end)]
        if chance.random() < 0.1:
            self.broker.kill() if chance.random() < 0.5 else self.broker.close()
        elif ends:
            end = chance.choice(ends)
            if chance.random() < 0.2:
                end.is_detached = True
                end.close() if chance.random() < 0.5 else end.detach()
            elif isinstance(end, Receiver):
                end.flow(10)
            elif end.credit > 0:
                end.send(bytes(chance.choice(self.body_bytes)))

    def use_route(self) -> None:
        chance = self.chance
        if len(self.routed) < 4 or chance.random() < 0.1:
            client = self.client()
            end = client.sender("q.x") if chance.random() < 0.6 else client.receiver("q.x", credit=20, accepts=True)
            self.routed.append((end, client))
            return
        end, client = chance.choice(self.routed)
        if not self.is_live(end) or chance.random() < (0.1 if end.credit > 0 else 0.4):
            self.routed.remove((end, client))
            end.is_detached = True
            chance.choice((client.kill, client.session.close))()
        elif isinstance(end, Receiver):
            end.flow(5)
        elif end.credit > 0:
            self.sent_by_route.append(end.send(bytes(chance.choice(self.body_bytes))))
            totals["messages by link routes"] += 1

    def tick(self) -> None:
        self.fleet.tick()

    def carry(self) -> None:
        for net in self.fleet.nets.values():
            net.carry()

    # The whole

    def live(self, steps: int, *, is_loud: bool) -> None:
        chance = self.chance
        acts, weights = [act for act, _ in STEPS], [weight for _, weight in STEPS]
        for number in range(steps):
            (act,) = chance.choices(acts, weights)
            if is_loud:
                print(f"{number}: {act.__name__}", flush=True)
            act(self)
            totals["steps"] += 1
            pace = chance.random()
            if pace < 0.5:
                self.fleet.pump()
            elif pace < 0.8:
                for _ in range(chance.randrange(1, 8)):
                    self.carry()
            if chance.random() < 0.5:
                self.take(chance.choice((0.5, 1.0)))

    def finish(self) -> None:
        """All is connected and read, and then the receivers go."""
        for sender in list(self.parts):
            self._finish(sender)
        for pair, ends in self.connections.items():
            if ends is None:
                self.connect(pair)
        for net in self.fleet.nets.values():
            for client in net.clients:
                client.resume_reading()
        for _ in range(8):
            self.fleet.pump()
            self.take()
            for receiver in self.receivers:
                if self.is_live(receiver):
                    receiver.flow(50)
            self.fleet.tick()
        for receiver in (*self.receivers, *self.gone):
            receiver.client.kill()
        if self.broker is not None:
            self.broker.kill()
        self.fleet.tick(3)

    def check(self) -> None:
        for sending, body, is_settled in self.sent:
            if is_settled or not self.is_live(sending.sender):
                continue
            outcome = sending.outcome
            told = f"{self.distribution}, {self.sizes[body]} bytes: {sending.updates}"
            assert outcome is not None, f"a message without an outcome: {told}"
            assert outcome in (ACCEPTED, RELEASED, MODIFIED), told
            assert outcome != ACCEPTED or self.accepted[body], f"accepted by nobody: {told}"
        for body, count in self.came.items():
            assert count == 1 or self.distribution == "multicast", f"{body!r} came {count} times"
        for sending in self.sent_by_route:
            if self.is_live(sending.sender):
                assert sending.outcome is not None, f"a message by a link route without an outcome: {sending.updates}"

    def nothing_left(self) -> None:
        for net in self.fleet.nets.values():
            for client in net.peers:
                client.kill()
        self.fleet.pump()
        for net in self.fleet.nets.values():
            net.pump()
            net.no_errors()
            assert not net.core.links, net.core.links
            paying = sum(held for _, held in net.host._paying.values()) if net.host is not None else 0
            held = [(level.kind, level.name, level.held) for level in net.core.budgets.levels() if level.held > paying]
            assert not held, held
            net.clients.clear()


def _is_streaming(core: object) -> bool:
    return isinstance(core, DataInLink) and core.slot is None


STEPS: Final[tuple[tuple[Callable[[Network], None], float], ...]] = (
    (Network.send, 40), (Network.lose_connection, 12), (Network.make_connection, 12), (Network.end_lane, 5),
    (Network.add_receiver, 9), (Network.remove_receiver, 8), (Network.stall_receiver, 4), (Network.add_sender, 4),
    (Network.remove_sender, 2), (Network.serve, 6), (Network.use_route, 16), (Network.tick, 8),
)  # fmt: skip


def run(seed: str, is_loud: bool) -> None:
    """One scenario. Errors: AssertionError, and whatever the routers raise."""
    warnings = rounds.hear_warnings()
    chance = random.Random(seed)
    network = Network(chance)
    network.live(chance.choice((40, 100, 200)), is_loud=is_loud)
    network.finish()
    network.check()
    rounds.no_engine_is_silent(warnings)
    network.nothing_left()


if __name__ == "__main__":
    sys.exit(rounds.main(__doc__, __file__, run, totals))
