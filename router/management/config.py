"""Load a configuration: read, parse, validate, check across entities, order. Nothing is applied here.

Reads files through two functions that tests replace; everything else is pure but for the random router id.
Source: docs/spec/management.md §1.3, §1.4.
"""

import errno
import os
import secrets
import string
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from policy.attributes import SourceLocation
from policy.configuration.kinds import APPLY_ORDER, kind_of
from policy.configuration.log_levels import MODULES
from policy.configuration.refusals import Refusal
from policy.configuration.schema import EntityType, Schema, ValidationError
from policy.configuration.unique_names import RuleError, UniqueNames, default_name
from policy.files.regular import MAX_POLICY_BYTES, folder_names, is_policy_file, read_regular
from policy.files.sections import Section
from router.effects import Log, LogLevel
from router.management.grammar import ConfigError, parse_config

__all__ = [
    "ConfigError",
    "Configuration",
    "ConfiguredEntity",
    "Section",
    "is_policy_file",
    "load_config",
    "parse_config",
]

ROUTER_ID_CHARACTERS = string.ascii_letters + string.digits + "+_"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredEntity:
    """One entity, validated.

    type        short name
    attributes  by canonical name, converted, with defaults, `type`, `name` and `identity`. Secrets are as written
    source      the place of its section, with canonical names of attributes; of no file where the router adds it
    """

    type: str
    attributes: Mapping[str, object] = field(repr=False)
    source: SourceLocation = field(default_factory=SourceLocation, repr=False)


# (short name of the type, validated attributes) -> why the entity stops the start; None: it does not.
Refuse = Callable[[str, Mapping[str, object]], Refusal | None]


