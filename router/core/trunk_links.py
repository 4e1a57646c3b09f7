"""Links on which a neighbour sends: control messages in one piece, and users' messages.

Source: docs/spec/network.md §4.2, §10.2.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from router.core.addresses import LiveAddress
from router.core.in_links import LINK_OVER_BUDGET, OVER_BUDGET, InLink, take_in_process
from router.core.links import Connection
from router.core.ports import IncomingWire
from router.core.selection import AnonymousInLink
from router.core.streams import begin_anonymous_stream
from router.core.work import Work
from router.values import Condition, Handle

# Credit returns for an eighth of the window at least: for each message by itself, every message would cost a Flow.
# A Flow costs both routers a write and a read, unless it leaves with outcomes: it waits for some, up to half a window.
_BATCHES: Final = 8
_PATIENT_BATCHES: Final = 2
_HOLDS_CREDIT: Final = OVER_BUDGET | LINK_OVER_BUDGET
TOO_LARGE: Final = Condition(
    name="amqp:link:message-size-exceeded", description="the control message is larger than this router reads"
)


class ControlInLink(InLink):
    """on_message  gets each control message; one of more than `limit` bytes is never held, and never comes."""

    __slots__ = ("limit", "on_message")
    link_type = "router-control"

    def __init__(
        self,
        identity: int,
        wire: IncomingWire,
        attachment: Connection,
        work: Work,
        on_message: Callable[[bytes], None],
        limit: int,
    ) -> None:
        super().__init__(identity, wire, attachment, work)
        self.on_message = on_message
        self.limit = limit

    @property
    def priority(self) -> int:
        return 9

    def hold(self, why: int) -> None:
        """Not for what users' messages hold: a router that is not heard is taken for gone.

        Attack: a receiver on another router that settles nothing, until the budget of the connection between is full.
        """
        if why != OVER_BUDGET:
            super().hold(why)

    def take(self, delivery: Handle, payload: bytes) -> None:
        self.delivery_count += 1
        take_in_process(self, delivery)
        self.owe()
        self.on_message(payload)


def take_control(link: ControlInLink, _address: None, delivery: Handle, size: int) -> None:
    """A control message has come whole."""
    link.take(delivery, link.work.copy(size))


def begin_control(link: ControlInLink, _address: None, delivery: Handle, size: int) -> None:
    """One has come in part: perhaps ten thousand addresses."""
    gathering = Gathering(link, delivery, link.work.copy(size))
    link.wire.read_by(gathering)
    gathering.more()


class Gathering:
    """Reads a large control message to its end. What it holds is charged to the neighbour."""

    __slots__ = ("_delivery", "_link", "_parts", "received")

    def __init__(self, link: ControlInLink, delivery: Handle, first: bytes) -> None:
        self._link = link
        self._delivery = delivery
        self._parts = [first]
        self.received = len(first)
        link.charge(self.received)

    def more(self) -> None:
        link, wire = self._link, self._link.wire
        if wire.is_aborted(self._delivery):
            self._forget()
            wire.settle(self._delivery)
            wire.end_stream()
            link.owe()
            return
        while size := wire.read():
            if self.received + size > link.limit:
                # Attack: a control message without end, held to be decoded.
                self._forget()
                if not wire.is_partial(self._delivery):
                    wire.end_message()  # INVARIANT: nobody reads a delivery that is settled
                link.refuse(self._delivery, TOO_LARGE)
                return
            self._parts.append(link.work.copy(size))
            self.received += size
            link.charge(size)
        if not wire.is_partial(self._delivery):
            payload = b"".join(self._parts)
            self._forget()
            wire.end_message()
            link.take(self._delivery, payload)

    hurry = more

    def _forget(self) -> None:
        self._link.charge(-sum(map(len, self._parts)))
        self._parts.clear()

    def abort(self) -> None:
        """The link is gone, and the message with it."""
        self._forget()


class DataInLink(AnonymousInLink):
    """Users' messages of a neighbour. Its credit returns when a message has come, whatever becomes of that.

    Tied to settlement, one receiver that settles nothing would hold up every other address of the network. What the
    messages hold meanwhile is charged to the neighbour's account, and stops its credit.
    """

    __slots__ = ("arrived", "batch", "most", "slot", "told")
    link_type = "inter-router"
    patience = 2  # the router nearer to whom it waits for is to act first

    def __init__(self, identity: int, wire: IncomingWire, attachment: Connection, work: Work, slot: int | None) -> None:
        super().__init__(identity, wire, attachment, work)
        self.arrived = 0  # messages for which credit has not returned
        self.batch = attachment.capacity // _BATCHES  # so many wait where a Flow leaves anyhow
        self.most = attachment.capacity // _PATIENT_BATCHES  # so many wait at most
        self.told = 0  # outcomes, when credit was last looked at
        self.slot = slot

    @property
    def priority(self) -> int:
        return self.slot if self.slot is not None else 4

    def arrive(self, count: int = 1) -> None:
        """So many messages have come whose credit returns, with the next outcomes (`grant_owed`) or by itself."""
        self.arrived += count
        if self.arrived > self.most and not self.owed:
            self.work.refill.append(self)
            self.work.touched.add(self.engine)
            self.owed = 1

    def on_aborted(self) -> None:
        self.passed_over += 1
        self.arrive()

    def on_drained(self, credit: int) -> None:
        self.arrived += credit
        self.owe(0)

    def grant_owed(self) -> None:
        """What links of clients are owed for settled messages is nothing here."""
        self.owed = 0
        if not self.is_open:
            return
        told = self.accepted + self.rejected + self.released + self.modified
        least = self.batch if told != self.told else self.most
        self.told = told
        credit = 0
        if self.arrived > least:
            credit, self.arrived = self.arrived, 0
        if self.wire.credit + credit < 0:
            if self.on_over_credit is not None:
                self.on_over_credit()
        elif self.holds & _HOLDS_CREDIT:
            self.credit_withheld += credit
        elif credit:
            self.grant(credit)
            self.work.touched.add(self.engine)


class Passage(NamedTuple):
    """The way of the messages of a neighbour's data link.

    forward  (link, None, delivery, size), for one that stands in the buffer, whole. Hot
    route    as of AnonymousInLink, for one that has not come whole
    """

    forward: Callable[[DataInLink, None, Handle, int], None]
    route: Callable[[Handle, int], tuple[LiveAddress, int] | None]


def begin_data(link: DataInLink, address: None, delivery: Handle, size: int) -> None:
    """A message that does not come in one piece."""
    link.arrive()
    begin_anonymous_stream(link, address, delivery, size)
