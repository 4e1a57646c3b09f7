"""A configuration file as a list of sections: the line-oriented `.conf` form and the JSON form. Pure.

No schema is consulted. The `.conf` form is read by `policy.files.conf`, which `qdpolicy` reads it with as well.
Source: docs/spec/management.md §1.1 (with its Build grammar) and §1.2.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from policy.files.conf import read_sections
from policy.files.conf_text import ConfError, ConfSection, ConfText, NamePath, camel_case
from policy.files.positioned_json import Problem
from router.effects import Log
from router.management.redaction import HIDDEN, is_secret_name

# Enough to mend a file by; a binary file given by mistake would fill the log.
MAX_REPORTED_LINES = 20

_BLANKS = re.compile(r"\s*")
_COMMAS_OR_BLANKS = re.compile(r"[\s,]*")
_ABOUT_POLICY = ("vhost", "policy")
_JSON_SHAPE = 'the file is an array of [ "section", { attributes } ]'


class ConfigError(Exception):
    """A configuration that cannot be used. str() is the error text of docs/spec/management.md §2.3.

    kind    how the text begins: "Not found", "Configuration", or "Python: <exception name>"
    reason  what is wrong, and with which input; holds no secret
    path    the configuration file as it was named
    file    where the fault stands: `path`, or a file of policyDir
    line    1-based; None where no one line is to blame
    logs    lines to log before giving up
    """

    def __init__(
        self,
        reason: str,
        *,
        path: str,
        line: int | None = None,
        kind: str = "Python: Exception",
        file: str | None = None,
        logs: tuple[Log, ...] = (),
    ) -> None:
        self.kind, self.reason, self.path, self.line, self.logs = kind, reason, path, line, logs
        self.file = file or path
        super().__init__(self.text())

    def text(self) -> str:
        where = f" ({self.file}:{self.line})" if self.line is not None else ""
        is_load = self.kind == "Python: Exception"
        opening = f"Cannot load configuration file {self.path}: " if is_load else ""
        return f"{self.kind}: {opening}{self.reason}{where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section as written.

    type             short type name, camel-cased; unknown names come through
    attributes       in the order of the file; values are str from `.conf`, JSON values from JSON and nested maps
    line             where the section opens, 1-based
    attribute_lines  line of every attribute by its path: ("port",), ("groups", "admin", "users")
    """

    type: str
    attributes: Mapping[str, object] = field(repr=False)
    line: int
    attribute_lines: Mapping[NamePath, int]


def parse_config(text: str, *, path: str) -> list[Section]:
    """Sections of a configuration file, in order; a path ending in .json holds JSON.

    Errors  ConfigError with the line.
    """
    try:
        read = _JsonFile(text).sections() if path.endswith(".json") else read_sections(text)
        for section in read:
            _refuse_repeats(section)
    except ConfError as error:
        raise _config_error(error, path) from None
    return [
        Section(
            type=section.type,
            attributes=section.attributes,
            line=section.place[0],
            attribute_lines={path: line for path, (line, _) in section.places.items()},
        )
        for section in read
    ]


def _refuse_repeats(section: ConfSection) -> None:
    """A name that stands twice in one map, or in a section about policy, would quietly replace the first.

    Of an attribute that stands twice in another `.conf` section the last one counts, as in 1.20. Raises ConfError.
    """
    for name, (line, column) in section.repeats:
        if len(name) > 1 or section.type in _ABOUT_POLICY:
            text = f"key '{name[-1]}' stands here a second time, in column {column}: keep one of them"
            raise ConfError(Problem(line=line, column=column, text=text))


def _config_error(error: ConfError, path: str) -> ConfigError:
    """What the reader says, and for the log the lines it does not understand, without secrets."""
    logs: list[str] = []
    contents: list[str] = []
    if error.bad_lines:
        if error.is_nesting_wrong or any(line.startswith("}") for _, line in error.bad_lines):
            logs.append("Configuration file: invalid entity nesting detected.")
        contents.append("Contents of failed config file")
    is_hidden = False
    for number, line in error.bad_lines[:MAX_REPORTED_LINES]:
        # A password on the line after its name is as secret as one on the same line.
        is_hidden, was_hidden = is_secret_name(line), is_hidden
        shown = HIDDEN if is_hidden or was_hidden else line
        logs.append(f"Invalid config file syntax (line {number}):\n>>> {shown}")
        contents.append(f"Line {number} |{shown}")
    return ConfigError(
        error.problem.text,
        path=path,
        line=error.problem.line,
        logs=(
            *(Log(module="AGENT", level="warning", text=text) for text in logs),
            *(Log(module="AGENT", level="error", text=text) for text in contents),
        ),
    )


class _JsonFile(ConfText):
    def sections(self) -> list[ConfSection]:
        self.skip(_BLANKS)
        start = self.at
        document = self.json_value()
        self.skip(_BLANKS)
        if self.at != len(self.json):
            self.fail("something follows the end of the JSON array")
        if not isinstance(document, list):
            self.fail(_JSON_SHAPE, start)
        # Once more, now that it is known to be JSON, for the lines.
        self.at = start + 1
        return [self._section() for _ in document]

    def _section(self) -> ConfSection:
        self.skip(_COMMAS_OR_BLANKS)
        start = self.at
        self._expect(r"\[\s*", start)
        if not self.json.startswith('"', self.at):
            self.fail(_JSON_SHAPE, start)
        name = camel_case(str(self.json_value()))
        self._expect(r"\s*,\s*\{", start)
        self.begin_section()
        members = self.map_members((), 1, is_json=True)
        self._expect(r"\s*\]", start)
        attributes = {camel_case(key): value for key, value in members.items()}
        if len(attributes) != len(members):
            self.fail("an attribute of this section stands in it twice, in two spellings: keep one of them", start)
        named = {(camel_case(name), *inside): place for (name, *inside), place in self.places.items()}
        return ConfSection(type=name, attributes=attributes, place=self.place_of(start), places=named)

    def _expect(self, pattern: str, start: int) -> None:
        found = re.compile(pattern).match(self.json, self.at)
        if found is None:
            self.fail(_JSON_SHAPE, start)
        self.at = found.end()
