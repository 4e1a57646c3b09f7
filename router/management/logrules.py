"""Selects and formats log entries, chooses their destination, and keeps the last ones. Pure: router.io writes.

Sources: docs/spec/management.md §3, §4.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from policy.configuration.log_levels import LEVELS, MODULES, LogLevel, parse_enable

UNCONFIGURABLE_MODULES = ("MAIN", "DISPLAYNAME")
ALL_MODULES = (*MODULES, *UNCONFIGURABLE_MODULES)

MAX_TEXT_BYTES = 2048
# Number of entries that GET-LOG can show; also the most that a flood of entries can make the router hold.
MAX_KEPT_ENTRIES = 1000

_MICROSECONDS = "%06lu"
# A peer's text must not forge a log line or control a terminal: C0 and C1 controls, the line separators that some
# viewers use, and the marks that reverse the reading direction.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# A line break stays if the next line cannot look like an entry: it begins with a blank or with `>`.
_FORGEABLE_BREAK = re.compile(r"\n(?![ \t>])")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The settings of one module; None means the setting of DEFAULT."""

    enabled: frozenset[LogLevel] | None = None
    has_timestamp: bool | None = None
    has_source: bool | None = None
    output_file: str | None = None


DEFAULT_SETTINGS = LogSettings(
    enabled=parse_enable("info+"), has_timestamp=True, has_source=False, output_file="stderr"
)


