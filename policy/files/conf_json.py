"""Router configurations in JSON: an array of `["section", {attributes}]`, read as tolerantly as by the router.

A comma may come before a closing bracket, and names are converted to camel case.
Pure; no schema is consulted. Source: docs/spec/management.md §1.2.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NoReturn

from policy.attributes import Path
from policy.files.conf_text import TOO_DEEP, ConfError, ConfText, camel_case
from policy.files.json_sections import Places, is_pair, json_sections
from policy.files.positioned_json import MAX_MAPS, Problem, after_blanks
from policy.files.sections import Section

_SHAPE = 'the file is an array of [ "section", { attributes } ]'


def conf_json_sections(text: str, file: str) -> list[Section]:
    """Returns the sections of a `.json` configuration, in order. Raises ConfError."""
    reading = ConfText(text)
    # `text` has no byte order mark any more: a second one is not valid JSON.
    has_mark = reading.json.startswith("\ufeff")
    sections = json_sections(reading.json, file, is_eager=True) if not has_mark else None
    if sections is None:
        _refuse(reading)
    return [_named(section) for section in sections]


def _named(section: Section) -> Section:
    """Returns the section with names in camel case. Only members of maps have places. Raises ConfError."""
    if (path := _too_deep(section.attributes)) is not None:
        _fail(section, path, TOO_DEEP)
    names = {name: camel_case(name) for name in section.attributes}
    if len(set(names.values())) != len(names):
        _fail(section, (), "an attribute of this section stands in it twice, in two spellings: keep one of them")
    attributes = {names[name]: value for name, value in section.attributes.items()}
    places = {(names[str(name)], *inside): place for (name, *inside), place in section.source.places.items()}
    source = replace(section.source, places=places)
    return replace(section, type=camel_case(section.type), attributes=attributes, source=source)


def _too_deep(members: Mapping[str, object], path: Path = ()) -> Path | None:
    """Returns the path of a map inside MAX_MAPS or more other maps, None if there is none."""
    if len(path) >= MAX_MAPS:
        return path
    deeper = (_too_deep(value, (*path, name)) for name, value in members.items() if isinstance(value, dict))
    return next((found for found in deeper if found is not None), None)


def _fail(section: Section, path: Path, text: str) -> NoReturn:
    line = section.source.line_of(path) or 1
    raise ConfError(Problem(line=line, column=section.source.column_of(path), text=text))


def _refuse(reading: ConfText) -> NoReturn:
    """Raises the ConfError for a text that `json_sections` does not read."""
    start = reading.at = after_blanks(reading.json, 0)
    value = reading.json_value()
    reading.at = after_blanks(reading.json, reading.at)
    if reading.at != len(reading.json):
        reading.fail("something follows the end of the JSON array")
    wrong = (index for index, element in enumerate(value if isinstance(value, list) else ()) if not is_pair(element))
    place = Places(reading.json).place(start, tuple(wrong)[:1])
    assert place is not None
    raise ConfError(Problem(line=place[0], column=place[1], text=_SHAPE))
