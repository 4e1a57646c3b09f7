"""The input of a lint rule and its findings."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import Final, Protocol

from policy.addressing.patterns import normalise
from policy.attributes import Path, SourceLocation, read_items, read_names
from policy.configuration.refusals import refusal
from policy.configuration.schema import load_schema
from policy.configuration.validation import Fault, LeftOut, Validation
from policy.files.sections import Section
from policy.groups import DENIED_BY
from policy.hosts import is_loopback
from policy.lint.section_names import old_attribute_names
from policy.vhosts import CONNECTOR_GROUP, DEFAULT_GROUP, DEPRECATED_ATTRIBUTES

NAMES = ("hostname", *(old for old, new in DEPRECATED_ATTRIBUTES.items() if new == "hostname"), "name")
SOME_USER = "somebody"
_SERVICE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+_.-]{0,30}")
_LONG_NAME: Final = re.compile(r"^org\.apache\.qpid\.dispatch\.[A-Za-z.]+: ")


class Level(IntEnum):
    """How bad a finding is. note: worth knowing; warning: probably a mistake; error: refused, or not what it says."""

    NOTE = 1
    WARNING = 2
    ERROR = 3


class Confidence(StrEnum):
    """How sure the finding is; apart from how bad it would be."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


class Family(StrEnum):
    CORRECTNESS = "correctness"
    SECURITY = "security"
    REACHABILITY = "reachability"
    COMPATIBILITY = "compatibility"
    HYGIENE = "hygiene"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """Replace `old`, which stands where the finding is, by `new`. Safe: the policy permits the same as before."""

    old: str
    new: str
    is_safe: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding of a rule.

    text     the fault, and mostly the remedy
    column   1-based; of `item` once the text of the file is known
    item     the piece of the value the finding is about, "" for the whole
    instead  the text to write, where it takes a few words
    within   the lines on which the things around it begin
    """

    rule: str
    level: Level
    file: str
    line: int
    text: str
    column: int = 1
    item: str = ""
    instead: str = ""
    confidence: Confidence = Confidence.CERTAIN
    fix: Fix | None = None
    within: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Further words of a finding; see Finding."""

    item: str = ""
    instead: str = ""
    confidence: Confidence = Confidence.CERTAIN
    fix: Fix | None = None


