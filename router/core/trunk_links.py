"""Links on which a neighbour sends: control messages, each in one piece, and users' messages.

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

# Credit is returned in batches of at least an eighth of the window. Otherwise every message would cost a Flow. A Flow
# costs both routers a write and a read, unless it leaves together with outcomes. It waits for outcomes until half a
# window is used.
_BATCHES: Final = 8
_PATIENT_BATCHES: Final = 2
_HOLDS_CREDIT: Final = OVER_BUDGET | LINK_OVER_BUDGET
TOO_LARGE: Final = Condition(
    name="amqp:link:message-size-exceeded", description="the control message is larger than this router reads"
)


class ControlInLink(InLink):
    """A neighbour's link for control messages.

    on_message  gets each control message. A message of more than `limit` bytes is refused, and not kept
    """

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
        """Holds the link, except if its account is over budget because of users' messages.

        A router whose control messages are not read is taken for gone. Attack: a receiver on another router that
        settles nothing, until the budget of the connection between the routers is full.
        """
        if why != OVER_BUDGET:
            super().hold(why)

    def take(self, delivery: Handle, payload: bytes) -> None:
        self.delivery_count += 1
        take_in_process(self, delivery)
        self.owe()
        self.on_message(payload)


def take_control(link: ControlInLink, _address: None, delivery: Handle, size: int) -> None:
    """Handles a control message that has arrived completely."""
    link.take(delivery, link.work.copy(size))


def begin_control(link: ControlInLink, _address: None, delivery: Handle, size: int) -> None:
    """Begins to read a control message that has arrived in part. It may contain ten thousand addresses."""
    gathering = Gathering(link, delivery, link.work.copy(size))
    link.wire.read_by(gathering)
    gathering.more()


class Gathering:
    """Reads a large control message to its end. The neighbour pays for the bytes held."""

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
                # Attack: a control message without end, which the router holds until it can decode it.
                self._forget()
                if not wire.is_partial(self._delivery):
                    wire.end_message()  # INVARIANT: a settled delivery has no reader
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
        """Drops the parts: the link is gone, and the message with it."""
        self._forget()


class DataInLink(AnonymousInLink):
    """A neighbour's link for users' messages. Credit is returned when a message has arrived, whatever its outcome.

    If credit waited for settlement, one receiver that settles nothing would delay every other address of the network.
    The neighbour's account pays for the bytes that the messages hold meanwhile, and can stop its credit.
    """

    __slots__ = ("arrived", "batch", "most", "slot", "told")
    link_type = "inter-router"
    patience = 2  # the router nearer to the slow client must act first

    def __init__(self, identity: int, wire: IncomingWire, attachment: Connection, work: Work, slot: int | None) -> None:
        super().__init__(identity, wire, attachment, work)
        self.arrived = 0  # messages whose credit has not been returned
        self.batch = attachment.capacity // _BATCHES  # return credit above this if a Flow leaves anyway
        self.most = attachment.capacity // _PATIENT_BATCHES  # return credit above this in any case
        self.told = 0  # the number of outcomes at the last check of the credit
        self.slot = slot

    @property
    def priority(self) -> int:
        return self.slot if self.slot is not None else 4

    def arrive(self, count: int = 1) -> None:
        """Counts messages that have arrived.

        Their credit returns with the next outcomes (`grant_owed`) or separately.
        """
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
        """Returns the credit of arrived messages. Ignores the credit that links of clients get for settled messages."""
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
    """The functions that take messages from a neighbour's data link.

    forward  (link, None, delivery, size), for a complete message in the buffer. Hot
    route    as in AnonymousInLink, for a message that has not arrived completely
    """

    forward: Callable[[DataInLink, None, Handle, int], None]
    route: Callable[[Handle, int], tuple[LiveAddress, int] | None]


def begin_data(link: DataInLink, address: None, delivery: Handle, size: int) -> None:
    """Begins a message that does not arrive in one piece."""
    link.arrive()
    begin_anonymous_stream(link, address, delivery, size)
