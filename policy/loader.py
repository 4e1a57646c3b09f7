"""Policy files: a JSON array of `["vhost", {attributes}]`, or a router's `.conf`; every rule knows its file and line.

Pure: texts in, values out. What a file may hold is described by schemas/policy.json; see validation.py.
Source: docs/spec/policy-and-auth.md §2.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from policy.attributes import Path, VhostSource
from policy.conf import parse_conf
from policy.positioned_json import Document, NotJson, Problem, parse


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


def parse_policy(text: str, file: str) -> Document:
    """One file, whatever it says: `.conf` by its name, else JSON. Raises PolicyFileError when it cannot be read."""
    try:
        return parse_conf(text) if file.endswith(".conf") else parse(text)
    except NotJson as error:
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
