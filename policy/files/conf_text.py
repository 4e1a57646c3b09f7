"""The text of a router's configuration: places in it, values, and the nested maps of its `.conf` form.

`conf.py` uses it to read the sections of a `.conf` file, `conf_json.py` those of a `.json` configuration.
Pure. Source: docs/spec/management.md §1.1, §1.2.
"""

import json
import re
from collections.abc import Iterator
from typing import NoReturn

from policy.attributes import Path, Place
from policy.files.positioned_json import (
    DECODER,
    MAX_MAPS,
    Lines,
    NotJson,
    Problem,
    RepeatedKeyError,
    first_repeat,
    is_encodable,
)

TOO_DEEP = f"maps are nested deeper than {MAX_MAPS} levels"

# In these attributes `#` is a wildcard or part of a name, not the beginning of a comment.
HASH_NAMES = frozenset({"pattern", "bindingKey", "hostname"})
_NESTED_HASH_NAMES = frozenset({"sourcePattern", "targetPattern", *HASH_NAMES})

_WORD = re.compile(r"\$*[A-Za-z0-9_-]+")
_COLON = re.compile(r"\s*:\s*")
_COLON_ON_LINE = re.compile(r"[ \t]*:[ \t]*")
_COMMAS_OR_BLANKS = re.compile(r"[\s,]*")
_COMMENT = re.compile(r"#.*")
_REST_OF_LINE = re.compile(r".*")
_COMMENT_AFTER_BLANK = re.compile(r"(?:^|[ \t])#.*")
_UNESCAPED_QUOTE = re.compile(r'\\.|"')
_SEPARATORS = re.compile(r"[ _.-]")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_SPARE_COMMA = re.compile(r",(?=\s*[}\]])")
_COMMENT_LINE = re.compile(r"^[ \t]*#.*$", re.MULTILINE)


class ConfError(Exception):
    """The text is not a configuration.

    problem            the first fault, and its place; contains no secret
    bad_lines          (number, text) of the lines that do not parse, which may hold secrets; none if a value is at
                       fault
    is_nesting_wrong   whether the braces are at fault
    """

    def __init__(
        self, problem: Problem, *, bad_lines: tuple[tuple[int, str], ...] = (), is_nesting_wrong: bool = False
    ) -> None:
        super().__init__(f"{problem.line}:{problem.column}: {problem.text}")
        self.problem, self.bad_lines, self.is_nesting_wrong = problem, bad_lines, is_nesting_wrong


