"""The life of deliveries as a state machine: links, credit, sends, dispositions, losses and full sockets in any order.

PALISADE_FUZZ_EXAMPLES  how many histories (default 60)
"""

import os
from typing import Any, ClassVar

import proton
import pytest
from cproton_ffi import lib
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from memory_net import ACCEPTED, MODIFIED, REJECTED, RELEASED, Client, Net, Receiver, Sender, Sending, encoded

from router.core.in_links import InLink
from router.core.out_links import OCCUPIED, OutLink

EXAMPLES = int(os.environ.get("PALISADE_FUZZ_EXAMPLES", "60"))
CAPACITY = 8
STATES = (ACCEPTED, REJECTED, RELEASED, MODIFIED)
LARGE = 150_000


class Tracked:
    """One unsettled message and what the test knows of it."""

    def __init__(self, sending: Sending, body: bytes) -> None:
        self.sending = sending
        self.body = body
        self.gave_up = False  # the sender settled it, aborted it or is gone


class Deliveries(RuleBasedStateMachine):
    TERMS: ClassVar[dict[str, Any]] = {}  # further ones of the router

    @initialize(
        distribution=st.sampled_from(["balanced", "closest", "multicast"]),
        is_anonymous=st.booleans(),
        receivers=st.integers(1, 3),
    )
    def start(self, distribution: str, is_anonymous: bool, receivers: int) -> None:
        self.net = Net({"a": distribution}, capacity=CAPACITY, session_bytes=1 << 20, **self.TERMS)
        self.target = None if is_anonymous else "a"
        self.tracked: list[Tracked] = []
        self.accepted: set[bytes] = set()  # bodies some receiver accepted, or was sent settled
        self.senders: list[Sender] = []
        self.receivers: list[Receiver] = []
        self.streams: dict[Sender, tuple[Tracked, int]] = {}
        self.number = 0
        self.pauses: list[Client] = []
        for _ in range(2):
            self.new_sender()
        for _ in range(receivers):
            self.attach(credit=3, wants_settled=False, accepts=False)
        self.net.pump()

    def new_sender(self) -> None:
        self.senders.append(self.net.client().sender(self.target))
        self.net.pump()

    def body(self, size: int) -> bytes:
        self.number += 1
        return b"%08d" % self.number + bytes(size)

    # Receivers

    @rule(credit=st.integers(0, 6), wants_settled=st.booleans(), accepts=st.booleans())
    def attach(self, credit: int, wants_settled: bool, accepts: bool) -> None:
        if len(self.receivers) >= 4:
            return
        terms = {"snd_settle_mode": proton.Link.SND_SETTLED} if wants_settled else {}
        receiver = self.net.client().receiver("a", credit=credit, accepts=accepts, **terms)
        self.receivers.append(receiver)
        self.net.pump()

    @rule(which=st.integers(0, 9), how=st.sampled_from(["kill", "detach", "close", "end", "leave"]))
    def lose_receiver(self, which: int, how: str) -> None:
        if not self.receivers:
            return
        receiver = self.receivers.pop(which % len(self.receivers))
        self.unpause(receiver.client)
        if receiver.link.snd_settle_mode == proton.Link.SND_SETTLED:
            self.net.pump()  # what is written to it counts as accepted, whether it reads it or not
        self.note_accepted(receiver)
        if how == "kill":
            receiver.client.kill()
        elif how == "end":
            assert receiver.client.session is not None
            receiver.client.session.close()
        elif how == "leave":
            receiver.client.close()
        else:
            getattr(receiver, how)()
        self.net.pump()
        self.note_accepted(receiver)

    @rule(which=st.integers(0, 9), credit=st.integers(1, 6), drains=st.booleans())
    def give_credit(self, which: int, credit: int, drains: bool) -> None:
        if not self.receivers:
            return
        receiver = self.receivers[which % len(self.receivers)]
        if drains:
            receiver.drain(credit)
        else:
            receiver.flow(credit)
        self.net.pump()

    @rule(
        which=st.integers(0, 9),
        item=st.integers(0, 9),
        state=st.sampled_from(STATES),
        is_settled=st.booleans(),
    )
    def dispose(self, which: int, item: int, state: int, is_settled: bool) -> None:
        if not self.receivers:
            return
        receiver = self.receivers[which % len(self.receivers)]
        if receiver.link.snd_settle_mode == proton.Link.SND_SETTLED:
            return  # its messages are accepted when they are written; what it says of them is nobody's business
        open_items = [each for each in receiver.received if not each.is_settled_here and not each.is_aborted]
        if not open_items:
            return
        each = open_items[item % len(open_items)]
        if state == ACCEPTED:
            self.accepted.add(body_of(each.payload))
        each.give(state, is_settled=is_settled)
        self.net.pump()

    @rule(which=st.integers(0, 9))
    def pause(self, which: int) -> None:
        if not self.receivers:
            return
        client = self.receivers[which % len(self.receivers)].client
        if client in self.pauses:
            return
        self.pauses.append(client)
        client.stop_reading()
        client.router.set_blocked(True)
        self.net.work.finish()
        self.net.pump()

    @rule()
    def unpause_one(self) -> None:
        if not self.pauses:
            return
        self.unpause(self.pauses[0])
        self.net.pump()

    def unpause(self, client: Client) -> None:
        if client in self.pauses:
            self.pauses.remove(client)
            client.resume_reading()
            client.router.set_blocked(False)
            self.net.work.finish()

    # Senders

    @rule(which=st.integers(0, 1), count=st.integers(1, 4), is_settled=st.booleans(), is_large=st.booleans())
    def send(self, which: int, count: int, is_settled: bool, is_large: bool) -> None:
        sender = self.senders[which]
        for _ in range(count):
            if sender.credit <= 0 or sender in self.streams:
                break
            body = self.body(LARGE if is_large else 10)
            sending = sender.send(body, address="a", is_settled=is_settled)
            if not is_settled:
                self.tracked.append(Tracked(sending, body[:8]))
        self.net.pump()

    @rule(which=st.integers(0, 1))
    def begin(self, which: int) -> None:
        sender = self.senders[which]
        if sender.credit <= 0 or sender in self.streams:
            return
        body = self.body(3 * LARGE)
        payload = encoded(body, address="a")
        tracked = Tracked(sender.start(), body[:8])
        sender.append(payload[:LARGE])
        self.tracked.append(tracked)
        self.streams[sender] = (tracked, len(payload) - LARGE)
        self.net.pump()

    @rule(how=st.sampled_from(["append", "finish", "abort"]))
    def go_on(self, how: str) -> None:
        if not self.streams:
            return
        sender, (tracked, left) = next(iter(self.streams.items()))
        if how == "abort":
            tracked.gave_up = True
            del self.streams[sender]
            if not tracked.sending.is_settled_here:
                tracked.sending.abort()
            else:
                sender.finish()
        else:
            size = left if how == "finish" else min(left, LARGE // 2)
            sender.append(bytes(size))
            if size == left:
                del self.streams[sender]
                sender.finish()
            else:
                self.streams[sender] = (tracked, left - size)
        self.net.pump()

    @rule(which=st.integers(0, 99))
    def settle_first(self, which: int) -> None:
        if not self.tracked:
            return
        tracked = self.tracked[which % len(self.tracked)]
        if any(tracked is streamed for streamed, _ in self.streams.values()) or tracked.gave_up:
            return
        if not tracked.sending.is_settled_here:
            tracked.gave_up = True
            tracked.sending.settle()
            self.net.pump()

    @rule(which=st.integers(0, 1), how=st.sampled_from(["kill", "close", "detach"]))
    def lose_sender(self, which: int, how: str) -> None:
        sender = self.senders.pop(which)
        self.streams.pop(sender, None)
        for tracked in self.tracked:
            if tracked.sending.sender is sender:
                tracked.gave_up = True
        if how == "kill":
            sender.client.kill()
        else:
            getattr(sender, how)()
        self.net.pump()
        self.new_sender()

    # What always holds

    @invariant()
    def books_balance(self) -> None:
        if not hasattr(self, "net"):
            return
        self.net.no_errors()
        work = self.net.work
        assert not work.refill
        assert not work.touched
        assert not work.resumable
        for link in self.net.core.links.values():
            if isinstance(link, OutLink):
                occupied = OCCUPIED if link.leg is not None else 0
                assert link.load == len(link.queue) + len(link.unsettled) + occupied
                assert not (link.room and (link.queue or link.leg is not None))
                assert link.room <= max(link.wire.credit, 0)
            else:
                self.check_sender(link)

    def check_sender(self, link: InLink) -> None:
        assert link.wire.credit >= 0
        assert link.owed == 0
        wire: Any = link.wire  # the engine's own
        unread = lib.pn_link_queued(wire.link)  # counted as credit still, and as unsettled already
        assert link.wire.credit - unread + link.wire.unsettled_count + link.credit_withheld <= CAPACITY

    @invariant()
    def nobody_is_told_twice(self) -> None:
        for tracked in getattr(self, "tracked", ()):
            finals = [update for update in tracked.sending.updates if update.is_settled]
            assert len(finals) <= 1

    def note_accepted(self, receiver: Receiver) -> None:
        """What it accepted by itself or was sent settled counts as accepted."""
        for item in receiver.received:
            if item.is_complete and not item.is_aborted and (receiver.accepts or item.came_settled):
                self.accepted.add(body_of(item.payload))

    def teardown(self) -> None:
        if not hasattr(self, "net"):
            return
        for client in list(self.pauses):
            self.unpause(client)
        for sender, (_, left) in list(self.streams.items()):
            sender.append(bytes(left))
            sender.finish()
        self.net.pump()
        for receiver in self.receivers:
            receiver.flow(5)
            self.net.pump()
            for item in receiver.complete:
                if not item.is_settled_here:
                    self.accepted.add(body_of(item.payload))
                    item.accept()
            self.net.pump()
        while self.receivers:
            self.lose_receiver(0, "kill")
        for tracked in self.tracked:
            outcome = tracked.sending.outcome
            if tracked.gave_up:
                continue
            assert outcome in STATES or outcome == 0, tracked.body
            if outcome == ACCEPTED:
                assert tracked.body in self.accepted
        for sender in self.senders:
            if self.target is None:
                assert sender.credit == CAPACITY
        self.books_balance()
        self.net.nothing_left()


def body_of(payload: bytearray) -> bytes:
    """The number that a (perhaps cut) message's body begins with."""
    for kind, width in ((b"\x00\x53\x75\xa0", 5), (b"\x00\x53\x75\xb0", 8)):
        at = payload.find(kind)
        if at >= 0:
            return bytes(payload[at + width : at + width + 8])
    return b""


TestDeliveries: Any = pytest.mark.slow(Deliveries.TestCase)
TestDeliveries.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
