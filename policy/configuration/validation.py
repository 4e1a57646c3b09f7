"""The validation of a configuration's sections, used by the daemon's start, `qdrouterd --check`, lint and editors.

Everything is pure. Startup itself checks what needs the host (files, keys, names of services).
Sources: docs/spec/management.md §1.3, §1.4.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from policy.attributes import SourceLocation
from policy.configuration.kinds import APPLY_ORDER, KINDS, kind_of
from policy.configuration.kinds.core_kind import CoreKind, Existing
from policy.configuration.log_levels import MODULES
from policy.configuration.references import IsService, Named
from policy.configuration.refusals import Refusal
from policy.configuration.schema import EntityType, Schema, ValidationError
from policy.configuration.unique_names import RuleError, UniqueNames, default_name
from policy.files.sections import Section

# The beginning of a section's error at startup, unless its rule gives another (docs/spec/management.md §2.3).
EXCEPTION = "Python: Exception"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredEntity:
    """One validated entity.

    type        short name
    attributes  by canonical name, converted, with defaults, `type`, `name` and `identity`. Secrets are as written
    source      the place of its section, with canonical names of attributes; no file if the router adds the entity
    """

    type: str
    attributes: Mapping[str, object] = field(repr=False)
    source: SourceLocation = field(default_factory=SourceLocation, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of a configuration that stops the start.

    reason     the fault and the input that caused it; contains no secret
    kind       the beginning of the error at startup: "Configuration", or "Python: <exception name>"
    error      the exception of the rule; None for a Refusal
    section    short type name, if a section is at fault
    attribute  under one of its names; "" for the whole section
    source     of the section, with the places of its attributes
    """

    reason: str
    kind: str = EXCEPTION
    error: ValidationError | None = None
    section: str = ""
    attribute: str = ""
    source: SourceLocation = field(default_factory=SourceLocation, repr=False)

    @property
    def file(self) -> str | None:
        return self.source.file

    @property
    def line(self) -> int | None:
        return self.source.line_of((self.attribute,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """A log line about a section, before the start."""

    module: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A section that the router leaves out, with a line in its log.

    attribute  as written; "" for the whole section
    """

    text: str
    source: SourceLocation
    attribute: str = ""


# (short name of the type, validated attributes) -> why the entity stops the start; None: it does not.
Refuse = Callable[[str, Mapping[str, object]], Refusal | None]


class Validation:
    """Validates the sections of one router, added file by file. Their errors are in `faults`.

    entities  valid ones, in the order of the files
    warned    lines for the log
    left_out  sections that are dropped, without stopping the start (§1.4)
    idle      attributes that only the router sets: the file's values for them have no effect
    """

    def __init__(self, schema: Schema, *, make_id: Callable[[str], str], refuse: Refuse, is_service: IsService) -> None:
        """Begins with no sections.

        make_id  returns an id for a router without one, by its mode
        """
        self.entities: list[ConfiguredEntity] = []
        self.faults: list[Fault] = []
        self.warned: list[Warned] = []
        self.left_out: list[LeftOut] = []
        self.idle: list[LeftOut] = []
        self._schema = schema
        self._make_id = make_id
        self._refuse = refuse
        self._names = UniqueNames()
        self._numbers: dict[str, int] = {}
        # The names that the sections of each type give, valid or not. So a wrong attribute is one fault, and not
        # another fault in each section that refers to this one.
        self._given: dict[str, set[str]] = {name: set() for name in APPLY_ORDER}
        self._named = Named(names=self._given, is_service=is_service)
        self._at_fault: set[str] = set()

    def of_type(self, short_name: str) -> Iterator[ConfiguredEntity]:
        return (each for each in self.entities if each.type == short_name)

    def ordered(self) -> tuple[ConfiguredEntity, ...]:
        """Returns the entities in the order in which they take effect.

        Entities of one type keep the order of the files.
        """
        return tuple(sorted(self.entities, key=lambda each: APPLY_ORDER.index(each.type)))

    def add(self, sections: Iterable[Section], *, only: str | None = None) -> None:
        """Validates all sections. Keeps those of the type `only`, or all."""
        for section in sections:
            entity_type = self._schema.find(section.type)
            if entity_type is None or entity_type.short_name not in APPLY_ORDER:
                self._blame(section, entity_type, self._unknown_type(section, entity_type))
                continue
            errors = list(_errors_of_form(entity_type, section))
            made = None if errors else self._made(entity_type, section, errors)
            if made is not None and only in (None, made.type):
                self._take(entity_type, made, section, errors)
            for error in errors:
                self._blame(section, entity_type, error)

    def complete(self) -> None:
        """Completes the validation after the main file.

        Adds the permanent entities, and checks rules over several sections.
        """
        self._add_missing()
        for each in self.entities:
            entity_type = self._schema.types[each.type]
            for error in self._whole_errors(entity_type, each):
                attribute = error.attribute or ""
                self._note(error, each.source, each.type, attribute)

    def dropped(self) -> Iterator[LeftOut]:
        """Yields the entities that the running router refuses one by one, with errors in its log (§1.4).

        Uses the same function as the router. Startup does not call this, because it finds these entities itself.
        """
        existing = {kind.name: Existing() for kind in KINDS if isinstance(kind, CoreKind)}
        for number, each in enumerate(self.ordered()):
            entity_type = self._schema.types[each.type]
            kind = kind_of(entity_type)
            if not isinstance(kind, CoreKind):
                continue
            name = str(each.attributes["name"])
            try:
                normalized = kind.normalized(entity_type, name, each.attributes, existing, _ignore)
            except ValidationError as error:
                text = f"Error performing CREATE of {entity_type.long_name}: {error}"
                yield LeftOut(text=text, source=each.source, attribute=error.attribute or "")
                continue
            existing[kind.name].add(kind.columns(entity_type, normalized, name, str(number)))

    def _unknown_type(self, section: Section, entity_type: EntityType | None) -> ValidationError:
        if entity_type is None:
            return self._schema.unknown_section(section.type)
        return ValidationError(f"Can't find implementation '{entity_type.class_word}' for '{entity_type.long_name}'")

    def _made(
        self, entity_type: EntityType, section: Section, errors: list[ValidationError]
    ) -> ConfiguredEntity | None:
        kind = kind_of(entity_type)
        try:
            given = kind.implied(section.attributes)
        except ValidationError as error:
            errors.append(error)
            return None
        attributes, wrong = entity_type.validated(given, partial(self._warn_of, section))
        errors += wrong
        for name in section.attributes:
            self._look_at_read_only(entity_type, section, name)
        for text in kind.idle(given):
            self._warn_of(section, "CONN_MGR", f"{entity_type.title(section.attributes)}: {text}")
        if kind.deprecation is not None:
            self._warn_of(section, "AGENT", kind.deprecation)
        if given.get("name") is not None:
            self._given[entity_type.short_name].add(str(given["name"]))
        if wrong:
            return None
        return ConfiguredEntity(
            type=entity_type.short_name,
            attributes=self._with_defaults(entity_type, attributes),
            source=_canonical(entity_type, section.source),
        )

    def _take(
        self, entity_type: EntityType, made: ConfiguredEntity, section: Section, errors: list[ValidationError]
    ) -> None:
        if (found := self._refuse(made.type, made.attributes)) is not None:
            self._note(found, made.source, made.type, found.attribute)
        kind = kind_of(entity_type)
        if (text := kind.ignored(made.attributes)) is not None:
            self.left_out.append(LeftOut(text=text, source=section.source))
            return
        try:
            self._add(entity_type, made)
        except ValidationError as error:
            errors.append(error)

    def _add(self, entity_type: EntityType, made: ConfiguredEntity) -> None:
        """Adds an entity under its name and identity. Errors: ValidationError."""
        number = self._numbers.get(made.type, 0)
        identity = kind_of(entity_type).identity(entity_type, made.attributes, number)
        named = {**made.attributes, "name": default_name(made.attributes, identity), "identity": identity}
        source = made.source
        place = f" ({source.file}:{source.line})" if source.line is not None else ""
        self._names.claim(entity_type, named, entity_type.title(named), place)
        self._numbers[made.type] = number + 1
        self.entities.append(replace(made, attributes=named))

    def _add_missing(self) -> None:
        """Adds the entities that always exist: router, policy, one log per module."""
        wanted: list[tuple[str, dict[str, object]]] = [
            (name, {}) for name in ("router", "policy") if not any(self.of_type(name))
        ]
        configured = {each.attributes["module"] for each in self.of_type("log")}
        wanted += [("log", {"module": module}) for module in MODULES if module not in configured]
        for name, given in wanted:
            entity_type = self._schema.types[name]
            attributes = self._with_defaults(entity_type, entity_type.validate(given, self._warn))
            try:
                self._add(entity_type, ConfiguredEntity(type=name, attributes=attributes))
            except ValidationError as error:
                self._note(error, SourceLocation(), name, "")

    def _with_defaults(self, entity_type: EntityType, attributes: dict[str, object]) -> dict[str, object]:
        """Adds the defaults that are not constants."""
        if entity_type.short_name == "router" and attributes.get("id") is None:
            attributes["id"] = self._make_id(str(attributes["mode"]))
        return kind_of(entity_type).completed(attributes)

    def _whole_errors(self, entity_type: EntityType, each: ConfiguredEntity) -> Iterator[ValidationError]:
        kind = kind_of(entity_type)
        if "router" not in self._at_fault:  # the mode itself may be wrong; its section may come after the listeners
            mode = str(next(self.of_type("router")).attributes["mode"])
            title = entity_type.title(each.attributes)
            if (problem := kind.role_problem(title, each.attributes, mode)) is not None:
                yield ValidationError(problem, "role")
        try:
            kind.check(entity_type, each.attributes)
        except ValidationError as error:
            yield error
        yield from kind.reference_faults(each.attributes, self._named)

    def _look_at_read_only(self, entity_type: EntityType, section: Section, name: str) -> None:
        attribute = entity_type.attributes.get(entity_type.canonical_names.get(name, ""))
        # For types that can be updated, the schema says what an update may give. The file may give more.
        is_open = "UPDATE" in entity_type.operations or kind_of(entity_type).deprecation is not None
        if attribute is None or is_open or not attribute.is_read_only:
            return
        text = f"'{name}' is set by the router: what the file gives it has no effect"
        self.idle.append(LeftOut(text=text, source=section.source, attribute=name))
        self._warn_of(section, "AGENT", f"{entity_type.title(section.attributes)}: {text}")

    def _blame(self, section: Section, entity_type: EntityType | None, error: ValidationError) -> None:
        source, attribute = section.source, error.attribute or ""
        if entity_type is not None and (attribute,) not in source.places:
            source = _canonical(entity_type, source)
        self._note(error, source, section.type, attribute)

    def _note(self, found: ValidationError | Refusal, source: SourceLocation, section: str, attribute: str) -> None:
        self._at_fault.add(section)
        if isinstance(found, Refusal):
            reason, kind, error = found.reason, "Configuration", None
        else:
            reason, error = str(found), found
            kind = found.kind if isinstance(found, RuleError) else EXCEPTION
        fault = Fault(
            reason=reason,
            kind=kind,
            error=error,
            section=section,
            attribute=attribute,
            source=source,
        )
        self.faults.append(fault)

    def _warn_of(self, section: Section, module: str, text: str) -> None:
        """Adds a warning about a section, with its place."""
        source = section.source
        self._warn(module, f"{text} ({source.file}:{source.line})" if source.line is not None else text)

    def _warn(self, module: str, text: str) -> None:
        self.warned.append(Warned(module=module, text=text))


def _ignore(_module: str, _text: str) -> None:
    """Ignores a warning that is reported elsewhere."""


def _errors_of_form(entity_type: EntityType, section: Section) -> Iterator[ValidationError]:
    if "identity" in section.attributes:
        text = entity_type.title(section.attributes)
        yield RuleError(f"'identity' attribute cannot be specified: {text} gets one", "identity")
    for name, value in section.attributes.items():
        if value is None:
            # A null would mean the default, which may be less strict.
            yield ValidationError(f"{entity_type.long_name}: '{name}' is null: give it a value, or leave it out", name)


def _canonical(entity_type: EntityType, source: SourceLocation) -> SourceLocation:
    """Returns the source with canonical names of attributes."""
    names = entity_type.canonical_names
    places = {(names.get(str(name), name), *inside): place for (name, *inside), place in source.places.items()}
    return replace(source, places=places)