_PLAIN = About()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupText:
    """A user group as it is written."""

    vhost: str
    name: str
    settings: Mapping[str, object]
    source: SourceLocation
    _items: dict[str, tuple[str, ...]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def title(self) -> str:
        return f"vhost '{self.vhost}' group '{self.name}'"

    @property
    def is_connector(self) -> bool:
        return self.name == CONNECTOR_GROUP and not self.items("users")

    def items(self, key: str) -> tuple[str, ...]:
        """The items of a list attribute, none where it is absent."""
        found = self._items.get(key)
        if found is None:
            value = self.settings.get(key)
            read = read_names if key == "users" else read_items
            found = self._items[key] = () if value is None else read(value)
        return found

    def denials(self) -> Iterator[tuple[str, tuple[str, ...], str, tuple[str, ...]]]:
        """`sources` with its items and `denySources` with its items, and so for targets, where both have some."""
        for key, denied_by in DENIED_BY.items():
            items, denied = self.items(key), self.items(denied_by)
            if items and denied:
                yield key, items, denied_by, denied

    def is_unlimited(self, key: str, pattern_key: str) -> bool:
        """Does `sources` (or `targets`), or the pattern list in its place, allow every address?"""
        if "*" in self.items(key):
            return True
        return any(item[0] in "#*./" and normalise(item) == "#" for item in self.items(pattern_key))

    def is_true(self, key: str) -> bool:
        """Is a switch that is off by default on?"""
        return str(self.settings.get(key)).lower() == "true"

    def finding(self, rule: str, level: Level, text: str, key: str | None = None, about: About = _PLAIN) -> Finding:
        """A finding about the group, or about its attribute `key`."""
        path: Path = ("groups", self.name) if key is None else ("groups", self.name, key)
        return _finding(rule, level, self.source, path, f"{self.title}: {text}", about)


@dataclass(frozen=True, kw_only=True)
class VhostText:
    """A vhost as it is written; it has passed the schema."""

    hostname: str
    attributes: Mapping[str, object]
    source: SourceLocation

    @cached_property
    def groups(self) -> tuple[GroupText, ...]:
        groups = self.attributes.get("groups")
        return tuple(
            GroupText(vhost=self.hostname, name=name, settings=settings, source=self.source)
            for name, settings in (groups.items() if isinstance(groups, Mapping) else ())
        )

    @cached_property
    def open_groups(self) -> tuple[GroupText, ...]:
        """The groups a user can be in without being named: that with the user `*`, and `$default` for the unknown."""
        any_user = tuple(group for group in self.groups if "*" in group.items("users"))
        if any_user or self.attributes.get("allowUnknownUser") is not True:
            return any_user
        return tuple(group for group in self.groups if group.name == DEFAULT_GROUP)

    @property
    def aliases(self) -> tuple[str, ...]:
        value = self.attributes.get("aliases")
        return () if value is None else read_names(value)

    def finding(self, rule: str, level: Level, text: str, *path: str | int, about: About = _PLAIN) -> Finding:
        """A finding about the vhost, or about the value at `path` of its attributes."""
        return _finding(rule, level, self.source, path, f"vhost '{self.hostname}': {text}", about)


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionText:
    """A section of a configuration as it is written; nothing has checked it."""

    type: str
    attributes: Mapping[str, object]
    source: SourceLocation

    @property
    def title(self) -> str:
        name = self.attributes.get("name") or self.attributes.get("port") or ""
        return f"{self.type} '{name}'" if name else self.type

    @property
    def is_local(self) -> bool:
        """Does a listener or connector stay within this machine?"""
        return is_loopback(self.text("host"))

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return tuple(self.text("saslMechanisms").replace(",", " ").upper().split())

    def written_name(self, key: str) -> str:
        """The name under which attribute `key` is there: its own, or an old one."""
        old_names = (old for old, new in old_attribute_names(self.type).items() if new == key)
        return next((name for name in (key, *old_names) if name in self.attributes), key)

    def text(self, key: str) -> str:
        """The value as a text, "" where it is absent."""
        value = self.attributes.get(self.written_name(key))
        return "" if value is None else str(value)

    def is_on(self, key: str) -> bool:
        """Is a switch that is off by default on?"""
        return self.text(key).lower() in ("yes", "true", "on")

    def is_off(self, key: str) -> bool:
        """Is a switch that is on by default off?"""
        return self.text(key).lower() in ("no", "false", "off")

    def finding(self, rule: str, level: Level, text: str, key: str | None = None, about: About = _PLAIN) -> Finding:
        path: Path = () if key is None else (self.written_name(key),)
        return _finding(rule, level, self.source, path, f"{self.title}: {text}", about)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslText:
    """What the SASL configuration of the router says, as far as it could be read.

    mechanisms      of its mech_list, in upper case; None where it has none
    has_users       it names users, whoever has them
    has_keys        it names keys of Kerberos
    unread          what could not be read here, and why; "" where all was
    fault           why the router does not start; "" where it does
    password_fault  why it does not start with a listener that asks for passwords
    """

    mechanisms: tuple[str, ...] | None = None
    has_users: bool = False
    has_keys: bool = False
    unread: str = ""
    fault: str = ""
    password_fault: str = ""


@dataclass(frozen=True, kw_only=True)
class PolicyText:
    """All files that are looked at together.

    texts    file -> its text, as far as it is known
    now      the time, seconds since 1970 UTC; None: not known, and rules that would ask are silent
    ids      of the rules there are
    routers  several configurations that are looked at beside each other; none where this is one
    sasl     of the router's SASL configuration; None: it names none, or nobody has looked
    """

    entities: tuple[Section, ...]
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    now: float | None = None
    ids: frozenset[str] = frozenset()
    routers: "tuple[PolicyText, ...]" = ()
    sasl: SaslText | None = None

    @cached_property
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

    @cached_property
    def groups(self) -> tuple[GroupText, ...]:
        return tuple(group for vhost in self.vhosts for group in vhost.groups)

    @cached_property
    def all_sections(self) -> tuple[SectionText, ...]:
        """The sections of the configurations among the files, but for vhosts."""
        return tuple(
            SectionText(type=entity.type, attributes=entity.attributes, source=entity.source)
            for entity in self.entities
            if entity.type != "vhost" and entity.is_of_router
        )

    @cached_property
    def validation(self) -> Validation:
        """What a router that reads these files finds wrong with them at its start."""
        made = Validation(load_schema(), make_id=str, refuse=refusal, is_service=_may_be_service)
        made.add(entity for entity in self.entities if entity.is_of_router)
        if self.is_configuration:
            made.complete()
        made.add((entity for entity in self.entities if not entity.is_of_router), only="vhost")
        return made

    def blame(self, rule: str, level: Level, fault: Fault | LeftOut, text: str = "", about: About = _PLAIN) -> Finding:
        """A finding about the section that the router refuses or leaves out.

        text  "": the router's own words
        """
        source = fault.source
        section = self._by_place.get((source.file, source.line, source.column))
        title = section.title if section is not None else "the router"
        return _finding(rule, level, source, (fault.attribute,), f"{title}: {text or _words(fault)}", about)

    @cached_property
    def _by_place(self) -> Mapping[tuple[str | None, int | None, int], SectionText]:
        return {
            (entity.source.file, entity.source.line, entity.source.column): SectionText(
                type=entity.type, attributes=entity.attributes, source=entity.source
            )
            for entity in self.entities
        }

    def sections(self, *types: str) -> tuple[SectionText, ...]:
        return tuple(section for section in self.all_sections if section.type in types)

    @property
    def is_configuration(self) -> bool:
        return any(entity.is_of_router for entity in self.entities)

    @property
    def is_enforced(self) -> bool:
        """Does the configuration switch vhost policy on?"""
        return any(section.is_on("enableVhostPolicy") for section in self.sections("policy"))

    @property
    def vhost_names(self) -> frozenset[str]:
        return frozenset(name for vhost in self.vhosts for name in (vhost.hostname, *vhost.aliases))


def _may_be_service(name: str) -> bool:
    """Names of services are the host's: all that may be one is taken, and PAL152 speaks of those that are rare."""
    return _SERVICE.fullmatch(name) is not None


def _words(found: Fault | LeftOut) -> str:
    """The router's text, without the name of the type, which stands before it."""
    return _LONG_NAME.sub("", found.reason if isinstance(found, Fault) else found.text)


class LintRule(Protocol):
    """A module of this package: its docstring is the rule's documentation."""

    __doc__: str | None
    ID: str
    TITLE: str
    FAMILY: Family

    def check(self, policy: PolicyText) -> Iterator[Finding]: ...


def _finding(rule: str, level: Level, source: SourceLocation, path: Path, text: str, about: About) -> Finding:
    around = (source.places.get(path[:length]) for length in range(1, len(path) + 1))
    lines = (source.line, *(place[0] for place in around if place is not None))
    return Finding(
        rule=rule,
        level=level,
        file=source.file or "",
        line=source.line_of(path) or 1,
        column=source.column_of(path),
        text=text,
        item=about.item,
        instead=about.instead,
        confidence=about.confidence,
        fix=about.fix,
        within=tuple(line for line in lines if line is not None),
    )
