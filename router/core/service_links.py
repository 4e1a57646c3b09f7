"""Links that end in the router itself: between an edge and the services of its interior, in both directions."""

from collections.abc import Callable
from typing import Literal

from router.core.forward import give_copy
from router.core.in_links import take_in_process
from router.core.links import Connection
from router.core.out_links import OutLink
from router.core.ports import IncomingWire, OutgoingWire
from router.core.trunk_links import TOO_LARGE, ControlInLink
from router.core.work import Work
from router.values import Condition, Handle

Judge = Callable[[bytes], Condition | Literal[True] | None]


class ServiceInLink(ControlInLink):
    """judge  gets each message; returns why it is rejected, or True where its credit returns with the answer"""

    __slots__ = ("judge",)
    link_type = "endpoint"

    def __init__(
        self,
        identity: int,
        wire: IncomingWire,
        attachment: Connection,
        work: Work,
        judge: Judge,
        limit: int,
    ) -> None:
        """limit  bytes of a message: a longer one is rejected, and not held while it comes"""
        super().__init__(identity, wire, attachment, work, _taken, limit)
        self.judge = judge

    @property
    def priority(self) -> int:
        return 4

    def take(self, delivery: Handle, payload: bytes) -> None:
        # `Gathering` looks at the limit as parts come, and never at a message that comes in one.
        judged = TOO_LARGE if len(payload) > self.limit else self.judge(payload)
        if not self.is_open:
            return
        if isinstance(judged, Condition):
            self.refuse(delivery, judged)
            return
        self.delivery_count += 1
        take_in_process(self, delivery)
        if not judged:
            self.owe()


def _taken(_payload: bytes) -> None:
    """`judge` has had it."""


class ServiceOutLink(OutLink):
    """on_room  gets how many messages more may be sent, whenever the peer has given credit"""

    __slots__ = ("on_room",)
    waits_for_others = False  # an edge whose heart is not heard is dropped

    def __init__(
        self, identity: int, wire: OutgoingWire, attachment: Connection, work: Work, on_room: Callable[[int], None]
    ) -> None:
        super().__init__(identity, wire, attachment, work)
        self.on_room = on_room

    def on_credit(self) -> None:
        super().on_credit()
        if self.is_open:
            self.on_room(max(self.wire.credit - len(self.queue), 0))

    def give(self, payload: bytes, *, is_settled: bool) -> None:
        give_copy(None, self, None, self.work.now_s, payload, is_settled=is_settled)


class DownOutLink(OutLink):
    """By which an edge gets what is for itself."""

    __slots__ = ()
    link_type = "edge-downlink"
