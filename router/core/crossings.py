"""Balanced messages on their way to another router, which are counted until they have their outcome.

Source: docs/spec/network.md §10.3.
"""

from collections.abc import Callable

from router.core.in_links import InLink
from router.core.links import Counted, Way
from router.values import Handle


def crossing_of(link: InLink, ways: dict[int, Way], tag: int) -> Counted:
    """The origin of a link's messages that leave by a connection: one for many, since most are alike.

    ways  of their address
    tag   of the connection
    """
    way = ways.setdefault(tag, Way())
    crossing = link.crossing
    if crossing is None or crossing.way is not way:
        crossing = link.crossing = Crossing(link, way)
    return crossing


class Crossing:
    """The origin of messages that have left. Each has one outcome: who gives it ends the count."""

    __slots__ = ("link", "way")

    def __init__(self, link: InLink, way: Way) -> None:
        self.link = link
        self.way = way

    @property
    def sender(self) -> InLink:
        return self.link

    def on_accepted(self, source: Handle, since_s: int) -> None:
        self.way.count -= 1
        self.link.on_accepted(source, since_s)

    def on_outcome(self, source: Handle, since_s: int, state: int, outgoing: Handle) -> None:
        self.way.count -= 1
        self.link.on_outcome(source, since_s, state, outgoing)

    def on_progress(self, source: Handle, state: int, outgoing: Handle, settle: Callable[[Handle], None]) -> None:
        self.link.on_progress(source, state, outgoing, settle)

    def on_lost(self, source: Handle, since_s: int, *, was_sent: bool) -> None:
        self.way.count -= 1
        self.link.on_lost(source, since_s, was_sent=was_sent)

    def forgo(self, state: int, since_s: int) -> None:
        self.way.count -= 1
        self.link.forgo(state, since_s)
