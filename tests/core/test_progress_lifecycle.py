"""The life of deliveries while time passes: messages that stall, receivers that take nothing, and everything else.

PALISADE_FUZZ_EXAMPLES  how many histories of the slow run (default 60)
"""

from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from test_delivery_lifecycle import EXAMPLES, Deliveries

from router.core.progress import MIN_BYTES_PER_S
from router.core.streams import Stream

TIMEOUT_S = 4
PIECE = 2 * MIN_BYTES_PER_S
# Until what stalls is noticed at the latest.
NOTICED_S = TIMEOUT_S * 1.25 + 2


class Progressing(Deliveries):
    TERMS: ClassVar[dict[str, Any]] = {"progress_s": TIMEOUT_S, "idle_timeout_s": 0}

    @rule(seconds=st.sampled_from([1, 3, TIMEOUT_S, NOTICED_S]), goes_on=st.booleans())
    def pass_time(self, seconds: float, goes_on: bool) -> None:
        """goes_on  senders say more of their messages meanwhile"""
        for receiver in self.receivers:
            self.note_accepted(receiver)
        for _ in range(round(seconds)):
            for sender, (tracked, left) in self.streams.items() if goes_on else ():
                if left > PIECE and not sender.is_detached:
                    sender.append(bytes(PIECE))
                    self.streams[sender] = (tracked, left - PIECE)
            self.net.advance(1, step=1)
        for receiver in self.receivers:
            self.note_accepted(receiver)
        for receiver in list(self.receivers):
            # One that does not read has not heard of it.
            if receiver.link not in self.attached():
                self.receivers.remove(receiver)
                self.unpause(receiver.client)
        for sender in list(self.senders):
            if sender.is_detached:
                assert sender in self.streams  # nobody's whole messages are given up
                self.streams.pop(sender)
                self.senders.remove(sender)
                for tracked in self.tracked:
                    if tracked.sending.sender is sender:
                        tracked.gave_up = True
                self.new_sender()
        self.net.pump()

    @rule(which=st.integers(0, 1), reads=st.booleans())
    def begin_to_one_that_stalls(self, which: int, reads: bool) -> None:
        """A message begins, and one of its receivers takes nothing."""
        if not reads:
            self.pause(which)
        self.begin(which)
        if reads:
            self.pause(which)
        self.go_on("append")
        self.pass_time(NOTICED_S, goes_on=True)

    def attached(self) -> set[Any]:
        """The links of the test that are open at the router."""
        open_links = {(link.attachment.connection_id, link.name) for link in self.net.core.links.values()}
        ends = [*self.receivers, *self.senders]
        return {end.link for end in ends if (end.client.router.connection_id, end.link.name) in open_links}

    @rule()
    def stand_still(self) -> None:
        """Nobody does anything for long enough: no message under way is in anybody's way."""
        self.pass_time(NOTICED_S, goes_on=False)
        self.pass_time(NOTICED_S, goes_on=False)
        for sender in self.streams:
            assert sender.link in self.attached()
        for link in self.net.core.links.values():
            reader = getattr(link.wire, "reader", None)
            if isinstance(reader, Stream):
                # It waits for credit, and so does everybody it goes to: else it would have been given up.
                assert all(leg.handle is None and leg.holds_back for leg in reader.live_legs)

    @invariant()
    def the_rejected_are_those_that_stalled(self) -> None:
        if not hasattr(self, "net"):
            return
        told = [event for event in self.net.audits if event["reason"].startswith("message_")]
        assert len(told) == self.net.progress.messages_given_up
        told = [event for event in self.net.audits if event["reason"] == "receiver_stalled"]
        assert len(told) == self.net.progress.receivers_given_up


TestProgressing: Any = Progressing.TestCase
TestProgressing.settings = settings(
    max_examples=12,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


class _Long(Progressing):
    """The same machine, for longer."""


TestProgressingForLonger: Any = pytest.mark.slow(_Long.TestCase)
TestProgressingForLonger.settings = settings(TestProgressing.settings, max_examples=EXAMPLES)
