"""Policy files: a JSON array of `["vhost", {attributes}]`, or a router's `.conf`; every rule knows its file and line.

Pure: texts in, values out. What a file may hold is described by schemas/policy.json; see validation.py.
Source: docs/spec/policy-and-auth.md §2.1.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from policy.attributes import Path, VhostSource
from policy.files.conf import parse_conf
from policy.files.conf_text import ConfError
from policy.files.json_places import Places
from policy.files.positioned_json import Document, NotJson, Problem, parse, split


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
    return entities_of(parse_policy(text, file), file)


def entities_of(document: Document, file: str) -> tuple[Entity, ...]:
    """The entities of a file that has been read. Raises PolicyFileError, with every problem of the outer form."""
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
    places = Places(text)
    for element, offset, line in elements:
        match element:
            case [str() as type_, dict() as attributes]:
                lines, columns = (_Half(places, offset, half) for half in (0, 1))
                source = VhostSource(file=file, line=line, lines=lines, columns=columns)
                entities.append(Entity(type=type_, attributes=attributes, source=source))
            case _:
                return None
    return tuple(entities)


class _Half(Mapping[Path, int]):
    """One half of the places inside the attributes of the element at `offset`: 0 the lines, 1 the columns."""

    __slots__ = ("_half", "_offset", "_places")

    def __init__(self, places: Places, offset: int, half: int) -> None:
        self._places = places
        self._offset = offset
        self._half = half

    def __getitem__(self, path: Path) -> int:
        if not path and not self._half:
            raise KeyError(path)
        # The element itself begins at its bracket, not at its attributes.
        place = self._places.place(self._offset, (1, *path) if path else ())
        if place is None:
            raise KeyError(path)
        return place[self._half]

    def __iter__(self) -> Iterator[Path]:
        inside = (path[1:] for path in self._places.paths(self._offset) if path[:1] == (1,))
        return (path for path in inside if path or self._half)

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
