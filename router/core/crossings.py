"""Messages on their way to another router. They are counted until they have their outcome.

Source: docs/spec/network.md §10.3.
"""

from collections.abc import Callable, Iterator

from router.core.in_links import InLink
from router.core.links import Counted, Origin
from router.core.ways import Way
from router.core.weights import COPIES, Held
from router.values import Handle


def crossing_of(link: InLink, ways: dict[int, Way], tag: int) -> Counted:
    """Returns the origin of a link's messages that leave by a connection. Consecutive messages share one origin.

    ways  of their address
    tag   of the connection
    """
    way = ways.get(tag)
    if way is None:
        way = ways[tag] = Way(link.attachment.account.limits.link)
    crossing = link.crossing
    if crossing is None or crossing.way is not way:
        crossing = link.crossing = Crossing(link, way)
    return crossing


class Crossing:
    """The origin of messages that have left. Each message has one outcome, which ends its count."""

    __slots__ = ("link", "way")

    def __init__(self, link: InLink, way: Way) -> None:
        self.link = link
        self.way = way

    @property
    def sender(self) -> InLink:
        return self.link

    def on_accepted(self, source: Handle, since_s: int) -> None:
        self.way.leave()
        self.link.on_accepted(source, since_s)

    def on_outcome(self, source: Handle, since_s: int, state: int, outgoing: Handle) -> None:
        self.way.leave()
        self.link.on_outcome(source, since_s, state, outgoing)

    def on_progress(self, source: Handle, state: int, outgoing: Handle, settle: Callable[[Handle], None]) -> None:
        self.link.on_progress(source, state, outgoing, settle)

    def on_lost(self, source: Handle, since_s: int, *, was_sent: bool) -> None:
        self.way.leave()
        self.link.on_lost(source, since_s, was_sent=was_sent)

    def forgo(self, state: int, since_s: int) -> None:
        self.way.leave()
        self.link.forgo(state, since_s)


class CrossingWeights:
    """The bytes of large messages that are on their way to another router by one link. Their senders pay for them."""

    __slots__ = ("_on_their_way", "_unsettled")

    def __init__(self, unsettled: dict[Handle, tuple[Origin, Handle, int]]) -> None:
        """Sets up an empty account of bytes.

        unsettled  the unsettled deliveries of the link
        """
        self._unsettled = unsettled
        self._on_their_way: dict[Handle, tuple[Held, Way | None, int]] = {}

    def add(self, outgoing: Handle, size: int) -> None:
        """Charges for a message of `size` bytes that is on its way. Its record already exists."""
        origin = self._unsettled[outgoing][0]
        sender = origin.sender
        assert isinstance(sender, InLink)
        size *= COPIES
        payer = sender.on_its_way
        if payer is None:
            payer = sender.on_its_way = Held(sender.charge)
        held = payer.held = payer.held + size
        if held > payer.charged:
            payer.charge()
        way = None
        if isinstance(origin, Crossing):
            way = origin.way
            way.add(size, sender)
        self._on_their_way[outgoing] = payer, way, size

    def drop(self, outgoing: Handle) -> None:
        """Returns the charge of a settled message. Does nothing for a small message."""
        entry = self._on_their_way.pop(outgoing, None)
        if entry is not None:
            payer, way, size = entry
            held = payer.held = payer.held - size
            if held * 2 <= payer.charged:
                payer.charge()
            if way is not None:
                way.drop(size)

    def clearing(self) -> Iterator[None]:
        """Returns all charges of a link that is gone, one in each step."""
        for outgoing in list(self._on_their_way):
            self.drop(outgoing)
            yield
