"""A project's lint configuration: the weight of each finding. Pure; the command line reads the file.

A table as TOML gives it: fail-level, ignore, only-this-router, levels, baseline, docs-url.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from policy.lint.findings import Family, Level
from policy.lint.pages import RULES_URL
from policy.lint.rules import RULES

_KEYS = ("fail-level", "ignore", "only-this-router", "levels", "baseline", "docs-url")
_URL = re.compile(r"https?://[!-~]+")
_IDS = frozenset(rule.ID for rule in RULES)
# What PAL011 finds is a fault here as well.
_FOR_OTHER_ROUTERS = tuple(rule.ID for rule in RULES if rule.FAMILY is Family.COMPATIBILITY and rule.ID != "PAL011")


class ConfigurationError(Exception):
    """The file is wrong; str() names the fault and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintConfiguration:
    """ignored    with the rules about other routers, where only this one reads the files
    baseline   the path of a file, as it is written
    rules_url  of the pages of the rules, with a slash at its end
    """

    fail_level: Level = Level.WARNING
    ignored: tuple[str, ...] = ()
    levels: Mapping[str, Level] = field(default_factory=dict)
    baseline: str | None = None
    rules_url: str = RULES_URL


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
    is_alone = table.get("only-this-router", False)
    if not isinstance(is_alone, bool):
        raise ConfigurationError("only-this-router is true or false: true where qdrouterd 1.20 does not read the files")
    rules_url = table.get("docs-url", RULES_URL)
    if not isinstance(rules_url, str) or not _URL.fullmatch(rules_url):
        raise ConfigurationError('docs-url is the address of a folder: "https://docs.example.com/rules/"')
    return LintConfiguration(
        fail_level=_level(table.get("fail-level", "warning"), "fail-level"),
        ignored=(*(_id(each, "ignore") for each in ignored), *(_FOR_OTHER_ROUTERS if is_alone else ())),
        levels={_id(id_, "levels"): _level(level, id_) for id_, level in levels.items()},
        baseline=baseline,
        rules_url=rules_url if rules_url.endswith("/") else f"{rules_url}/",
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
