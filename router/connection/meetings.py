"""Matches auto links and link routes with the connections they are configured for.

A member is an auto link or a link route. Thousands may wait at one place. They meet a connection, and part from it, in
turns, and messages are routed in between. Members and connections may come and go at any time: each pair that meets
parts exactly once.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, Protocol, TypeVar

from router.core.work import Work


class Visitor(Protocol):
    """A connection."""

    @property
    def places(self) -> tuple[Hashable, ...]: ...


M = TypeVar("M", bound=Hashable)
V = TypeVar("V", bound=Visitor)
K = TypeVar("K")
T = TypeVar("T")


class Meetings(Generic[M, V]):
    """Matches members with the connections at their places.

    _here     by place: the present connections, and the members that each has met
    _leaving  the same for connections that are gone and still have members to part from
    """

    def __init__(self, work: Work, met: Callable[[M, V], None], parted: Callable[[M, V, bool], None]) -> None:
        """met     called when a member meets a present connection
        parted  (member, connection, is the connection gone?): called when a pair parts that had met
        """
        self._work = work
        self._on_met = met
        self._on_parted = parted
        self._members: dict[Hashable, dict[M, None]] = {}
        self._here: dict[Hashable, dict[V, dict[M, None]]] = {}
        self._leaving: dict[Hashable, dict[V, dict[M, None]]] = {}

    def add(self, member: M, place: Hashable) -> None:
        """Adds a member that waits at one place."""
        self._members.setdefault(place, {})[member] = None
        for visitor, met in list(self._here.get(place, {}).items()):
            self._meet(member, visitor, met)

    def remove(self, member: M, place: Hashable) -> None:
        _discard(self._members, place, member)
        for group in (self._here, self._leaving):
            for visitor, met in list(group.get(place, {}).items()):
                self._part(member, visitor, met, is_gone=group is self._leaving)

    def has_met(self, member: M, place: Hashable) -> bool:
        """Returns True if the member has met a present connection."""
        return any(member in met for met in self._here.get(place, {}).values())

    def opened(self, visitor: V) -> None:
        """Announces a present connection. Called once for each connection."""
        for place in visitor.places:
            self._here.setdefault(place, {})[visitor] = {}
        self._work.begin(self._meeting(visitor, visitor.places))

    def lost(self, visitor: V) -> None:
        """Removes a connection that is gone. It meets no more members."""
        for place in visitor.places:
            met = _discard(self._here, place, visitor)
            if met:
                self._leaving.setdefault(place, {})[visitor] = met
        self._work.begin(self._parting(visitor, visitor.places))

    def _meeting(self, visitor: V, places: tuple[Hashable, ...]) -> Iterator[None]:
        """Meets the members in turns; ends when the connection is gone.

        Attack: a connection comes and goes again and again. It leaves no work except to part from members that it has
        met.
        """
        for place in places:
            for member in list(self._members.get(place, ())):
                met = self._here.get(place, {}).get(visitor)
                if met is None:
                    return
                if member in self._members.get(place, ()):
                    self._meet(member, visitor, met)
                yield

    def _parting(self, visitor: V, places: tuple[Hashable, ...]) -> Iterator[None]:
        for place in places:
            met = self._leaving.get(place, {}).get(visitor, {})
            for member in list(met):
                self._part(member, visitor, met, is_gone=True)
                yield
            _discard(self._leaving, place, visitor)

    def _meet(self, member: M, visitor: V, met: dict[M, None]) -> None:
        if member not in met:
            met[member] = None
            self._on_met(member, visitor)

    def _part(self, member: M, visitor: V, met: dict[M, None], *, is_gone: bool) -> None:
        if member in met:
            del met[member]
            self._on_parted(member, visitor, is_gone)


def _discard(index: dict[Hashable, dict[K, T]], place: Hashable, member: K) -> T | None:
    members = index.get(place, {})
    found = members.pop(member, None)
    if not members:
        index.pop(place, None)
    return found
