"""Policy files: a JSON array of `["vhost", {attributes}]`, or a router's `.conf`; every rule knows its file and line.

Pure: texts in, values out. What a file may hold is described by schemas/policy.json; see validation.py.
Source: docs/spec/policy-and-auth.md §2.1.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from policy.attributes import Path, VhostSource
from policy.conf import parse_conf
from policy.conf_text import ConfError
from policy.positioned_json import Document, NotJson, Places, Problem, parse, split


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """One element of a policy file, of which only "vhost" counts, or one section of a configuration."""

    type: str
    attributes: Mapping[str, object]
    source: VhostSource


class PolicyFileError(Exception):
    """A policy file cannot be used. str() has one line for each problem: `file:line:column: text`."""

    def __init__(self, file: str, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(f"{file}:{problem.line}:{problem.column}: {problem.text}" for problem in problems))
        self.file = file
        self.problems = problems


def load_entities(text: str, file: str) -> tuple[Entity, ...]:
    """The entities of one policy file. Raises PolicyFileError, with every problem of the outer form."""
    if (plain := plain_entities(text, file)) is not None:
        return plain
    document = parse_policy(text, file)
    entities: list[Entity] = []
    problems = list(document.problems)
    places = _places_by_element(document)
    if not isinstance(document.value, list):
        raise PolicyFileError(
            file, (*problems, _problem(document, (), 'a policy is a list: [ ["vhost", {...}], ... ]'))
        )
    for index, element in enumerate(document.value):
        match element:
            case [str() as type_, dict() as attributes]:
                line, column = document.position_of((index,))
                inside = places.get(index, {})
                source = VhostSource(
                    file=file,
                    line=line,
                    lines={path: place[0] for path, place in inside.items() if path},
                    columns={path: place[1] for path, place in inside.items() if path} | {(): column},
                )
                entities.append(Entity(type=type_, attributes=attributes, source=source))
            case _:
                text = 'each element of a policy is a pair like ["vhost", {...}]'
                problems.append(_problem(document, (index,), text))
    if problems:
        raise PolicyFileError(file, tuple(problems))
    return tuple(entities)


def plain_entities(text: str, file: str) -> tuple[Entity, ...] | None:
    """The entities of a JSON file in which nothing is wrong with the outer form, read fast; None for all others."""
    if file.endswith(".conf") or (elements := split(text)) is None:
        return None
    entities = []
    file_places = Places(text)
    for element, offset, line in elements:
        match element:
            case [str() as type_, dict() as attributes]:
                places = _ElementPlaces(file_places, offset)
                source = VhostSource(file=file, line=line, lines=_Lines(places, 0), columns=_Lines(places, 1))
                entities.append(Entity(type=type_, attributes=attributes, source=source))
            case _:
                return None
    return tuple(entities)


class _ElementPlaces:
    """Where everything in one element stands. Found out when somebody asks, which of most vhosts nobody does."""

    __slots__ = ("_file", "_known", "_offset")

    def __init__(self, file: Places, offset: int) -> None:
        self._file = file
        self._offset = offset
        self._known: dict[Path, tuple[int, int]] | None = None

    def all(self) -> Mapping[Path, tuple[int, int]]:
        if self._known is None:
            places = self._file.inside(self._offset)
            self._known = {path[1:]: place for path, place in places.items() if path[:1] == (1,)}
            # The element itself begins at its bracket, not at its attributes.
            self._known[()] = places[()]
        return self._known


class _Lines(Mapping[Path, int]):
    """One half of the places as a mapping: the lines, or the columns."""

    __slots__ = ("_half", "_places")

    def __init__(self, places: _ElementPlaces, half: int) -> None:
        self._places = places
        self._half = half

    def __getitem__(self, path: Path) -> int:
        if not path and not self._half:
            raise KeyError(path)
        return self._places.all()[path][self._half]

    def __iter__(self) -> Iterator[Path]:
        return (path for path in self._places.all() if path or self._half)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def parse_policy(text: str, file: str) -> Document:
    """One file, whatever it says: `.conf` by its name, else JSON. Raises PolicyFileError when it cannot be read."""
    try:
        return parse_conf(text) if file.endswith(".conf") else parse(text)
    except (NotJson, ConfError) as error:
        raise PolicyFileError(file, (error.problem,)) from None


def _problem(document: Document, path: Path, text: str) -> Problem:
    line, column = document.position_of(path)
    return Problem(line=line, column=column, text=text)


def _places_by_element(document: Document) -> dict[int, dict[Path, tuple[int, int]]]:
    """Index of an element -> path inside its attributes -> (line, column)."""
    found: dict[int, dict[Path, tuple[int, int]]] = {}
    for path, place in document.positions.items():
        match path:
            case (int() as index, 1, *inner):
                found.setdefault(index, {})[tuple(inner)] = place
    return found
