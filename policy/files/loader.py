"""Reads policy files: a JSON array of `["vhost", {attributes}]`, or a router's configuration in either of its forms.

Every rule has its file and line.

Pure: texts in, values out. schemas/policy.json describes the content of a file; see validation.py.
Source: docs/spec/policy-and-auth.md §2.1.
"""

from dataclasses import replace

from policy.files.conf import conf_sections, document_of, with_booleans
from policy.files.conf_json import conf_json_sections
from policy.files.conf_text import ConfError, camel_case
from policy.files.json_sections import json_sections
from policy.files.positioned_json import Document, NotJson, Problem, parse, without_comments
from policy.files.sections import CONF_SUFFIX, Section, are_of_json_router
from policy.printing import printable


class PolicyFileError(Exception):
    """A policy file cannot be used. str() has one printable line for each problem: `file:line:column: text`."""

    def __init__(self, file: str, problems: tuple[Problem, ...]) -> None:
        lines = (f"{file}:{problem.line}:{problem.column}: {problem.text}" for problem in problems)
        super().__init__("\n".join(map(printable, lines)))
        self.file = file
        self.problems = problems


def read_sections(text: str, file: str, *, is_policy: bool = False) -> tuple[Section, ...] | None:
    """Returns the sections of one file: of a `.conf` by its name, else of JSON. None if the JSON has an error.

    is_policy  it is a file of a policyDir, whatever its sections; otherwise JSON may be a router's configuration
    Raises PolicyFileError if a `.conf` cannot be read.
    """
    if file.endswith(CONF_SUFFIX):
        return _conf_sections(text, file)
    found = json_sections(without_comments(text), file)
    return found if is_policy else _router_sections(text, file, found)


def _router_sections(text: str, file: str, found: tuple[Section, ...] | None) -> tuple[Section, ...] | None:
    """Returns `found`, or the sections of a router's configuration, read as tolerantly as by the router.

    For example, a comma may come before a bracket.
    """
    if found is not None and not are_of_json_router(section.type for section in found):
        return found
    if found is not None and all(name == camel_case(name) for section in found for name in section.attributes):
        return tuple(replace(section, is_of_json_router=True) for section in found)  # also has the places in lists
    try:
        sections = [with_booleans(section) for section in conf_json_sections(text, file)]
    except ConfError:
        return found
    if not are_of_json_router(section.type for section in sections):
        return found
    return tuple(replace(section, is_of_json_router=True) for section in sections)


def parse_policy(text: str, file: str) -> Document:
    """Returns the content of one file, valid or not. Raises PolicyFileError if it cannot be read."""
    if file.endswith(CONF_SUFFIX):
        return document_of(_conf_sections(text, file))
    try:
        return parse(text)
    except NotJson as error:
        raise PolicyFileError(file, (error.problem,)) from None


def _conf_sections(text: str, file: str) -> tuple[Section, ...]:
    try:
        return tuple(with_booleans(section) for section in conf_sections(text, file))
    except ConfError as error:
        raise PolicyFileError(file, (error.problem,)) from None
