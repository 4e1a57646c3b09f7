"""A project's lint configuration: the level of each finding. Pure; the command line reads the file.

A table as in TOML: fail-level, ignore, only-this-router, levels, baseline, docs-url, per-path-ignores.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from policy.lint.findings import Family, Finding, Level
from policy.lint.pages import RULES_URL
from policy.lint.rules import RULES

_KEYS = ("fail-level", "ignore", "only-this-router", "levels", "baseline", "docs-url", "per-path-ignores")
_URL = re.compile(r"https?://[!-~]+")
_IDS = frozenset(rule.ID for rule in RULES)
# Findings of PAL011 are faults for this router too.
_FOR_OTHER_ROUTERS = tuple(rule.ID for rule in RULES if rule.FAMILY is Family.COMPATIBILITY and rule.ID != "PAL011")


class ConfigurationError(Exception):
    """The file is wrong. str() names the fault and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintConfiguration:
    """The settings of lint for a project.

    ignored    includes the rules about other routers, if only this router reads the files
    baseline   the path of a file, as it is written
    rules_url  of the pages of the rules, with a final slash; "" if they are not on the web
    by_path    shell pattern of a file's path -> the ids that are ignored in it
    """

    fail_level: Level = Level.WARNING
    ignored: tuple[str, ...] = ()
    levels: Mapping[str, Level] = field(default_factory=dict)
    baseline: str | None = None
    rules_url: str = RULES_URL
    by_path: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def without_ignored_paths(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """Returns the findings that are not ignored in their file."""
        return tuple(each for each in findings if not self._is_ignored(each))

    def _is_ignored(self, finding: Finding) -> bool:
        path = finding.file.removeprefix("./")
        matching = (ids for pattern, ids in self.by_path.items() if fnmatchcase(path, pattern))
        return any(finding.rule in ids for ids in matching)


def read_configuration(table: Mapping[str, object]) -> LintConfiguration:
    """Reads a table. Raises ConfigurationError."""
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
    if "docs-url" in table and (not isinstance(rules_url, str) or not _URL.fullmatch(rules_url)):
        raise ConfigurationError('docs-url is the address of a folder: "https://docs.example.com/rules/"')
    return LintConfiguration(
        fail_level=_level(table.get("fail-level", "warning"), "fail-level"),
        ignored=(*(_id(each, "ignore") for each in ignored), *(_FOR_OTHER_ROUTERS if is_alone else ())),
        levels={_id(id_, "levels"): _level(level, id_) for id_, level in levels.items()},
        baseline=baseline,
        rules_url=f"{str(rules_url).rstrip('/')}/" if rules_url else "",
        by_path=_by_path(table.get("per-path-ignores", {})),
    )


def _by_path(written: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(written, Mapping):
        raise ConfigurationError('per-path-ignores is a table of paths and lists of ids: "old/*" = ["PAL016"]')
    found = {}
    for pattern, ids in written.items():
        if not isinstance(ids, list):
            raise ConfigurationError(f'per-path-ignores: {pattern} is a list of ids: ["PAL016"]')
        found[str(pattern)] = tuple(_id(each, "per-path-ignores") for each in ids)
    return found


def _id(value: object, where: str) -> str:
    if not isinstance(value, str) or value not in _IDS:
        raise ConfigurationError(f"{where}: {value!r} is no id of a rule, such as PAL016")
    return value


def _level(value: object, where: str) -> Level:
    names = [level.name.lower() for level in Level]
    if not isinstance(value, str) or value not in names:
        raise ConfigurationError(f"{where}: {value!r} is no level: {', '.join(names)}")
    return Level[value.upper()]
