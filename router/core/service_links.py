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
    """A link on which the router receives messages for a service.

    judge  gets each message. Returns why it is rejected, or True if its credit returns with the answer
    """

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
        """Sets the limit.

        limit  bytes of a message. A longer one is rejected, and not kept while it arrives
        """
        super().__init__(identity, wire, attachment, work, _taken, limit)
        self.judge = judge

    @property
    def priority(self) -> int:
        return 4

    def take(self, delivery: Handle, payload: bytes) -> None:
        # `Gathering` checks the limit as parts arrive, but never for a message that arrives in one piece.
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
    """Does nothing: `judge` has already had the message."""


class ServiceOutLink(OutLink):
    """A link on which the router sends messages of a service.

    on_room  gets the number of further messages that may be sent, whenever the peer has given credit
    """

    __slots__ = ("on_room",)
    waits_for_others = False  # an edge is dropped if its heartbeats do not arrive

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
    """The link by which an edge gets messages for itself."""

    __slots__ = ()
    link_type = "edge-downlink"
