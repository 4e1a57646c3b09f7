"""The time in which a group is valid: validFrom and validUntil, instants in the form of RFC 3339.

Pure: the time is an argument. Instants are seconds since 1970 UTC, without leap seconds.
Source: docs/policy.md, Extensions; RFC 3339 §5.6.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

from policy.attributes import InvalidValue

FROM_KEY: Final = "validFrom"
UNTIL_KEY: Final = "validUntil"
WINDOW_KEYS: Final = (FROM_KEY, UNTIL_KEY)

_EXAMPLE: Final = "2026-12-31T18:00:00+01:00 or 2026-12-31T17:00:00Z"
_INSTANT: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(?:([Zz])|([+-])(\d\d):(\d\d))?", re.ASCII
)
# The year 10000: a float rounds the last microseconds before it up to it, and it cannot be written as a text.
_TOO_LATE_S: Final = 253_402_300_800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The time begin_s ≤ now < end_s, in seconds since 1970 UTC; None: no beginning, no end."""

    begin_s: float | None = None
    end_s: float | None = None

    @property
    def is_always(self) -> bool:
        return self.begin_s is None and self.end_s is None

    def contains(self, now: float | None) -> bool:
        """Returns whether it is open at `now`. If the time is not known, only a window without limits is open."""
        if self.is_always:
            return True
        if now is None:
            return False
        return (self.begin_s is None or self.begin_s <= now) and (self.end_s is None or now < self.end_s)

    def reason_at(self, now: float | None) -> tuple[str, str]:
        """Returns why a window is not open at `now`: the attribute that closes it, and its instant in UTC."""
        is_over = self.end_s is not None and not (now is not None and now < self.end_s)
        if self.end_s is not None and (is_over or self.begin_s is None):
            return UNTIL_KEY, shown_instant(self.end_s)
        return FROM_KEY, shown_instant(self.begin_s or 0.0)

    @property
    def some_instant(self) -> float | None:
        """Returns an instant at which it is open. None if it has no limits."""
        if self.begin_s is None and self.end_s is not None:
            return self.end_s - 1
        return self.begin_s

    @property
    def boundaries(self) -> tuple[float, ...]:
        return tuple(edge for edge in (self.begin_s, self.end_s) if edge is not None)

    def __str__(self) -> str:
        begin = f"from {shown_instant(self.begin_s)}" if self.begin_s is not None else ""
        end = f"until {shown_instant(self.end_s)}" if self.end_s is not None else ""
        return " ".join(filter(None, (begin, end))) or "always"


def read_instant(value: object) -> float:
    """Parses an instant with its offset to seconds since 1970 UTC. Raises InvalidValue, which names the right form."""
    match = _INSTANT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise InvalidValue(f"has illegal value '{value}'. It must be an RFC 3339 time, such as {_EXAMPLE}.")
    *date, fraction, zulu, sign, hours, minutes = match.groups()
    if zulu is None and sign is None:
        raise InvalidValue(f"has illegal value '{value}'. Its offset from UTC is missing: {value}Z or {value}+01:00.")
    year, month, day, hour, minute, second = (int(part) for part in date)
    micros = int((fraction or "").ljust(6, "0"))
    try:
        there = datetime(year, month, day, hour, minute, second, micros, tzinfo=UTC)
    except ValueError as error:
        raise InvalidValue(f"has illegal value '{value}': {error}.") from None
    offset = int(hours or 0), int(minutes or 0)
    if offset[0] > 23 or offset[1] > 59:
        raise InvalidValue(f"has illegal value '{value}': its offset from UTC goes up to 23:59.")
    ahead = timedelta(hours=offset[0], minutes=offset[1])
    try:
        seconds = (there + ahead if sign == "-" else there - ahead).timestamp()
    except OverflowError:
        seconds = _TOO_LATE_S
    if not 0 <= seconds < _TOO_LATE_S:
        raise InvalidValue(f"has illegal value '{value}': in UTC it is not in the years 1970 to 9999.")
    return seconds


def shown_instant(seconds: float) -> str:
    """Returns the instant as RFC 3339 in UTC, `2026-12-31T17:00:00Z`. `read_instant` returns the same number again."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def read_window(begin_s: float | None, end_s: float | None) -> Window:
    """Returns a window. Raises InvalidValue for one that is never open."""
    if begin_s is not None and end_s is not None and begin_s >= end_s:
        begin, end = shown_instant(begin_s), shown_instant(end_s)
        raise InvalidValue(f"{end} is not after {FROM_KEY} {begin}: the group would never be valid.")
    return Window(begin_s=begin_s, end_s=end_s)


def stretches_of(windows: Iterable[Window]) -> tuple[Window, ...]:
    """Returns all of time, in order, divided at each instant at which a window opens or closes."""
    edges = [None, *sorted({edge for window in windows for edge in window.boundaries}), None]
    return tuple(Window(begin_s=begin, end_s=end) for begin, end in pairwise(edges))


def joined(stretches: Iterable[Window]) -> tuple[Window, ...]:
    """Merges consecutive intervals without a gap."""
    found: list[Window] = []
    for stretch in stretches:
        if found and found[-1].end_s is not None and found[-1].end_s == stretch.begin_s:
            found[-1] = Window(begin_s=found[-1].begin_s, end_s=stretch.end_s)
        else:
            found.append(stretch)
    return tuple(found)
