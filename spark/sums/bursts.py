"""Finds what the detectors need to know of a trail before they examine its events. Runs in Spark's workers.

A burst of `least` within its window has at least half of that in one of two neighbouring spans of the window's length.
So a key with less in every span has no burst, and most of a long trail is quiet.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark.sums.files import Share
from spark.sums.hashes import row_hashes
from spark.sums.rows import grouped, hosts, micros
from spark.transforms.sign import Sign, any_mask

# Limit of keys of one detector. Stops an attacker with a new name for each burst from filling the memory: with more
# keys, all of the detector's events are kept.
MAX_KEYS: Final = 100_000
# More than any threshold: the count of a flood, which may represent more than it says. Multiplied by the events of a
# trail it does not overflow.
_MANY: Final = 1 << 30
_RULED: Final = ("router", "minute", "ruleset_digest")
_MINUTE: Final = 60_000_000
_DAY: Final = 86_400_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# Events of a user who had logged in. Before the Open the name is only claimed.
KNOWN_STAGES: Final = ("open", "begin", "attach", "transfer", "management")
SEEN: Final = Sign(among={"stage": KNOWN_STAGES}, has=("user",))

# Kinds of cells: keys that may have a burst (detector, then its keys); users and their hosts, with their first event;
# the stays of users, without a long absence, and the day they begin; and the ruleset in force (router, minute, digest)
# wherever it may have changed.
MAY_BURST: Final = "may_burst"
STAYS: Final = "stays"
USERS: Final = "users_seen"
HOSTS: Final = "hosts_seen"
DIGESTS: Final = "digests"
_COMING: Final = {STAYS: ("user", "day"), USERS: ("user",), HOSTS: ("remote_host",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Focus:
    """The bursts that a detector looks for, and the events that it can need for them.

    signs     the events that count: they match one of these
    story     further events of the same keys that belong to it
    keys      of its bursts; `host` is remote_host as it is counted
    window_s  time in which a burst has at least `min_requests`, `distinct` things and routers, as the members say
    """

    signs: Sequence[Sign]
    keys: Sequence[str]
    window_s: int
    min_requests: int = 0
    min_distinct: int = 0
    min_routers: int = 0
    max_routers: int = 2**31 - 1
    story: Sequence[Sign] = ()

    @property
    def quarter(self) -> int:
        """Returns a quarter of the window, in microseconds."""
        return max(self.window_s // 4, 1) * 1_000_000

    @property
    def span(self) -> int:
        """Returns the length of a span, in microseconds."""
        return 5 * self.quarter

    @property
    def least(self) -> int:
        """Returns the minimum number of requests in a burst: each distinct thing needs one request."""
        return max(self.min_requests, self.min_distinct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """The events that detectors examine.

    focuses       of the detectors that find bursts, by name
    absence_days  minimum absence of a user before a return is reported
    """

    focuses: Mapping[str, Focus]
    absence_days: int


class Gathered:
    """Gathers from the rows of one share. share: None: the rows are any part of a trail"""

    def __init__(self, watch: Watch, share: Share | None) -> None:
        self._focuses = watch.focuses
        self._absence = watch.absence_days * _DAY
        self._share = share
        self._held: dict[str, list[pa.Table]] = {}

    def add(self, rows: pa.Table) -> None:
        """Adds rows.

        rows  as of spark.sums.rows.even, within the requested time
        """
        if not len(rows):
            return
        rows = rows.append_column("host", hosts(rows))
        for name, focus in self._focuses.items():
            mine = rows.select([*focus.keys, "time", "is_flood", "requests"])
            mine = mine.filter(pa.array(any_mask(focus.signs, rows)))
            if len(mine):
                spans = pa.array(micros(mine["time"]) // focus.span)
                counted = pc.if_else(mine["is_flood"], _MANY, pc.min_element_wise(mine["requests"], _MANY))
                mine = mine.select(focus.keys).append_column("span", spans).append_column("requests", counted)
                self._hold(name, grouped(mine, (*focus.keys, "span"), [("requests", "sum")]))
        seen = rows.select(["user", "remote_host", "day", "time"]).filter(pa.array(SEEN.mask(rows)))
        hosted = seen.filter(pc.is_valid(seen["remote_host"]))
        for name, keys in _COMING.items():
            self._hold(name, _ends(seen if name == STAYS else hosted, keys))
        ruled = rows.select(["router", "ruleset_digest", "time"]).filter(pc.is_valid(rows["ruleset_digest"]))
        minutes = pa.array(micros(ruled["time"]) // _MINUTE)
        self._hold(DIGESTS, _ends(ruled.append_column("minute", minutes), _RULED))

    def _hold(self, name: str, rows: pa.Table) -> None:
        if len(rows):
            self._held.setdefault(name, []).append(rows)

    def cells(self) -> Iterator[tuple[str, list[Any], Mapping[str, Any]]]:
        """Yields kind, the columns of keys, and of numbers: `first` and `last`. Ends the gathering."""
        for name, focus in self._focuses.items():
            held = self._held.pop(name, None)
            if held is not None and (likely := self._likely(held, focus)):
                sums = grouped(_joined(likely), (*focus.keys, "span"), [("requests", "sum")])
                much = sums.filter(pa.array(self._is_much(sums, focus)))
                keys = grouped(much, focus.keys, []).slice(0, MAX_KEYS + 1)
                yield MAY_BURST, [pa.repeat(name, len(keys)), *keys.columns], {}
        if STAYS in self._held:
            days = _ends_of(self._held.pop(STAYS), _COMING[STAYS])
            days = days.sort_by([(key, "ascending") for key in _COMING[STAYS]])
            begins, ends = self._stays(days)
            keys = [days[key].take(begins) for key in _COMING[STAYS]]
            yield STAYS, keys, {"first": days["first"].take(begins), "last": days["last"].take(ends)}
        for name in (USERS, HOSTS):
            if name in self._held:
                found = _ends_of(self._held.pop(name), _COMING[name])
                yield name, [found[key] for key in _COMING[name]], {"first": found["first"]}
        if DIGESTS in self._held:
            found = self._changing(_ends_of(self._held.pop(DIGESTS), _RULED))
            yield DIGESTS, [found[key] for key in _RULED], {"first": found["first"]}

    def _stays(self, days: pa.Table) -> tuple[Any, Any]:
        """Returns where stays begin and end, in rows ordered by user and day."""
        users, firsts, lasts = days["user"].to_numpy(), micros(days["first"]), micros(days["last"])
        is_new = np.append(True, (users[1:] != users[:-1]) | (firsts[1:] - lasts[:-1] >= self._absence))
        begins = np.flatnonzero(is_new)
        return begins, np.append(begins[1:], len(users)) - 1

    def _likely(self, held: Sequence[pa.Table], focus: Focus) -> list[pa.Table]:
        """Returns the rows that remain when keys with equal hashes count as equal.

        This drops most of millions of keys before their texts have to be compared.
        """
        codes = [row_hashes(rows, focus.keys) for rows in held]
        numbers = pa.concat_tables([rows.select(["span", "requests"]) for rows in held])
        sums = grouped(
            numbers.append_column("code", pa.array(np.concatenate(codes))), ("code", "span"), [("requests", "sum")]
        )
        much = np.unique(sums["code"].to_numpy()[self._is_much(sums, focus)])
        found = (rows.filter(pa.array(np.isin(code, much))) for rows, code in zip(held, codes, strict=True))
        return [rows for rows in found if len(rows)]

    def _is_much(self, sums: pa.Table, focus: Focus) -> Any:
        """Returns which sums may belong to a burst: at least the share's part of half a burst in the span."""
        begins = sums["span"].to_numpy() * focus.span
        parts = self._parts_of(begins, begins + focus.span - 1)
        return sums["requests"].to_numpy() >= -(-((focus.least + 1) // 2) // parts)

    def _parts_of(self, first: Any, last: Any) -> Any:
        """Returns the maximum number of shares that contain events of these times, in microseconds."""
        if self._share is None:
            return np.full(len(first), np.iinfo(np.int64).max)
        parts = {_day_number(name): count for name, count in self._share.parts.items()}
        begin, end = first // _DAY, last // _DAY
        days, places = np.unique(begin, return_inverse=True)
        of_days = np.fromiter((parts.get(day, self._share.most) for day in days.tolist()), np.int64, len(days))
        return np.where(begin == end, of_days[places], (end - begin + 1) * self._share.most)

    def _changing(self, found: pa.Table) -> pa.Table:
        """Drops minutes within an unchanged ruleset, if the share has all events of a router and day."""
        if self._share is None or any(count > 1 for count in self._share.parts.values()):
            return found
        found = found.sort_by([("router", "ascending"), ("first", "ascending"), ("ruleset_digest", "ascending")])
        codes = [found[name].to_numpy() for name in ("router", "ruleset_digest")]
        days = micros(found["first"]) // _DAY
        is_same = np.logical_and.reduce([column[1:] == column[:-1] for column in (*codes, days)])
        before, after = np.append(False, is_same), np.append(is_same, False)
        return found.filter(pa.array(~(before & after)))


def _day_number(name: str) -> int:
    return (datetime.strptime(name, "%Y-%m-%d").replace(tzinfo=UTC) - _EPOCH) // timedelta(days=1)


def _joined(held: Sequence[pa.Table]) -> pa.Table:
    plain = [pa.table({name: _plain(table[name]) for name in table.column_names}) for table in held]
    return pa.concat_tables(plain)


def _plain(column: Any) -> Any:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def _ends(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    timed = rows.select(keys).append_column("first", rows["time"]).append_column("last", rows["time"])
    return grouped(timed, keys, [("first", "min"), ("last", "max")])


def _ends_of(held: Sequence[pa.Table], keys: Sequence[str]) -> pa.Table:
    return grouped(_joined(held), keys, [("first", "min"), ("last", "max")])
