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
    """The severity of a finding.

    note     worth knowing
    warning  probably a mistake
    error    refused, or not as written
    """

    NOTE = 1
    WARNING = 2
    ERROR = 3


class Confidence(StrEnum):
    """The certainty of a finding, independent of its severity."""

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
    """Replaces `old`, at the place of the finding, by `new`. Safe: the policy permits the same as before."""

    old: str
    new: str
    is_safe: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding of a rule.

    text     the fault, and mostly the remedy
    column   1-based; of `item` once the text of the file is known
    item     the part of the value that the finding is about, "" for the whole
    instead  the text to write, if a few words suffice
    within   the lines on which the enclosing values begin
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
    """Optional parts of a finding; see Finding."""

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
        """Returns the items of a list attribute, none if it is absent."""
        found = self._items.get(key)
        if found is None:
            value = self.settings.get(key)
            read = read_names if key == "users" else read_items
            found = self._items[key] = () if value is None else read(value)
        return found

    def denials(self) -> Iterator[tuple[str, tuple[str, ...], str, tuple[str, ...]]]:
        """Yields `sources`, its items, `denySources` and its items, if both have items; the same for targets."""
        for key, denied_by in DENIED_BY.items():
            items, denied = self.items(key), self.items(denied_by)
            if items and denied:
                yield key, items, denied_by, denied

    def is_unlimited(self, key: str, pattern_key: str) -> bool:
        """Returns whether `sources` (or `targets`), or the pattern list in its place, allows every address."""
        if "*" in self.items(key):
            return True
        return any(item[0] in "#*./" and normalise(item) == "#" for item in self.items(pattern_key))

    def is_true(self, key: str) -> bool:
        """Returns whether a switch is on that is off by default."""
        return str(self.settings.get(key)).lower() == "true"

    def finding(self, rule: str, level: Level, text: str, key: str | None = None, about: About = _PLAIN) -> Finding:
        """Returns a finding about the group, or about its attribute `key`."""
        path: Path = ("groups", self.name) if key is None else ("groups", self.name, key)
        return _finding(rule, level, self.source, path, f"{self.title}: {text}", about)


@dataclass(frozen=True, kw_only=True)
class VhostText:
    """A vhost as it is written. It is valid by the schema."""

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
        """Returns the groups for users that no group names: the group with the user `*`, or else `$default`."""
        any_user = tuple(group for group in self.groups if "*" in group.items("users"))
        if any_user or self.attributes.get("allowUnknownUser") is not True:
            return any_user
        return tuple(group for group in self.groups if group.name == DEFAULT_GROUP)

    @property
    def aliases(self) -> tuple[str, ...]:
        value = self.attributes.get("aliases")
        return () if value is None else read_names(value)

    def finding(self, rule: str, level: Level, text: str, *path: str | int, about: About = _PLAIN) -> Finding:
        """Returns a finding about the vhost, or about the value at `path` of its attributes."""
        return _finding(rule, level, self.source, path, f"vhost '{self.hostname}': {text}", about)


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionText:
    """A section of a configuration as it is written, not validated."""

    type: str
    attributes: Mapping[str, object]
    source: SourceLocation

    @property
    def title(self) -> str:
        name = self.attributes.get("name") or self.attributes.get("port") or ""
        return f"{self.type} '{name}'" if name else self.type

    @property
    def is_local(self) -> bool:
        """Returns whether a listener or connector only connects within this machine."""
        return is_loopback(self.text("host"))

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return tuple(self.text("saslMechanisms").replace(",", " ").upper().split())

    def written_name(self, key: str) -> str:
        """Returns the name under which attribute `key` is present: its own, or an old one."""
        old_names = (old for old, new in old_attribute_names(self.type).items() if new == key)
        return next((name for name in (key, *old_names) if name in self.attributes), key)

    def text(self, key: str) -> str:
        """Returns the value as a text, "" if it is absent."""
        value = self.attributes.get(self.written_name(key))
        return "" if value is None else str(value)

    def is_on(self, key: str) -> bool:
        """Returns whether a switch is on that is off by default."""
        return self.text(key).lower() in ("yes", "true", "on")

    def is_off(self, key: str) -> bool:
        """Returns whether a switch is off that is on by default."""
        return self.text(key).lower() in ("no", "false", "off")

    def finding(self, rule: str, level: Level, text: str, key: str | None = None, about: About = _PLAIN) -> Finding:
        path: Path = () if key is None else (self.written_name(key),)
        return _finding(rule, level, self.source, path, f"{self.title}: {text}", about)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslText:
    """The readable part of the router's SASL configuration.

    mechanisms      of its mech_list, in upper case; None if there is none
    has_users       it names users, in whichever database
    has_keys        it names Kerberos keys
    unread          the part that could not be read here, and why; "" if everything was read
    fault           why the router does not start; "" if it does
    password_fault  why it does not start with a listener that needs passwords
    """

    mechanisms: tuple[str, ...] | None = None
    has_users: bool = False
    has_keys: bool = False
    unread: str = ""
    fault: str = ""
    password_fault: str = ""


@dataclass(frozen=True, kw_only=True)
class PolicyText:
    """The files that are checked together.

    texts    file -> its text, if it is known
    now      the time, seconds since 1970 UTC; None: not known, and rules that depend on it report nothing
    ids      of all existing rules
    routers  several configurations that are compared with each other; empty if this is one configuration
    sasl     the router's SASL configuration; None: it names none, or it was not read
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
        """Returns the sections of the configurations among the files, except vhosts."""
        return tuple(
            SectionText(type=entity.type, attributes=entity.attributes, source=entity.source)
            for entity in self.entities
            if entity.type != "vhost" and entity.is_of_router
        )

    @cached_property
    def validation(self) -> Validation:
        """Returns the errors that a router finds in these files at its start."""
        made = Validation(load_schema(), make_id=str, refuse=refusal, is_service=_may_be_service)
        made.add(entity for entity in self.entities if entity.is_of_router)
        if self.is_configuration:
            made.complete()
        made.add((entity for entity in self.entities if not entity.is_of_router), only="vhost")
        return made

    def blame(self, rule: str, level: Level, fault: Fault | LeftOut, text: str = "", about: About = _PLAIN) -> Finding:
        """Returns a finding about the section that the router refuses or leaves out.

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
        """Returns whether the configuration enables vhost policy."""
        return any(section.is_on("enableVhostPolicy") for section in self.sections("policy"))

    @property
    def vhost_names(self) -> frozenset[str]:
        return frozenset(name for vhost in self.vhosts for name in (vhost.hostname, *vhost.aliases))


def _may_be_service(name: str) -> bool:
    """Returns whether it can be a service name. Services depend on the host, so PAL152 reports the unusual ones."""
    return _SERVICE.fullmatch(name) is not None


def _words(found: Fault | LeftOut) -> str:
    """Returns the router's text, without the type name at its beginning."""
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
