"""Parse configuration text: the line-oriented `.conf` form and the JSON form. Pure; no schema is consulted.

Source: docs/spec/management.md §1.1 (with its Build grammar) and §1.2.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from router.effects import Log
from router.management.redaction import HIDDEN, is_secret_name

# Where a map in a map in a map … would exhaust the stack. The deepest thing there is to configure has three levels.
MAX_DEPTH = 32
# Enough to mend a file by; a binary file given by mistake would fill the log.
MAX_REPORTED_LINES = 20

# Names from the section inwards. Not joined to one text: a group may be called "a.b".
Path = tuple[str, ...]

_JSON_SHAPE = 'the file is an array of [ "section", { attributes } ]'

# In these `#` is a wildcard or part of a name, not a comment.
_HASH_NAMES = frozenset({"pattern", "bindingKey", "hostname"})
_NESTED_HASH_NAMES = frozenset({"sourcePattern", "targetPattern"})

_SECTION = re.compile(r"([A-Za-z0-9_-]+)[ \t]*\{[ \t]*(\}?)")
_ATTRIBUTE = re.compile(r"([A-Za-z0-9_-]+)[ \t]*:[ \t]*(.*)")
_MAP = re.compile(r"(\$*[A-Za-z0-9_-]+)[ \t]*:[ \t]*\{")
_WORD = re.compile(r"\$*[A-Za-z0-9_-]+")
_COMMENT_AFTER_BLANK = re.compile(r"(?:^|[ \t])#.*")
_UNESCAPED_QUOTE = re.compile(r'\\.|"')
_SEPARATORS = re.compile(r"[ _.-]")
_STRING_OR_SPARE_COMMA = re.compile(r'"(?:[^"\\\n]|\\.)*"|,(?=\s*[}\]])')
_COMMENT_LINE = re.compile(r"^[ \t]*#.*$", re.MULTILINE)


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
    attribute_lines: Mapping[Path, int]


def parse_config(text: str, *, path: str) -> list[Section]:
    """Sections of a configuration file, in order; a path ending in .json holds JSON.

    Errors  ConfigError with the line.
    """
    parser = _JsonFile(text, path) if path.endswith(".json") else _ConfFile(text, path)
    try:
        return parser.sections()
    except RecursionError:
        raise ConfigError(f"maps and lists are nested deeper than {MAX_DEPTH} levels", path=path) from None


def camel_case(name: str) -> str:
    """ssl-profile -> sslProfile. Names without separators stay as they are."""
    first, *others = _SEPARATORS.split(name)
    return first + "".join(word.capitalize() for word in others)


class _Text:
    """A position in the text, and values in JSON or in the style of the nested maps of `.conf`."""

    def __init__(self, text: str, path: str) -> None:
        self.path = path
        self.text = text.replace("\r\n", "\n").replace("\r", "\n")
        # Same length and lines as the text, so that positions agree: whole-line comments and spare commas blanked.
        uncommented = _COMMENT_LINE.sub(lambda match: " " * len(match[0]), self.text)
        self.json = _STRING_OR_SPARE_COMMA.sub(lambda match: " " if match[0] == "," else match[0], uncommented)
        self.at = 0
        self.line_starts = [0, *(match.end() for match in re.finditer("\n", self.text))]
        self.decoder = json.JSONDecoder(parse_constant=_no_constant)

    def line_of(self, position: int) -> int:
        return bisect_right(self.line_starts, position)

    def fail(self, reason: str, position: int | None = None) -> NoReturn:
        raise ConfigError(reason, path=self.path, line=self.line_of(self.at if position is None else position))

    def json_value(self) -> object:
        """The JSON value at the current position; moves past it."""
        try:
            value, self.at = self.decoder.raw_decode(self.json, self.at)
        except json.JSONDecodeError as error:
            self.fail(str(error), error.pos)
        except ValueError as error:
            self.fail(str(error))
        if not _is_encodable(value):
            self.fail("text holds half of a surrogate pair")
        return value

    def skip(self, pattern: str) -> None:
        found = re.compile(pattern).match(self.json, self.at)
        assert found is not None
        self.at = found.end()

    def map_members(self, lines: dict[Path, int], above: Path, depth: int, *, is_json: bool) -> dict[str, object]:
        """Members up to the closing brace, from just after the opening one.

        lines    receives the line of every member, under the path `above`
        is_json  only JSON members; else those of `.conf` style as well, mixed as one likes
        """
        if depth > MAX_DEPTH:
            self.fail(f"maps are nested deeper than {MAX_DEPTH} levels")
        opened = self.at
        members: dict[str, object] = {}
        while True:
            self.skip(r"\s*,?\s*" if is_json else r"[\s,]*")
            if self.at >= len(self.json):
                self.fail("this map is never closed: a '}' is missing", opened)
            if self.json[self.at] == "}":
                self.at += 1
                return members
            if self.json[self.at] == "#" and not is_json:
                self.skip(r"#.*")
                continue
            name, is_bare = self._member_name()
            lines[(*above, name)] = self.line_of(self.at)
            self.skip(r"[ \t]*:[ \t]*" if is_bare else r"\s*:\s*")
            if self.json.startswith("{", self.at) and not (is_bare and self.json.startswith("{user}", self.at)):
                self.at += 1
                members[name] = self.map_members(lines, (*above, name), depth + 1, is_json=is_json)
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
        # What `map_members` then skips; a bare name ends with its line.
        if not re.compile(r"[ \t]*:" if is_bare else r"\s*:").match(self.json, self.at):
            self.fail(f"Expecting ':' after the name '{name[:80]}'", start)
        return name, is_bare

    def _bare_value(self, name: str) -> object:
        start = self.at
        self.skip(r".*")
        value = self.text[start : self.at].strip()
        if name not in _NESTED_HASH_NAMES and name not in _HASH_NAMES:
            value = _COMMENT_AFTER_BLANK.sub("", value).strip()
        value = value.removesuffix(",").rstrip()
        if not value:
            self.fail(f"'{name}' has no value", start)
        if value.count("{") != value.count("}"):
            self.fail(f"the value of '{name}' holds an unbalanced brace; a closing '}}' stands on its own line", start)
        return self.unescaped(value, name, start)

    def unescaped(self, value: str, name: str, position: int) -> str:
        """`value` without the quotes around it, its JSON escapes interpreted."""
        is_quoted = len(value) >= 2 and value.startswith('"') and value.endswith('"')
        inside = value[1:-1] if is_quoted else value
        quoted = '"' + _UNESCAPED_QUOTE.sub(lambda match: '\\"' if match[0] == '"' else match[0], inside) + '"'
        try:
            plain = json.loads(quoted, strict=False)
            plain.encode()
        except ValueError:
            self.fail(f"the value of '{name}' holds an invalid escape; write a backslash as \\\\", position)
        return str(plain)


class _ConfFile(_Text):
    def sections(self) -> list[Section]:
        found: list[Section] = []
        bad: list[tuple[int, str]] = []
        while (statement := self._statement()) is not None:
            start, line, code = statement
            header = _SECTION.fullmatch(code)
            if header is None:
                bad.append((start, line))
                continue
            attributes: dict[str, object] = {}
            lines: dict[Path, int] = {}
            if not header[2] and not self._attributes(attributes, lines, bad):
                # Some line in it is the likelier mistake.
                self._refuse(bad or [(start, line)], is_nesting_wrong=not bad)
            name = camel_case(header[1])
            found.append(Section(type=name, attributes=attributes, line=self.line_of(start), attribute_lines=lines))
        if bad:
            self._refuse(bad, is_nesting_wrong=bad[0][1].startswith("}"))
        return found

    def _statement(self) -> tuple[int, str, str] | None:
        """Move past the next line that says something: where it starts, the line, the line without its comment."""
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

    def _attributes(self, attributes: dict[str, object], lines: dict[Path, int], bad: list[tuple[int, str]]) -> bool:
        """Read up to the closing brace; False when the text ends before it."""
        while (statement := self._statement()) is not None:
            start, line, code = statement
            if code == "}":
                return True
            if opening := _MAP.match(line):
                name = camel_case(opening[1])
                lines[name,] = self.line_of(start)
                attributes[name] = self._map(name, start + opening.end(), lines)
            elif attribute := _ATTRIBUTE.fullmatch(line):
                name = camel_case(attribute[1])
                value = self._value(attribute[1], attribute[2])
                if not value:
                    bad.append((start, line))
                    continue
                lines[name,] = self.line_of(start)
                attributes[name] = self.unescaped(value, name, start)
            else:
                bad.append((start, line))
        return False

    def _value(self, name: str, rest: str) -> str:
        if name in _HASH_NAMES:
            return rest.split(maxsplit=1)[0] if rest.strip() else ""
        return rest.partition("#")[0].strip()

    def _map(self, name: str, inside: int, lines: dict[Path, int]) -> object:
        """The map whose content begins at `inside`; moves past the line it ends on."""
        if name == "openProperties":
            self.at = inside - 1
            value = self.json_value()
        else:
            self.at = inside
            value = self.map_members(lines, (name,), 1, is_json=False)
        self.skip(r"[ \t]*,?[ \t]*(?:#.*)?")
        if self.at < len(self.json) and self.json[self.at] != "\n":
            self.fail(f"nothing may follow the '}}' that closes '{name}'")
        return value

    def _refuse(self, bad: list[tuple[int, str]], *, is_nesting_wrong: bool) -> NoReturn:
        logs = []
        if is_nesting_wrong or any(line.startswith("}") for _, line in bad):
            logs.append("Configuration file: invalid entity nesting detected.")
        shown_lines = []
        is_hidden = False
        for start, line in bad[:MAX_REPORTED_LINES]:
            # A password on the line after its name is as secret as one on the same line.
            is_hidden, was_hidden = is_secret_name(line), is_hidden
            shown_lines.append((self.line_of(start), HIDDEN if is_hidden or was_hidden else line))
        logs += [f"Invalid config file syntax (line {number}):\n>>> {line}" for number, line in shown_lines]
        contents = [f"Line {number} |{line}" for number, line in shown_lines]
        reason = (
            "this section is never closed, or a '}' is missing or too many"
            if is_nesting_wrong
            else "this line is no section 'NAME {', no attribute 'NAME: VALUE' and no closing '}'"
        )
        raise ConfigError(
            reason,
            path=self.path,
            line=self.line_of(bad[0][0]),
            logs=(
                *(Log(module="AGENT", level="warning", text=text) for text in logs),
                *(
                    Log(module="AGENT", level="error", text=text)
                    for text in ("Contents of failed config file", *contents)
                ),
            ),
        )


class _JsonFile(_Text):
    def sections(self) -> list[Section]:
        self.skip(r"\s*")
        start = self.at
        document = self.json_value()
        self.skip(r"\s*")
        if self.at != len(self.json):
            self.fail("something follows the end of the JSON array")
        if not isinstance(document, list):
            self.fail(_JSON_SHAPE, start)
        # Once more, now that it is known to be JSON, for the lines.
        self.at = start + 1
        return [self._section() for _ in document]

    def _section(self) -> Section:
        self.skip(r"[\s,]*")
        start = self.at
        self._expect(r"\[\s*", start)
        if not self.json.startswith('"', self.at):
            self.fail(_JSON_SHAPE, start)
        name = camel_case(str(self.json_value()))
        self._expect(r"\s*,\s*\{", start)
        lines: dict[Path, int] = {}
        members = self.map_members(lines, (), 1, is_json=True)
        self._expect(r"\s*\]", start)
        attributes = {camel_case(key): value for key, value in members.items()}
        named = {(camel_case(name), *inside): at for (name, *inside), at in lines.items()}
        return Section(type=name, attributes=attributes, line=self.line_of(start), attribute_lines=named)

    def _expect(self, pattern: str, start: int) -> None:
        found = re.compile(pattern).match(self.json, self.at)
        if found is None:
            self.fail(_JSON_SHAPE, start)
        self.at = found.end()


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _is_encodable(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        return False
    return True
