"""Checks a policy file against schemas/policy.json. Reports every violation, with its place.

Pure. The router reads policy files without this check, by the rules of vhosts.py. The check is for people.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from itertools import chain
from typing import Any, TypeGuard

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

import schemas
from policy.attributes import InvalidValue
from policy.files.conf import document_of
from policy.files.loader import PolicyFileError, parse_policy, read_sections
from policy.files.positioned_json import Document, Problem
from policy.files.sections import Section
from policy.groups import MAX_FRAME_SIZE, MAX_NAME_BYTES, MAX_REPLY_WINDOW_S, MAX_VALUE
from policy.rights import read_rights
from policy.windows import read_instant

MAX_SHOWN_CHARACTERS = 60


def load_sections(text: str, file: str, *, is_policy: bool = False) -> tuple[Section, ...]:
    """Returns the sections of one file, which is valid by the schema. Raises PolicyFileError with all problems.

    is_policy  as for read_sections
    """
    sections = read_sections(text, file, is_policy=is_policy)
    if sections is not None and all(_is_plain_section(section) for section in sections):
        return sections
    document = document_of(sections) if sections and sections[0].is_of_json_router else parse_policy(text, file)
    problems = sorted(
        {*document.problems, *validate(document)}, key=lambda problem: (problem.line, problem.column, problem.text)
    )
    if problems:
        raise PolicyFileError(file, tuple(problems))
    # JSON that cannot be read fast has an error, which was raised above.
    assert sections is not None
    return sections


def _is_plain_section(section: Section) -> bool:
    return not section.refused_repeats and (section.type != "vhost" or is_plainly_valid(section.attributes))


def validate(document: Document) -> tuple[Problem, ...]:
    """Returns where the document violates the schema, in no particular order."""
    value = document.value
    # Only values that may be wrong are checked by the schema.
    doubtful = [index for index, each in enumerate(value) if not _is_plain_element(each)] if _is_list(value) else []
    examined = [value[index] for index in doubtful] if _is_list(value) else value
    errors = _validator().iter_errors(examined)
    return tuple(chain.from_iterable(_explain(error, document, doubtful) for error in errors))


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def _is_plain_element(element: object) -> bool:
    match element:
        case ["vhost", dict() as attributes]:
            return is_plainly_valid(attributes)
        case _:
            return False


def is_plainly_valid(vhost: Mapping[str, object]) -> bool:
    """Returns whether a quick check shows that the vhost is valid. For thousands of vhosts it is many times faster.

    False  if the vhost is not valid, or if only the whole schema can tell
    """
    definitions = schemas.load("policy")["$defs"]
    if not isinstance(vhost.get("hostname"), str) or "id" in vhost:
        return False
    groups = vhost.get("groups", {})
    others = {key: value for key, value in vhost.items() if key != "groups"}
    if not isinstance(groups, dict) or not _are_plain(others, definitions["vhost"]["properties"]):
        return False
    known = definitions["group"]["properties"]
    return all(
        len(name.encode("utf-8", "replace")) <= MAX_NAME_BYTES and isinstance(group, dict) and _are_plain(group, known)
        for name, group in groups.items()
    )


def _are_plain(values: Mapping[str, object], known: Mapping[str, Any]) -> bool:
    return all(key in known and _is_plain(value, known[key]) for key, value in values.items())


def _is_plain(value: object, schema: Mapping[str, Any]) -> bool:
    match schema.get("$ref", schema.get("type")):
        case "#/$defs/items":
            is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
            return is_list or isinstance(value, str)
        case "#/$defs/connectionLimit":
            return _number(value, 65535) is not None
        case "#/$defs/count":
            return _number(value, MAX_VALUE) is not None
        case "#/$defs/frameSize":
            return _number(value, MAX_FRAME_SIZE) is not None
        case "#/$defs/replyWindow":
            return _number(value, MAX_REPLY_WINDOW_S) not in (None, 0)
        case "#/$defs/instant":
            return _is_instant(value)
        case "#/$defs/managementRights":
            return _are_rights(value)
        case "#/$defs/boolean":
            return isinstance(value, bool) or value in ("true", "false")
        case "boolean":
            return isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case _:
            return False


def _is_instant(value: object) -> bool:
    try:
        read_instant(value)
    except InvalidValue:
        return False
    return True


def _are_rights(value: object) -> bool:
    try:
        read_rights(value)
    except InvalidValue:
        return False
    return True


def _number(value: object, maximum: int) -> int | None:
    """Returns a number, or one in digits as in configurations, up to `maximum`. Else None."""
    if isinstance(value, str) and len(value) < 20 and value.isascii() and value.isdigit():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= maximum else None


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(schemas.load("policy"))


def _explain(error: ValidationError, document: Document, indexes: Sequence[int]) -> Iterator[Problem]:
    """Yields the problems of a schema error.

    indexes  of the examined elements of the document, if it is a list
    """
    path = tuple(error.absolute_path)
    if path and isinstance(path[0], int) and indexes:
        path = (indexes[path[0]], *path[1:])
    schema: dict[str, Any] = error.schema if isinstance(error.schema, dict) else {}
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        known = sorted(schema["properties"])
        for key in error.instance:
            if key not in schema["properties"]:
                similar = get_close_matches(key, known, n=1)
                advice = f"did you mean '{similar[0]}'?" if similar else f"known are {', '.join(known)}"
                yield _problem(document, (*path, key), f"unknown attribute '{key}': {advice}")
        return
    if error.validator == "anyOf":
        yield _problem(document, path, 'a vhost needs a name: "hostname": "..."')
        return
    if error.validator == "not":
        text = "'id' is the old name of 'hostname': keep only 'hostname'"
        yield _problem(document, (*path, "id"), text)
        return
    if "propertyNames" in error.absolute_schema_path and isinstance(error.instance, str):
        yield _problem(document, (*path, error.instance), f"{_shown(error.instance)}: {_description(error, schema)}")
        return
    if not path:
        yield _problem(document, path, str(schema.get("description", error.message)))
        return
    expected = _description(error, schema)
    yield _problem(document, path, f"{_subject(path)} is {_shown(error.instance)}. Expected: {expected}")


def _description(error: ValidationError, schema: dict[str, Any]) -> str:
    return str(schema.get("description", error.message))


def _subject(path: tuple[str | int, ...]) -> str:
    """Returns the name of the value at `path`, without the place of its vhost in the file."""
    names = [f"'{name}'" if isinstance(name, str) else f"item {name + 1}" for name in path[2:] or path]
    return " of ".join(reversed(names)).replace("'groups'", "the groups")


def _shown(value: object) -> str:
    match value:
        case dict():
            return "a map in braces"
        case list():
            return "a list"
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            text = f'"{value}"'
        case _:
            text = str(value)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[: MAX_SHOWN_CHARACTERS - 1]}…"


def _problem(document: Document, path: tuple[str | int, ...], text: str) -> Problem:
    line, column = document.position_of(path)
    return Problem(line=line, column=column, text=text)
