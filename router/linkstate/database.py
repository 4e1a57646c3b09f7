"""The other known routers, and their reported links.

There is room for the protocol's maximum of routers. Each router counts for the link that announced it first. If there
is no room, a new router can replace another one. This happens if its link has announced fewer routers than the link
with most: the newest router of that link is replaced. So a neighbour that invents routers displaces only routers that
it announced itself. Source: docs/spec/network.md §7.2, §7.5.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from router.linkstate.asking import Asking
from router.linkstate.effects import RouterRow
from router.linkstate.limits import MAX_ROUTERS

# The number of ticks after which a router is forgotten, if it has no link state, no link, and no router names it.
ORPHAN_TICKS = 3
# The number of consecutive advertisements with a lower sequence than the stored one. One may be late. Attack: a forged
# update with a huge sequence, after which the router's own updates would never be newer.
LOWER_ADVERTISEMENTS = 2


@dataclass(slots=True)
class Record:
    """A known router.

    told_by       the link that announced it first
    peers         its link state, never changed in place; ls_seq is its sequence, 0: none
    confirmed_at  the time of its last advertisement or update; None: never
    asking        the request for its link state
    is_owed       True if it requested this router's link state, and could not be reached
    via           the neighbour that messages to it go to; None: it cannot be reached
    next_hop, cost, valid_origins  see RouterRow
    shown         the row as it was last given out
    """

    id: str
    index: int
    told_by: int
    order: int
    version: int = 1
    instance: int | None = None
    peers: Mapping[str, int] = field(default_factory=dict)
    ls_seq: int = 0
    confirmed_at: float | None = None
    lower: int = 0
    asking: Asking = field(default_factory=lambda: Asking(is_wanted=True))
    is_owed: bool = False
    orphan_ticks: int = 0
    via: str | None = None
    next_hop: str | None = None
    cost: int | None = None
    valid_origins: tuple[str, ...] | None = None
    shown: RouterRow | None = None

    def forget_state(self) -> None:
        self.peers, self.ls_seq, self.lower = {}, 0, 0

    def compare_sequence(self, advertised: int) -> None:
        """Forgets the stored sequence if the router itself repeatedly advertises a lower one."""
        self.lower = self.lower + 1 if advertised < self.ls_seq else 0
        if self.lower >= LOWER_ADVERTISEMENTS:
            self.ls_seq = self.lower = 0


class Database:
    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self._order = 0

    def add(self, router: str, told_by: int) -> Record:
        """Makes a record. The caller must check that there is room."""
        self._order += 1
        used = {record.index for record in self.records.values()}
        index = next(index for index in range(1, MAX_ROUTERS) if index not in used)
        record = self.records[router] = Record(router, index, told_by, self._order)
        return record

    def is_full(self) -> bool:
        return len(self.records) >= MAX_ROUTERS - 1

    def replaceable(self, told_by: int, neighbours: Mapping[str, int], *, is_neighbour: bool) -> Record | None:
        """Returns the record to replace by a new one; None: the new router gets no place."""
        told = [record for record in self.records.values() if record.id not in neighbours]
        counts = Counter(record.told_by for record in told)
        if not counts:
            return None
        most = max(counts, key=lambda tag: (counts[tag], tag))
        if not is_neighbour and counts[most] <= counts[told_by] + 1:
            return None
        return max((record for record in told if record.told_by == most), key=lambda record: record.order)

    def stale(self, now: float, max_age_s: float) -> Iterator[Record]:
        """Iterates over routers whose link state was not confirmed recently."""
        for record in self.records.values():
            is_confirmed = record.confirmed_at is not None and now - record.confirmed_at <= max_age_s
            if record.ls_seq and not is_confirmed:
                yield record

    def orphans(self, neighbours: Mapping[str, int]) -> list[Record]:
        """Returns routers that had no link state, no link, and no router that names them, at three ticks."""
        bare = [record for record in self.records.values() if not record.peers and record.id not in neighbours]
        if not bare:
            return []
        named = set().union(*(record.peers for record in self.records.values()))
        found = []
        for record in bare:
            if record.id not in named:
                record.orphan_ticks += 1
                if record.orphan_ticks >= ORPHAN_TICKS:
                    found.append(record)
        return found