def settings_of(attributes: Mapping[str, Any]) -> LogSettings:
    """Returns the settings of a `log` entity. Errors: LogSettingError."""
    enable = attributes.get("enable")
    return LogSettings(
        enabled=None if enable is None else parse_enable(str(enable)),
        has_timestamp=attributes.get("includeTimestamp"),
        has_source=attributes.get("includeSource"),
        output_file=attributes.get("outputFile"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeStyle:
    """The router's timestampsInUTC and timestampFormat."""

    is_utc: bool = False
    format: str | None = None

    def text(self, now_s: float) -> str:
        """Returns the time as text.

        now_s  seconds since 1970.
        """
        if self.format is None:
            second = int(now_s)
            microsecond = round((now_s - second) * 1e6)
            if 0 <= microsecond < 1_000_000:
                clock, zone = _second(second, self.is_utc)
                return f"{clock}.{microsecond:06d} {zone}"
        moment = datetime.fromtimestamp(now_s, UTC)
        if not self.is_utc:
            moment = moment.astimezone()
        if self.format is None:
            return moment.strftime("%Y-%m-%d %H:%M:%S.%f %z")
        return moment.strftime(self.format).replace(_MICROSECONDS, f"{moment.microsecond:06d}")


@lru_cache(maxsize=2)
def _second(second: int, is_utc: bool) -> tuple[str, str]:
    """Returns a second as text without its fraction, and the zone. Cached: most lines of a burst share a second."""
    moment = datetime.fromtimestamp(second, UTC)
    if not is_utc:
        moment = moment.astimezone()
    return moment.strftime("%Y-%m-%d %H:%M:%S"), moment.strftime("%z")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRules:
    """The settings of all modules in force. A change makes new rules; the logs hold the current ones."""

    settings: Mapping[str, LogSettings] = field(default_factory=dict)
    time_style: TimeStyle = TimeStyle()
    # Results of `of`, by module: the settings never change.
    _found: dict[str, LogSettings] = field(default_factory=dict, init=False, repr=False, compare=False)
    _enabled: dict[tuple[str, LogLevel], bool] = field(default_factory=dict, init=False, repr=False, compare=False)

    def with_module(self, module: str, settings: LogSettings) -> "LogRules":
        return LogRules(settings={**self.settings, module: settings}, time_style=self.time_style)

    def of(self, module: str) -> LogSettings:
        """Returns the settings of `module`: each setting its own, else DEFAULT's, else the built-in one."""
        known = self._found.get(module)
        if known is not None:
            return known
        found = [self.settings.get(module), self.settings.get("DEFAULT"), DEFAULT_SETTINGS]
        layers = [each for each in found if each is not None]
        output_file = next(each.output_file for each in layers if each.output_file is not None)
        made = self._found[module] = LogSettings(
            enabled=next(each.enabled for each in layers if each.enabled is not None),
            # The system log has its own clock.
            has_timestamp=output_file != "syslog"
            and next(each.has_timestamp for each in layers if each.has_timestamp is not None),
            has_source=next(each.has_source for each in layers if each.has_source is not None),
            output_file=output_file,
        )
        return made

    def is_enabled(self, module: str, level: LogLevel) -> bool:
        known = self._enabled.get((module, level))
        if known is None:
            known = self._enabled[module, level] = self._is_enabled(module, level)
        return known

    def _is_enabled(self, module: str, level: LogLevel) -> bool:
        own = self.settings.get(module)
        if own is None or own.enabled is None:
            own = self.settings.get("DEFAULT")
        enabled = own.enabled if own is not None and own.enabled is not None else DEFAULT_SETTINGS.enabled
        return enabled is not None and level in enabled

    def sink(self, module: str) -> str:
        """Returns stderr, stdout, syslog or a file name."""
        return self.of(module).output_file or "stderr"

    def sinks(self) -> frozenset[str]:
        """Returns all destinations that any module writes to."""
        return frozenset(self.sink(module) for module in ALL_MODULES)

    def line(self, entry: "LogEntry") -> str:
        """Returns the whole line of an entry, with its line break (§3)."""
        settings = self.of(entry.module)
        time = f"{self.time_style.text(entry.time_s)} " if settings.has_timestamp else ""
        has_source = settings.has_source and entry.file is not None
        source = f" ({entry.file}:{entry.line or 0})" if has_source else ""
        return f"{time}{entry.module} ({entry.level}) {visible_text(entry.text)}{source}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One log entry.

    time_s      seconds since 1970
    file, line  the place in the source where the entry was made, if known
    """

    module: str
    level: LogLevel
    text: str
    time_s: float
    file: str | None = None
    line: int | None = None


def visible_text(text: str) -> str:
    """Returns `text` as a log line may contain it: at most 2048 bytes, control characters written as escapes."""
    if len(text) * 4 <= MAX_TEXT_BYTES and text.isprintable():  # true for nearly all texts
        return text
    cut = text[:MAX_TEXT_BYTES]
    escaped = _FORGEABLE_BREAK.sub(r"\\n", _CONTROL.sub(lambda match: ascii(match[0])[1:-1], cut))
    if len(escaped) * 4 <= MAX_TEXT_BYTES or len(encoded := escaped.encode()) <= MAX_TEXT_BYTES:
        return escaped
    return encoded[:MAX_TEXT_BYTES].decode(errors="ignore")


class LogRing:
    """The last enabled entries, and their counts by module and level."""

    def __init__(self) -> None:
        self._entries: deque[LogEntry] = deque(maxlen=MAX_KEPT_ENTRIES)
        self._counts: dict[str, dict[LogLevel, int]] = {module: dict.fromkeys(LEVELS, 0) for module in ALL_MODULES}

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, entry: LogEntry) -> None:
        self._entries.append(entry)
        counts = self._counts.get(entry.module)
        if counts is not None:
            counts[entry.level] += 1

    def entries(self, limit: int = 0) -> Iterator[list[object]]:
        """Returns the last `limit` entries (0: all) for GET-LOG, oldest first: module, level, text, file, line, time.

        They are the entries at the time of the call; rows are made when they are asked for.
        """
        kept = list(self._entries)
        return map(_row, kept[-limit:] if limit > 0 else kept)

    def rows(self) -> Iterator[Mapping[str, object]]:
        """Returns the entities of logStats."""
        return (_stats(module, counts) for module, counts in self._counts.items())


def _row(entry: LogEntry) -> list[object]:
    return [entry.module, entry.level, visible_text(entry.text), entry.file, entry.line, int(entry.time_s)]


def _stats(module: str, counts: Mapping[LogLevel, int]) -> dict[str, object]:
    row: dict[str, object] = {"name": module, "identity": f"logStats/{module}"}
    row.update((f"{level}Count", count) for level, count in counts.items())
    return row


def rules_from(logs: Iterable[Mapping[str, Any]], time_style: TimeStyle = TimeStyle()) -> LogRules:
    """Makes the rules from the attributes of all `log` entities. Errors: LogSettingError."""
    return LogRules(settings={str(each["module"]): settings_of(each) for each in logs}, time_style=time_style)
