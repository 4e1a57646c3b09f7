"""Reads the attribute values of vhosts and groups: the accepted values, and the exact error texts for refused ones.

Source: docs/spec/policy-and-auth.md §2.2.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from policy.hosts import Resolve

MAX_CONNECTIONS = 65535
# The characters stripped around an item (§2.2). Attack: a user name of `*` and a no-break space, which no user has,
# would become `*`, all users, if the no-break space were stripped.
BLANKS: Final = " \t\r\n"
_INTEGER = re.compile(r"[ \t]*[+-]?[0-9]+[ \t]*", re.ASCII)
# Stops a number of a million digits from occupying the router for minutes: Python converts in quadratic time.
_MAX_DIGITS = 100

Path = tuple[str | int, ...]  # keys and list indexes inside a vhost's attribute map


Place = tuple[int, int]  # line, column; 1-based


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLocation:
    """The place of a section of a file, such as a vhost.

    line, column  of its beginning, 1-based
    places        path inside the attribute map -> place of the key, or of the value if it has no key, as far as the
                  reader knows: ("groups", "apps", "targets", 0)
    """

    file: str | None = None
    line: int | None = None
    column: int = 1
    places: Mapping[Path, Place] = field(default_factory=dict, hash=False)

    def line_of(self, path: Path) -> int | None:
        """Returns the line of `path`, or of the nearest enclosing value whose place is known."""
        place = self._nearest(path)
        return self.line if place is None else place[0]

    def column_of(self, path: Path) -> int:
        """Returns the column of the place that `line_of` finds; 1 if it is unknown."""
        place = self._nearest(path)
        return self.column if place is None else place[1]

    def _nearest(self, path: Path) -> Place | None:
        for length in range(len(path), 0, -1):
            if (place := self.places.get(path[:length])) is not None:
                return place
        return None


class PolicyError(Exception):
    """A ruleset is refused. str() is exactly the text of §2.2. `file` and `line` give the place, if it is known."""

    def __init__(self, text: str, *, file: str | None = None, line: int | None = None) -> None:
        super().__init__(text)
        self.file = file
        self.line = line


class InvalidValue(Exception):
    """One value is wrong. str() is the part of §2.2's text about the value."""


def refuse_null(value: object) -> None:
    """Refuses a null. It would mean the default, which may allow more than an absent value. Raises InvalidValue."""
    if value is None:
        raise InvalidValue("is null: give it a value, or leave it out.")


def read_integer(value: object, maximum: int | None = None, *, minimum: int = 0) -> int:
    """Returns an integer ≥ `minimum`, from a JSON number (truncated) or a numeric string. Raises InvalidValue."""
    number: int | None = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = int(value)
        except (ValueError, OverflowError):
            number = None
    elif isinstance(value, str) and len(value) <= _MAX_DIGITS and _INTEGER.fullmatch(value):
        number = int(value)
    if number is None:
        raise InvalidValue(f"Value '{value}' does not resolve to an integer.")
    if number < minimum:
        raise InvalidValue(f"Value '{value}' is below minimum '{minimum}'.")
    if maximum is not None and number > maximum:
        raise InvalidValue(f"Value '{value}' is above maximum '{maximum}'.")
    return number


def read_boolean(value: object) -> bool:
    """Returns a JSON boolean, or true/false in any case. Refuses yes, no, on, off, 0 and 1. Raises InvalidValue."""
    if isinstance(value, bool):
        return value
    word = value.lower() if isinstance(value, str) else ""
    if word not in ("true", "false"):
        raise InvalidValue(f"has illegal boolean value '{value}'.")
    return word == "true"


def split_items(value: object) -> list[str]:
    """Returns the items of a CSV string or a JSON list as written, including blank ones.

    Only commas separate items. BLANKS around the items of a CSV string are stripped. The items of a list are unchanged,
    since an LDAP name or an address may contain commas. Raises InvalidValue.
    """
    if isinstance(value, str):
        return [item.strip(BLANKS) for item in value.split(",")]
    if not isinstance(value, list | tuple):
        # The missing quote is in the C router's text, which operators search for in their logs.
        raise InvalidValue(f"has illegal value '{value}'. Type must be 'str' or 'list' but is '{type(value)};")
    for item in value:
        if not isinstance(item, str):
            raise InvalidValue(f"has illegal value '{item}'. Type must be 'str' but is '{type(item)};")
    return list(value)


def split_names(value: object) -> list[str]:
    """Returns user names as `split_items` does, but splits list items at commas too: "a,b" is two names.

    The C router reads them so. Attack: `" bob "` would match no user, and bob would be in a group that allows more.
    """
    return [name.strip(BLANKS) for item in split_items(value) for name in item.split(",")]


def read_names(value: object) -> tuple[str, ...]:
    """Returns user names as `read_items` does. Raises InvalidValue."""
    return tuple(dict.fromkeys(item for item in split_names(value) if item))


def notes_on_names(value: object) -> Iterator[str]:
    """Yields a note on each list item that is several users. A name with a comma cannot be listed."""
    for item in value if isinstance(value, list | tuple) else ():
        if len(names := read_names(item)) > 1:
            yield f"item '{item}' is the users {', '.join(map(repr, names))}: commas separate in a list too"


def read_items(value: object) -> tuple[str, ...]:
    """Returns the items without blank and repeated ones, in the order written. Raises InvalidValue."""
    return tuple(dict.fromkeys(item for item in split_items(value) if item))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One vhost that is being read, with functions to resolve names, to warn and to word an error."""

    vhost: str
    source: SourceLocation | None
    resolve: Resolve
    warnings: list[str]

    def error(self, text: str, *path: str | int) -> PolicyError:
        """Returns the error that refuses the vhost because of the value at `path` of its attribute map."""
        source = self.source
        return PolicyError(
            f"Policy '{self.vhost}' is invalid: {text}",
            file=source.file if source is not None else None,
            line=source.line_of(path) if source is not None else None,
        )
