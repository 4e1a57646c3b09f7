"""A project's lint configuration: the weight of each finding. Pure; the command line reads the file.

A table as TOML gives it: fail-level, ignore, levels, baseline.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from policy.lint.findings import Level
from policy.lint.rules import RULES

_KEYS = ("fail-level", "ignore", "levels", "baseline")
_IDS = frozenset(rule.ID for rule in RULES)


class ConfigurationError(Exception):
    """The file is wrong; str() names the fault and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintConfiguration:
    """baseline  the path of a file, as it is written"""

    fail_level: Level = Level.WARNING
    ignored: tuple[str, ...] = ()
    levels: Mapping[str, Level] = field(default_factory=dict)
    baseline: str | None = None


def read_configuration(table: Mapping[str, object]) -> LintConfiguration:
    """Raises ConfigurationError."""
    for key in table:
        if key not in _KEYS:
            raise ConfigurationError(f"'{key}' is unknown: known are {', '.join(_KEYS)}")
    ignored = table.get("ignore", [])
    if not isinstance(ignored, list):
        raise ConfigurationError('ignore is a list of ids: ["PAL016"]')
    levels = table.get("levels", {})
    if not isinstance(levels, Mapping):
        raise ConfigurationError('levels is a table of ids and levels: PAL016 = "error"')
    baseline = table.get("baseline")
    if baseline is not None and not isinstance(baseline, str):
        raise ConfigurationError("baseline is the path of a file in quotes")
    return LintConfiguration(
        fail_level=_level(table.get("fail-level", "warning"), "fail-level"),
        ignored=tuple(_id(each, "ignore") for each in ignored),
        levels={_id(id_, "levels"): _level(level, id_) for id_, level in levels.items()},
        baseline=baseline,
    )


def _id(value: object, where: str) -> str:
    if not isinstance(value, str) or value not in _IDS:
        raise ConfigurationError(f"{where}: {value!r} is no id of a rule, such as PAL016")
    return value


def _level(value: object, where: str) -> Level:
    names = [level.name.lower() for level in Level]
    if not isinstance(value, str) or value not in names:
        raise ConfigurationError(f"{where}: {value!r} is no level: {', '.join(names)}")
    return Level[value.upper()]
