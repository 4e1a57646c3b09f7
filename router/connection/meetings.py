"""Who is told of whom: members that wait at a place, and connections that come there and go.

Members are auto links or link routes. Thousands may wait at one place: they meet a connection, and part from it, in
turns, and messages are routed in between. Whatever is added, removed or lost meanwhile, each pair that meets parts
once.
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
    """_here     by place, the connections that are there, and the members that each has met
    _leaving  the same of those that are gone and have members to part from
    """

    def __init__(self, work: Work, met: Callable[[M, V], None], parted: Callable[[M, V, bool], None]) -> None:
        """met     a member meets a connection, which is there
        parted  (member, connection, is the connection gone?): they had met
        """
        self._work = work
        self._on_met = met
        self._on_parted = parted
        self._members: dict[Hashable, dict[M, None]] = {}
        self._here: dict[Hashable, dict[V, dict[M, None]]] = {}
        self._leaving: dict[Hashable, dict[V, dict[M, None]]] = {}

    def add(self, member: M, place: Hashable) -> None:
        """It waits at one place."""
        self._members.setdefault(place, {})[member] = None
        for visitor, met in list(self._here.get(place, {}).items()):
            self._meet(member, visitor, met)

    def remove(self, member: M, place: Hashable) -> None:
        _discard(self._members, place, member)
        for group in (self._here, self._leaving):
            for visitor, met in list(group.get(place, {}).items()):
                self._part(member, visitor, met, is_gone=group is self._leaving)

    def has_met(self, member: M, place: Hashable) -> bool:
        """Has it met a connection that is there?"""
        return any(member in met for met in self._here.get(place, {}).values())

    def opened(self, visitor: V) -> None:
        """A connection is there. Call once for each."""
        for place in visitor.places:
            self._here.setdefault(place, {})[visitor] = {}
        self._work.begin(self._meeting(visitor, visitor.places))

    def lost(self, visitor: V) -> None:
        """A connection is gone, if it was there: it meets no one any more."""
        for place in visitor.places:
            met = _discard(self._here, place, visitor)
            if met:
                self._leaving.setdefault(place, {})[visitor] = met
        self._work.begin(self._parting(visitor, visitor.places))

    def _meeting(self, visitor: V, places: tuple[Hashable, ...]) -> Iterator[None]:
        """Ends when the connection is gone. Attack: one that comes and goes, over and over, leaves no work behind but
        to part from whom it has met.
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