def _refuse_nothing(_type: str, _attributes: Mapping[str, object]) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The contents of a file, ready to be applied in order.

    entities    in the order of §1.3; always one router, one policy and one log entity per module
    early_logs  to be logged before the file's own log settings take effect
    late_logs   to be logged after
    passed_over  what of the file is left out with a warning, as 1.20 does: what and where
    """

    path: str
    entities: tuple[ConfiguredEntity, ...]
    early_logs: tuple[Log, ...] = ()
    late_logs: tuple[Log, ...] = ()
    passed_over: tuple[str, ...] = ()

    def of_type(self, short_name: str) -> tuple[ConfiguredEntity, ...]:
        return tuple(each for each in self.entities if each.type == short_name)

    @property
    def router(self) -> Mapping[str, object]:
        return self.of_type("router")[0].attributes

    @property
    def policy(self) -> Mapping[str, object]:
        return self.of_type("policy")[0].attributes


def read_file(path: str) -> str:
    """The text of a policy file. Errors: OSError, UnicodeDecodeError."""
    return _text_of(read_regular(path, MAX_POLICY_BYTES))


def read_main_file(path: str) -> str:
    """The text of the configuration that the command line names, which may be a pipe. Errors: as read_file."""
    return _text_of(read_regular(path, MAX_POLICY_BYTES, may_be_pipe=True))


def _text_of(content: bytes) -> str:
    # Some editors begin a file with a byte order mark, which means nothing.
    text = content.decode("utf-8-sig")
    # Lines as Python's text files have them: the errors and findings count them.
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _list_dir(folder: str) -> Sequence[str]:
    """The names of the policy files of a folder. Errors: OSError."""
    return folder_names(folder, is_policy_file)


def load_config(
    path: str,
    schema: Schema,
    *,
    read_text: Callable[[str], str] | None = None,
    list_dir: Callable[[str], Sequence[str]] = _list_dir,
    refuse: Refuse = _refuse_nothing,
) -> Configuration:
    """The configuration in the file `path`, with the vhosts of its policyDir.

    read_text  reads the file and those of policyDir; None: as the daemon does
    refuse     says why an entity that the schema admits is refused all the same

    Errors  ConfigError, about the first place in the file that is wrong; str() of it is what start-up prints.
    """
    try:
        text = (read_text or read_main_file)(path)
    except OSError as error:
        reason = f"Configuration file could not be opened: {path}: {error.strerror}"
        raise ConfigError(reason, path=path, kind="Not found") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(f"the file is not UTF-8 text: {error.reason}", path=path, line=line) from None
    if not text:
        raise ConfigError("Configuration file was empty", path=path, kind="Configuration")
    loading = _Loading(path, schema, refuse)
    loading.add_all(parse_config(text, path=path))
    loading.add_missing()
    loading.check_roles()
    loading.check_values()
    loading.refuse_first()
    loading.add_policy_dir(loading.policy_dir(), read_text or read_file, list_dir)
    return loading.configuration()


def load_policy_dir(
    folder: str,
    schema: Schema,
    *,
    attribute: str = "policyDir",
    read_text: Callable[[str], str] = read_file,
    list_dir: Callable[[str], Sequence[str]] = _list_dir,
) -> Configuration:
    """The vhosts of a policyDir, and nothing else, for a reload.

    attribute  the one of `policy` that names the folder
    Errors  ConfigError; `reason`, `file` and `line` say what is wrong and where.
    """
    loading = _Loading(folder, schema)
    loading.add_policy_dir(folder, read_text, list_dir, attribute=attribute)
    return loading.configuration()


class _Loading:
    def __init__(self, path: str, schema: Schema, refuse: Refuse = _refuse_nothing) -> None:
        self.path = path
        self.schema = schema
        self.refuse = refuse
        self.names = UniqueNames()
        self.numbers: dict[str, int] = {}
        self.entities: list[ConfiguredEntity] = []
        self.early: list[Log] = []
        self.late: list[Log] = []
        self.passed_over: list[str] = []
        self.errors: list[ConfigError] = []

    def configuration(self) -> Configuration:
        # Sorting is stable: entities of one type stay in the order of the file, those of policyDir behind them.
        ordered = sorted(self.entities, key=lambda each: APPLY_ORDER.index(each.type))
        return Configuration(
            path=self.path,
            entities=tuple(ordered),
            early_logs=tuple(self.early),
            late_logs=tuple(self.late),
            passed_over=tuple(self.passed_over),
        )

    def of_type(self, short_name: str) -> Iterator[ConfiguredEntity]:
        return (each for each in self.entities if each.type == short_name)

    def warn(self, module: str, text: str, level: LogLevel = "warning") -> None:
        self.early.append(Log(module=module, level=level, text=text))

    def add_all(self, sections: Sequence[Section], *, only: str | None = None) -> None:
        """Validate all; keep those of the type `only`, or all. What is wrong is in `errors` afterwards."""
        for section in sections:
            try:
                made = self.entity(section)
                if only not in (None, made.type):
                    continue
                self.check_refusal(made)
                if not self.is_ignored(made):
                    self.add(made)
            except ValidationError as error:
                line = _line_of(self.schema, section, error.attribute)
                self.errors.append(self.error(error, line, section.source.file))

    def entity(self, section: Section) -> ConfiguredEntity:
        entity_type = self.schema.find(section.type)
        if entity_type is None:
            name = self.schema.long_name(section.type)
            raise ValidationError(f"No such entity type '{name}'{self.schema.suggestion(section.type)}")
        if entity_type.short_name not in APPLY_ORDER:
            raise ValidationError(f"Can't find implementation '{entity_type.class_word}' for '{entity_type.long_name}'")
        if "identity" in section.attributes:
            text = entity_type.text(section.attributes)
            raise RuleError(f"'identity' attribute cannot be specified {text}", "identity")
        for name, value in section.attributes.items():
            if value is None:
                # It would stand for the default, which may be the laxer one.
                raise ValidationError(
                    f"{entity_type.long_name}: '{name}' is null: give it a value, or leave it out", name
                )
        attributes = entity_type.validate(kind_of(entity_type).implied(section.attributes), self.warn)
        if (deprecation := kind_of(entity_type).deprecation) is not None:
            self.warn("AGENT", deprecation)
        return ConfiguredEntity(
            type=entity_type.short_name,
            attributes=self.with_defaults(entity_type, attributes),
            source=_canonical(entity_type, section.source),
        )

    def with_defaults(self, entity_type: EntityType, attributes: dict[str, object]) -> dict[str, object]:
        """Defaults that are not constants."""
        if entity_type.short_name == "router" and attributes.get("id") is None:
            attributes["id"] = _random_id(str(attributes["mode"]))
        return kind_of(entity_type).completed(attributes)

    def add(self, made: ConfiguredEntity) -> None:
        entity_type = self.schema.types[made.type]
        number = self.numbers.get(made.type, 0)
        identity = kind_of(entity_type).identity(entity_type, made.attributes, number)
        attributes = {
            **made.attributes,
            "name": default_name(made.attributes, identity),
            "identity": identity,
        }
        self.names.claim(entity_type, attributes)
        self.numbers[made.type] = number + 1
        self.entities.append(replace(made, attributes=attributes))

    def add_missing(self) -> None:
        """The entities that are always there: router, policy, one log per module."""
        wanted: list[tuple[str, dict[str, object]]] = [
            (name, {}) for name in ("router", "policy") if not any(self.of_type(name))
        ]
        configured = {each.attributes["module"] for each in self.of_type("log")}
        wanted += [("log", {"module": module}) for module in MODULES if module not in configured]
        for name, given in wanted:
            entity_type = self.schema.types[name]
            attributes = self.with_defaults(entity_type, entity_type.validate(given, self.warn))
            try:
                self.add(ConfiguredEntity(type=name, attributes=attributes))
            except ValidationError as error:
                self.errors.append(self.error(error))

    def refuse_first(self) -> None:
        """Raise the error that stands first in the file, if there is one: later ones may follow from it."""
        if self.errors:
            raise min(self.errors, key=lambda error: error.line or sys.maxsize)

    def is_ignored(self, made: ConfiguredEntity) -> bool:
        """A mistake in an address or link route costs that entity only (§1.4)."""
        text = kind_of(self.schema.types[made.type]).ignored(made.attributes)
        if text is None:
            return False
        self.late.append(Log(module="ROUTER", level="warning", text=text))
        self.passed_over.append(f"{text} ({made.source.file}:{made.source.line})")
        return True

    def check_roles(self) -> None:
        """Once the router's mode is known: its section may stand behind the listeners."""
        if self.errors:  # the mode may be what is wrong
            return
        mode = str(next(self.of_type("router")).attributes["mode"])
        for each in self.entities:
            entity_type = self.schema.types[each.type]
            problem = kind_of(entity_type).role_problem(entity_type, each.attributes, mode)
            if problem is not None:
                line = each.source.line_of(("role",))
                self.errors.append(ConfigError(problem, path=self.path, file=each.source.file, line=line))

    def check_values(self) -> None:
        for each in self.entities:
            entity_type = self.schema.types[each.type]
            try:
                kind_of(entity_type).check(entity_type, each.attributes)
            except ValidationError as error:
                line = each.source.line_of((error.attribute or "",))
                self.errors.append(self.error(error, line, each.source.file))

    def check_refusal(self, made: ConfiguredEntity) -> None:
        if (found := self.refuse(made.type, made.attributes)) is not None:
            line, file = made.source.line_of((found.attribute,)), made.source.file
            error = ConfigError(found.reason, path=self.path, line=line, kind="Configuration", file=file)
            self.errors.append(error)

    def policy_dir(self) -> str:
        return str(next(self.of_type("policy")).attributes["policyDir"])

    def add_policy_dir(
        self,
        folder: str,
        read_text: Callable[[str], str],
        list_dir: Callable[[str], Sequence[str]],
        *,
        attribute: str = "policyDir",
    ) -> None:
        if not folder:
            return
        file = folder
        left = MAX_POLICY_BYTES
        try:
            names = sorted(filter(is_policy_file, list_dir(folder)))
            for name in names:
                file = os.path.join(folder, name)
                text = read_text(file)
                left -= len(text.encode())
                if left < 0:
                    file = folder
                    raise OSError(errno.EFBIG, f"its policy files have more than {MAX_POLICY_BYTES >> 20} MiB together")
                self.add_all(parse_config(text, path=file), only="vhost")
                self.refuse_first()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            places = next((each.source.places for each in self.of_type("policy")), {})
            line, _ = places.get((attribute,), (None, None))
            raise ConfigError(f"{attribute}: '{file}' cannot be read: {why}", path=self.path, line=line) from None

    def error(self, error: ValidationError, line: int | None = None, file: str | None = None) -> ConfigError:
        kind = error.kind if isinstance(error, RuleError) else "Python: Exception"
        return ConfigError(str(error), path=self.path, line=line, kind=kind, file=file, logs=tuple(self.early))


def _random_id(mode: str) -> str:
    random = "".join(secrets.choice(ROUTER_ID_CHARACTERS) for _ in range(15))
    return f"{mode.capitalize()}_{random}"


def _canonical(entity_type: EntityType, source: SourceLocation) -> SourceLocation:
    """The source with canonical names of attributes."""
    names = entity_type.canonical_names
    places = {(names.get(str(name), name), *inside): place for (name, *inside), place in source.places.items()}
    return replace(source, places=places)


def _line_of(schema: Schema, section: Section, attribute: str | None) -> int | None:
    """The line of an attribute, given by any of its names; else that of the section."""
    source, entity_type = section.source, schema.find(section.type)
    if attribute is None or entity_type is None:
        return source.line
    if (attribute,) in source.places:
        return source.line_of((attribute,))
    return _canonical(entity_type, source).line_of((attribute,))