class ConfText:
    """A position in the text. Reads values there and moves past them.

    text    line ends are \\n
    json    of the same length, so that positions agree: whole-line comments and commas before a bracket are blanks
    """

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n").replace("\r", "\n")
        uncommented = _COMMENT_LINE.sub(lambda match: " " * len(match[0]), self.text)
        self.json = _without_spare_commas(uncommented)
        # Only an escape can be half of a surrogate pair.
        self.has_escapes = "\\u" in self.text
        self.at = 0
        self.lines = Lines(self.text)
        self.places: dict[Path, Place] = {}
        self.repeats: list[tuple[Path, Place]] = []

    def fail(self, reason: str, position: int | None = None) -> NoReturn:
        line, column = self.lines.place(self.at if position is None else position)
        raise ConfError(Problem(line=line, column=column, text=reason))

    def begin_section(self) -> None:
        """Begins a new section: names noted from now on belong to it."""
        self.places, self.repeats = {}, []

    def note(self, path: Path, position: int) -> None:
        """Stores the place of a name."""
        place = self.lines.place(position)
        if path in self.places:
            self.repeats.append((path, place))
        self.places[path] = place

    def json_value(self) -> object:
        """Reads the JSON value at the current position."""
        try:
            value, end = DECODER.raw_decode(self.json, self.at)
            is_whole = not self.has_escapes or is_encodable(value)
        except json.JSONDecodeError as error:
            self.fail(str(error), error.pos)
        except RepeatedKeyError:
            self._refuse_repeat()
        except ValueError as error:
            self.fail(str(error))
        except RecursionError:
            self.fail(f"maps and lists are nested deeper than {MAX_MAPS} levels")
        self.at = end
        if not is_whole:
            self.fail("text holds half of a surrogate pair")
        return value

    def _refuse_repeat(self) -> NoReturn:
        """Raises an error that says where the value repeats a key: one value would silently replace the other."""
        try:
            problem = first_repeat(self.json, self.at).problem
        except NotJson as error:  # an earlier fault, which the fast reader has not found
            problem = error.problem
        # The router shows only file and line with the text.
        text = f"{problem.text} (column {problem.column})"
        raise ConfError(Problem(line=problem.line, column=problem.column, text=text))

    def skip(self, pattern: re.Pattern[str]) -> None:
        """Moves past the match, which may be empty."""
        found = pattern.match(self.json, self.at)
        assert found is not None
        self.at = found.end()

    def map_members(self, path: Path) -> dict[str, object]:
        """Reads members up to the closing brace, from just after the opening one, and stores their places.

        Members in JSON and in `.conf` style may be mixed.

        path  of the map
        """
        opened = self.at - 1
        if len(path) > MAX_MAPS:
            self.fail(TOO_DEEP, opened)
        members: dict[str, object] = {}
        while True:
            self.skip(_COMMAS_OR_BLANKS)
            if self.at >= len(self.json):
                self.fail("this map is never closed: a '}' is missing", opened)
            if self.json[self.at] == "}":
                self.at += 1
                return members
            if self.json[self.at] == "#":
                self.skip(_COMMENT)
                continue
            start = self.at
            name, is_bare = self._member_name()
            inner = (*path, name)
            self.note(inner, start)
            self.skip(_COLON_ON_LINE if is_bare else _COLON)
            if self.json.startswith("{", self.at) and not (is_bare and self.json.startswith("{user}", self.at)):
                self.at += 1
                members[name] = self.map_members(inner)
            else:
                members[name] = self._bare_value(name) if is_bare else self.json_value()

    def _member_name(self) -> tuple[str, bool]:
        start = self.at
        is_bare = self.json[start] != '"'
        if is_bare:
            word = _WORD.match(self.json, start)
            if word is None:
                self.fail("Expecting property name: a map holds NAME: VALUE, NAME: { or a closing '}'")
            name, self.at = word[0], word.end()
        else:
            name = str(self.json_value())
        # `map_members` then skips the colon. An unquoted name ends with its line.
        if not (_COLON_ON_LINE if is_bare else _COLON).match(self.json, self.at):
            self.fail(f"Expecting ':' after the name '{name[:80]}'", start)
        return name, is_bare

    def _bare_value(self, name: str) -> object:
        start = self.at
        self.skip(_REST_OF_LINE)
        value = self.text[start : self.at].strip()
        if name not in _NESTED_HASH_NAMES:
            value = _COMMENT_AFTER_BLANK.sub("", value).strip()
        value = value.removesuffix(",").rstrip()
        if value.count("{") != value.count("}"):
            self.fail(f"the value of '{name}' holds an unbalanced brace; a closing '}}' stands on its own line", start)
        return self.unescaped(value, name, start)

    def unescaped(self, value: str, name: str, position: int) -> str:
        """Returns `value` without the quotes around it and with its JSON escapes decoded."""
        is_quoted = len(value) >= 2 and value.startswith('"') and value.endswith('"')
        inside = value[1:-1] if is_quoted else value
        quoted = '"' + _UNESCAPED_QUOTE.sub(lambda match: '\\"' if match[0] == '"' else match[0], inside) + '"'
        try:
            plain = json.loads(quoted, strict=False)
            plain.encode()
        except ValueError:
            self.fail(f"the value of '{name}' holds an invalid escape; write a backslash as \\\\", position)
        return str(plain)


def camel_case(name: str) -> str:
    """Converts ssl-profile to sslProfile. Names without separators stay unchanged."""
    first, *others = _SEPARATORS.split(name)
    return first + "".join(word.capitalize() for word in others)


def _without_spare_commas(text: str) -> str:
    """Returns the text with a blank for every comma before a closing bracket, except in strings.

    Strings end on their line. Most lines have no such comma, so their strings need no search.
    """
    kept: list[str] = []
    done = line_end = 0
    strings: Iterator[re.Match[str]] = iter(())
    string: re.Match[str] | None = None
    for comma in _SPARE_COMMA.finditer(text):
        at = comma.start()
        if at >= line_end:
            line_start = text.rfind("\n", 0, at) + 1
            line_end = (text.find("\n", at) + 1) or len(text)
            strings = _STRING.finditer(text, line_start, line_end)
            string = next(strings, None)
        while string is not None and string.end() <= at:
            string = next(strings, None)
        if string is None or at < string.start():
            kept += (text[done:at], " ")
            done = at + 1
    return "".join((*kept, text[done:]))
