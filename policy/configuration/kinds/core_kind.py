"""The base of the configurable kinds of the routing core, and what their attributes have in common. Pure.

Sources: docs/spec/management.md §6.5, §8.6, §8.7. Error texts and the order of checks are those of §8.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

from policy.addressing.patterns import configured_tokens
from policy.configuration.kinds.kind import Attributes, Kind, Row
from policy.configuration.schema import EntityType, ValidationError
from policy.configuration.value_texts import shown

MAX_PHASE = 9
SEPARATORS = "./"

Warn = Callable[[str, str], None]


class Existing:
    """The entities of one core type, indexed by their unique values: ten thousand are added in linear time."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        """Adds the rows.

        rows  columns of §6.5.
        """
        self.rows: list[Row] = []
        self._names: set[object] = set()
        self._forms: set[tuple[str, ...]] = set()
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        self.rows.append(row)
        if row.get("name") is not None:
            self._names.add(row["name"])
        if row.get("prefix") or row.get("pattern"):
            self._forms.add(form(row)[1])

    def remove(self, row: Row) -> None:
        self.rows.remove(row)
        self._names.discard(row.get("name"))
        if row.get("prefix") or row.get("pattern"):
            self._forms.discard(form(row)[1])

    def has_name(self, name: str) -> bool:
        return name in self._names

    def has_form(self, tokens: tuple[str, ...]) -> bool:
        """Returns whether an address has this pattern. Link routes may have equal patterns."""
        return tokens in self._forms


# By short type name: all core types that can be configured.
AllExisting = Mapping[str, Existing]


class CoreKind(Kind):
    """Configured entities that the routing core owns. In the file they have a second, agent-side identity."""

    # A name that is taken is refused before the attributes are checked; otherwise `attributes` refuses it.
    refuses_taken_names: ClassVar[bool] = True
    # The name by which the core logs that an entity of the file could not be configured; None: it logs nothing.
    logged_as: ClassVar[str | None] = None
    # (type, column): entities of that type that name this entity in that column are deleted with it.
    parts: ClassVar[tuple[str, str] | None] = None

    def normalized(
        self, entity_type: EntityType, name: str | None, body: object, existing: AllExisting, warn: Warn
    ) -> dict[str, object]:
        """Returns the attributes of a new entity, by canonical name: checked, converted, with defaults.

        name    the requested name, or None
        Errors  ValidationError; its text is the statusDescription
        """
        is_taken = name is not None and existing[self.name].has_name(name)
        refuse_if(self.refuses_taken_names and is_taken, "Name conflicts with an existing entity")
        if not isinstance(body, Mapping):
            raise ValidationError("Body of request must be a map")
        return self.attributes(_canonical(entity_type, body, warn), name, existing)

    @abstractmethod
    def attributes(self, given: Attributes, name: str | None, existing: AllExisting) -> dict[str, object]:
        """Returns the attributes as `normalized` does, from the known attributes of a request, by canonical name."""

    def columns(
        self, entity_type: EntityType, attributes: Attributes, name: str | None, identity: str
    ) -> dict[str, object]:
        """Returns all columns of an entity with these normalized attributes. Columns that do not apply are None."""
        row: dict[str, object] = dict.fromkeys(entity_type.columns)
        row.update((column, attributes[column]) for column in row if column in attributes)
        named = {"name": name, "identity": identity, "type": entity_type.long_name}
        return row | named | self.derived(entity_type, attributes)

    def derived(self, entity_type: EntityType, attributes: Attributes) -> dict[str, object]:
        """Returns the columns that are not attributes of the same name."""
        return {}


class CountingKind(CoreKind):
    """Entities with counters, which begin at 0, and with their own error text for a name that is taken."""

    refuses_taken_names = False

    def derived(self, entity_type: EntityType, attributes: Attributes) -> dict[str, object]:
        return {column: 0 for column in entity_type.columns if column.endswith("Count")}


def _canonical(entity_type: EntityType, body: Mapping[object, object], warn: Warn) -> dict[str, object]:
    """Returns the known keys of the body by canonical name, without nulls. The core ignores unknown keys."""
    given: dict[str, object] = {}
    for key, value in body.items():
        canonical = entity_type.canonical_names.get(key) if isinstance(key, str) else None
        if canonical is None or value is None:
            continue
        refuse_if(canonical in given, f"Both '{key}' and another name of '{canonical}' cannot be specified")
        given[canonical] = value
        if key in entity_type.attributes[canonical].aliases:
            warn(
                "AGENT",
                f"The '{key}' attribute of {entity_type.short_name} has been deprecated. Use '{canonical}' instead",
            )
    return given


def refuse_if(is_wrong: object, text: str) -> None:
    """Raises an error if `is_wrong`. Errors: ValidationError."""
    if is_wrong:
        raise ValidationError(text)


def refuse_both(given: Attributes) -> None:
    refuse_if(
        "connection" in given and "containerId" in given,
        "Both connection and containerId cannot be specified. Specify only one",
    )


def presence_problem(given: Attributes) -> str | None:
    """Returns the error text unless there is exactly one of prefix and pattern. None if there is."""
    if "prefix" in given and "pattern" in given:
        return "Cannot specify both a 'prefix' and a 'pattern' attribute"
    if "prefix" not in given and "pattern" not in given:
        return "Either a 'prefix' or 'pattern' attribute must be provided"
    return None


def ignored_form(attributes: Attributes, missing: str, both: str) -> str | None:
    """Returns the warning of `Kind.ignored` for an entity with a prefix or a pattern, else None.

    missing, both  the names of the entity in the two texts
    """
    prefix, pattern = attributes.get("prefix"), attributes.get("pattern")
    if prefix is None and pattern is None:
        return f"Must set either 'prefix' or 'pattern' attribute: ignoring {missing}"
    if prefix is not None and pattern is not None:
        return f"Cannot set both 'prefix' and 'pattern': ignoring {both} {prefix}, {pattern}"
    return None


def form(given: Attributes) -> tuple[dict[str, object], tuple[str, ...]]:
    """Returns the prefix or pattern, without separators around a prefix, and its tokens, for comparison."""
    is_prefix = given.get("prefix") is not None
    name, word = ("prefix", "Prefix") if is_prefix else ("pattern", "Pattern")
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise ValidationError(f"{word} must be a non-empty string type")
    try:
        tokens = configured_tokens(value if is_prefix else None, value)
    except ValueError as error:
        raise ValidationError(f"{word} invalid - {error}") from None
    return {"prefix": value.strip(SEPARATORS)} if is_prefix else {"pattern": str(value)}, tokens


def direction_of(given: Attributes) -> str:
    direction = given["direction"]
    refuse_if(direction not in ("in", "out"), "Invalid value for 'direction'")
    return str(direction)


def phase_of(given: Attributes, name: str) -> int:
    phase = number(given.get(name, 0))
    if phase is None or not 0 <= phase <= MAX_PHASE:
        raise ValidationError("phase must be in the range 0-9")
    return phase


def texts(given: Attributes, *names: str) -> dict[str, object]:
    values = {name: given[name] for name in names if name in given}
    return {name: str(value) if isinstance(value, str) else shown(value) for name, value in values.items()}


def boolean(value: object) -> bool:
    return value.lower() in ("yes", "true", "on") if isinstance(value, str) else bool(value)


def number(value: object) -> int | None:
    """Returns an integer, or None for a value that is not an integer of at most nine digits."""
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    is_short = isinstance(value, str) and len(value) < 10 and value.isascii()
    if is_short and isinstance(value, str) and value.removeprefix("-").isdecimal():
        return int(value)
    return None
