"""Reads router configurations (`.conf`) so that every name has its line and column.

Pure; no schema is consulted. Source: docs/spec/management.md §1.1, with its Build grammar.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import NoReturn

from policy.attributes import Path, Place, SourceLocation
from policy.files.conf_text import HASH_NAMES, ConfError, ConfText, camel_case
from policy.files.positioned_json import Document, Problem
from policy.files.redaction import is_secret_name
from policy.files.sections import Section

_TRUE, _FALSE = ("yes", "true", "on"), ("no", "false", "off")
# Attributes the router converts to a boolean before policy sees them.
_BOOLEANS = {"vhost": ("allowUnknownUser",)}

_CUT = re.compile(r"^[^#]*[^#\s]#")
_SECTION = re.compile(r"([A-Za-z0-9_-]+)[ \t]*\{[ \t]*(\}?)")
_ATTRIBUTE = re.compile(r"([A-Za-z0-9_-]+)[ \t]*:[ \t]*(.*)")
_END_OF_MAP = re.compile(r"[ \t]*,?[ \t]*(?:#.*)?")
_MAP = re.compile(r"(\$*[A-Za-z0-9_-]+)[ \t]*:[ \t]*\{")


def conf_sections(text: str, file: str) -> list[Section]:
    """Returns the sections of a `.conf` file, in order. Raises ConfError, with every line that cannot be parsed."""
    return _Sections(text).sections(file)


def with_booleans(section: Section) -> Section:
    """Returns the section as policy reads it: words that the router converts to booleans later are booleans."""
    names = [name for name in _BOOLEANS.get(section.type, ()) if name in section.attributes]
    booleans = {name: _switch(section.attributes[name]) for name in names}
    return replace(section, attributes={**section.attributes, **booleans})


def document_of(sections: Iterable[Section]) -> Document:
    """Returns the sections of a `.conf` file as `[[type, attributes], ...]`, the shape of a policy file."""
    positions: dict[Path, Place] = {(): (1, 1)}
    problems: list[Problem] = []
    value: list[object] = []
    for index, section in enumerate(sections):
        value.append([section.type, section.attributes])
        place = section.source.line or 1, section.source.column
        positions[(index,)] = positions[(index, 0)] = positions[(index, 1)] = place
        positions |= {(index, 1, *path): place for path, place in section.source.places.items()}
        for path, (line, column) in section.refused_repeats:
            problem = f"'{path[-1]}' stands here a second time, and only this one counts: keep one of them"
            problems.append(Problem(line=line, column=column, text=problem))
    return Document(value=value, positions=positions, problems=tuple(problems))


class _Sections(ConfText):
    def sections(self, file: str) -> list[Section]:
        found: list[Section] = []
        bad: list[tuple[int, str]] = []
        while (statement := self._statement()) is not None:
            start, line, code = statement
            header = _SECTION.fullmatch(code)
            if header is None:
                bad.append((start, line))
                continue
            self.begin_section()
            attributes: dict[str, object] = {}
            self.cut: list[str] = []
            if not header[2] and not self._attributes(attributes, bad):
                # A line in the section is more likely to be at fault.
                self._refuse(bad or [(start, line)], is_nesting_wrong=not bad)
            line_number, column = self.lines.place(start)
            source = SourceLocation(file=file, line=line_number, column=column, places=self.places)
            found.append(
                Section(
                    type=camel_case(header[1]),
                    attributes=attributes,
                    source=source,
                    last_line=self.lines.place(self.at - 1)[0],
                    repeats=tuple(self.repeats),
                    cut=tuple(self.cut),
                )
            )
        if bad:
            self._refuse(bad, is_nesting_wrong=bad[0][1].startswith("}"))
        return found

    def _statement(self) -> tuple[int, str, str] | None:
        """Moves past the next line with content.

        Returns where it starts, the line, and the line without its comment.
        """
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            raw = self.text[self.at : end]
            line = raw.strip()
            start = self.at + len(raw) - len(raw.lstrip())
            self.at = end + 1
            if line and not line.startswith("#"):
                return start, line, line.partition("#")[0].rstrip()
        return None

    def _attributes(self, attributes: dict[str, object], bad: list[tuple[int, str]]) -> bool:
        """Reads up to the closing brace. Returns False if the text ends before it."""
        while (statement := self._statement()) is not None:
            start, line, code = statement
            if code == "}":
                return True
            if opening := _MAP.match(line):
                name = camel_case(opening[1])
                self.note((name,), start)
                attributes[name] = self._map(name, start + opening.end())
            elif attribute := _ATTRIBUTE.fullmatch(line):
                name = camel_case(attribute[1])
                value = self._value(attribute[1], attribute[2])
                if not value and is_secret_name(name):
                    # An empty password is never intended. The password may be on the next line, which then must not be
                    # logged.
                    bad.append((start, line))
                    continue
                self.note((name,), start)
                attributes[name] = self.unescaped(value, name, start)
                if value and attribute[1] not in HASH_NAMES and _CUT.search(line) is not None:
                    self.cut.append(name)
            else:
                bad.append((start, line))
        return False

    def _value(self, name: str, rest: str) -> str:
        if name in HASH_NAMES:
            return rest.split()[0] if rest.strip() else ""
        return rest.partition("#")[0].strip()

    def _map(self, name: str, inside: int) -> object:
        """Returns the map whose content begins at `inside`, and moves past its last line."""
        if name == "openProperties":
            self.at = inside - 1
            value = self.json_value()
        else:
            self.at = inside
            value = self.map_members((name,))
        self.skip(_END_OF_MAP)
        if self.at < len(self.json) and self.json[self.at] != "\n":
            self.fail(f"nothing may follow the '}}' that closes '{name}'")
        return value

    def _refuse(self, bad: list[tuple[int, str]], *, is_nesting_wrong: bool) -> NoReturn:
        reason = (
            "this section is never closed, or a '}' is missing or too many"
            if is_nesting_wrong
            else "this line is no section 'NAME {', no attribute 'NAME: VALUE' and no closing '}'"
        )
        line, column = self.lines.place(bad[0][0])
        raise ConfError(
            Problem(line=line, column=column, text=reason),
            bad_lines=tuple((self.lines.place(start)[0], text) for start, text in bad),
            is_nesting_wrong=is_nesting_wrong,
        )


def _switch(value: object) -> object:
    word = str(value).lower()
    return True if word in _TRUE else False if word in _FALSE else value
