"""What a lint rule looks at and what it says."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from policy.addresses import compile_literals, compile_patterns
from policy.attributes import Path, VhostSource, read_items
from policy.loader import Entity
from policy.patterns import normalise
from policy.vhosts import CONNECTOR_GROUP, DEFAULT_GROUP, DEPRECATED_ATTRIBUTES

NAMES = ("hostname", *(old for old, new in DEPRECATED_ATTRIBUTES.items() if new == "hostname"), "name")
SOME_USER = "somebody"


class Level(IntEnum):
    """How bad a finding is. note: worth knowing; warning: probably a mistake; error: refused, or not what it says."""

    NOTE = 1
    WARNING = 2
    ERROR = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing a rule has to say. `text` says what is wrong and what would be right."""

    rule: str
    level: Level
    file: str
    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupText:
    """A user group as it is written."""

    vhost: str
    name: str
    settings: Mapping[str, object]
    source: VhostSource

    @property
    def title(self) -> str:
        return f"vhost '{self.vhost}' group '{self.name}'"

    @property
    def is_connector(self) -> bool:
        return self.name == CONNECTOR_GROUP and not self.items("users")

    def items(self, key: str) -> tuple[str, ...]:
        """The items of a list attribute, none where it is absent."""
        value = self.settings.get(key)
        return () if value is None else read_items(value)

    def is_unlimited(self, key: str, pattern_key: str) -> bool:
        """Does `sources` (or `targets`), or the pattern list in its place, allow every address?"""
        patterns = {normalise(item) for item in self.items(pattern_key)}
        return "*" in self.items(key) or "#" in patterns

    def may_send(self, address: str) -> bool:
        """May some member of the group send to `address`?"""
        literals, patterns = compile_literals(self.items("targets")), compile_patterns(self.items("targetPattern"))
        return any(rules.bind(SOME_USER).match(address) is not None for rules in (literals, patterns))

    def is_true(self, key: str) -> bool:
        """Is a switch that is off by default on?"""
        return str(self.settings.get(key)).lower() == "true"

    def finding(self, rule: str, level: Level, text: str, key: str | None = None) -> Finding:
        """A finding about the group, or about its attribute `key`."""
        path: Path = ("groups", self.name) if key is None else ("groups", self.name, key)
        return _finding(rule, level, self.source, path, f"{self.title}: {text}")


@dataclass(frozen=True, slots=True, kw_only=True)
class VhostText:
    """A vhost as it is written; it has passed the schema."""

    hostname: str
    attributes: Mapping[str, object]
    source: VhostSource

    @property
    def groups(self) -> tuple[GroupText, ...]:
        groups = self.attributes.get("groups")
        return tuple(
            GroupText(vhost=self.hostname, name=name, settings=settings, source=self.source)
            for name, settings in (groups.items() if isinstance(groups, Mapping) else ())
        )

    @property
    def open_groups(self) -> tuple[GroupText, ...]:
        """The groups a user can be in without being named: that with the user `*`, and `$default` for the unknown."""
        any_user = tuple(group for group in self.groups if "*" in group.items("users"))
        if any_user or self.attributes.get("allowUnknownUser") is not True:
            return any_user
        return tuple(group for group in self.groups if group.name == DEFAULT_GROUP)

    def finding(self, rule: str, level: Level, text: str, *path: str | int) -> Finding:
        """A finding about the vhost, or about what stands at `path` of its attributes."""
        return _finding(rule, level, self.source, path, f"vhost '{self.hostname}': {text}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyText:
    """All policy files that are looked at together."""

    entities: tuple[Entity, ...]

    @property
    def vhosts(self) -> tuple[VhostText, ...]:
        return tuple(
            VhostText(
                hostname=str(next(entity.attributes[key] for key in NAMES if key in entity.attributes)),
                attributes=entity.attributes,
                source=entity.source,
            )
            for entity in self.entities
            if entity.type == "vhost"
        )

    @property
    def groups(self) -> tuple[GroupText, ...]:
        return tuple(group for vhost in self.vhosts for group in vhost.groups)


class LintRule(Protocol):
    """A module of this package: its docstring is the rule's documentation."""

    __doc__: str | None
    ID: str
    TITLE: str

    def check(self, policy: PolicyText) -> Iterator[Finding]: ...


def _finding(rule: str, level: Level, source: VhostSource, path: Path, text: str) -> Finding:
    return Finding(rule=rule, level=level, file=source.file or "", line=source.line_of(path) or 1, text=text)
