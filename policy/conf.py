"""Router configurations, `.conf`, read so that every value knows its line and column. For people's tools.

The router reads its configuration with a parser of its own, to which this one holds: tests/policy/test_conf.py
compares them. This one keeps columns, and `qdpolicy` works where no router is installed.
Pure. Source: docs/spec/management.md §1.1.
"""

import json
import re
from bisect import bisect_right

from policy.attributes import Path
from policy.positioned_json import Document, NotJson, Problem

# Stops a file of a million braces from exhausting the stack; a policy needs three levels.
MAX_DEPTH = 32

# In these `#` is a wildcard or part of a name, not the beginning of a comment.
_HASH_NAMES = frozenset({"pattern", "bindingKey", "hostname"})
_NESTED_HASH_NAMES = frozenset({"sourcePattern", "targetPattern", *_HASH_NAMES})
_TRUE, _FALSE = ("yes", "true", "on"), ("no", "false", "off")
# Attributes the router converts to a boolean before policy sees them.
_BOOLEANS = {"vhost": ("allowUnknownUser",)}

_SECTION = re.compile(r"([A-Za-z0-9_-]+)[ \t]*\{[ \t]*(\}?)")
_ATTRIBUTE = re.compile(r"([A-Za-z0-9_-]+)[ \t]*:[ \t]*(.*)")
_MAP = re.compile(r"(\$*[A-Za-z0-9_-]+)[ \t]*:[ \t]*\{")
_WORD = re.compile(r"\$*[A-Za-z0-9_-]+")
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_COMMENT_AFTER_BLANK = re.compile(r"(?:^|[ \t])#.*")
_BARE_QUOTE = re.compile(r'\\.|"')
_COMMENT_LINE = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_SPARE_COMMA = re.compile(r'"(?:[^"\\\n]|\\.)*"|,(?=\s*[}\]])')


def parse_conf(text: str) -> Document:
    """The sections as `[[type, attributes], ...]`, the shape of a policy file. Raises NotJson at the first mistake."""
    return _Reader(text).document()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n").replace("\r", "\n")
        # Of the same length: comment lines and commas before a closing bracket are blanked.
        blanked = _COMMENT_LINE.sub(lambda match: " " * len(match[0]), self.text)
        self.maps = _SPARE_COMMA.sub(lambda match: " " if match[0] == "," else match[0], blanked)
        self.at = 0
        self.line_starts = [0, *(match.end() for match in re.finditer("\n", self.text))]
        self.positions: dict[Path, tuple[int, int]] = {(): (1, 1)}
        self.decoder = json.JSONDecoder()

    def document(self) -> Document:
        sections: list[object] = []
        while (statement := self._statement()) is not None:
            start, code = statement
            header = _SECTION.fullmatch(code.partition("#")[0].rstrip())
            if header is None:
                raise self._error("expected a section, such as 'vhost {'", start)
            index = len(sections)
            type_ = camel_case(header[1])
            self.positions[(index,)] = self.positions[(index, 0)] = self.positions[(index, 1)] = self._position(start)
            attributes = {} if header[2] else self._attributes((index, 1), start)
            for name in _BOOLEANS.get(type_, ()):
                if name in attributes:
                    attributes[name] = _switch(attributes[name])
            sections.append([type_, attributes])
        return Document(value=sections, positions=self.positions, problems=())

    def _statement(self) -> tuple[int, str] | None:
        """Move past the next line that says something: where it starts, and the line without the blanks around it."""
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            raw = self.text[self.at : end]
            start = self.at + len(raw) - len(raw.lstrip())
            self.at = end + 1
            if (line := raw.strip()) and not line.startswith("#"):
                return start, line
        return None

    def _attributes(self, path: Path, opened: int) -> dict[str, object]:
        members: dict[str, object] = {}
        while (statement := self._statement()) is not None:
            start, line = statement
            if line.partition("#")[0].rstrip() == "}":
                return members
            if opening := _MAP.match(line):
                name = camel_case(opening[1])
                self.positions[(*path, name)] = self._position(start)
                self.at = start + opening.end()
                is_json = name == "openProperties"
                members[name] = self._map((*path, name), 1, is_json=is_json)
                self._end_of_line(name)
            elif attribute := _ATTRIBUTE.fullmatch(line):
                name = camel_case(attribute[1])
                if attribute[1] in _HASH_NAMES:
                    value = attribute[2].split(maxsplit=1)[0] if attribute[2].strip() else ""
                else:
                    value = attribute[2].partition("#")[0].strip()
                if not value:
                    raise self._error(f"'{name}' has no value", start)
                self.positions[(*path, name)] = self._position(start)
                members[name] = self._unescaped(value, name, start)
            else:
                raise self._error("expected 'NAME: VALUE', 'NAME: {' or a closing '}'", start)
        raise self._error("this section is never closed: a '}' is missing", opened)

    def _map(self, path: Path, depth: int, *, is_json: bool) -> dict[str, object]:
        """The members up to the closing brace, from just after the opening one."""
        opened = self.at - 1
        if depth > MAX_DEPTH:
            raise self._error(f"maps are nested deeper than {MAX_DEPTH} levels", opened)
        members: dict[str, object] = {}
        while True:
            self._skip(r"[\s,]*")
            character = self.maps[self.at : self.at + 1]
            if not character:
                raise self._error("this map is never closed: a '}' is missing", opened)
            if character == "}":
                self.at += 1
                return members
            if character == "#" and not is_json:
                self._skip(r"#.*")
                continue
            name, is_bare = self._member_name(path, is_json)
            self._skip(r"[ \t]*:[ \t]*" if is_bare else r"\s*:\s*")
            if self.maps.startswith("{", self.at) and not (is_bare and self.maps.startswith("{user}", self.at)):
                self.at += 1
                members[name] = self._map((*path, name), depth + 1, is_json=is_json)
            else:
                members[name] = self._bare_value(name) if is_bare else self._json_value()

    def _member_name(self, path: Path, is_json: bool) -> tuple[str, bool]:
        start = self.at
        quoted = _QUOTED.match(self.maps, start)
        word = None if is_json else _WORD.match(self.maps, start)
        if quoted is not None:
            name, is_bare, self.at = str(self._json_value()), False, quoted.end()
        elif word is not None:
            name, is_bare, self.at = word[0], True, word.end()
        else:
            raise self._error("a map holds NAME: VALUE, NAME: { or a closing '}'", start)
        if re.compile(r"\s*:").match(self.maps, self.at) is None:
            raise self._error(f"expected ':' after the name '{name[:80]}'", start)
        self.positions[(*path, name)] = self._position(start)
        return name, is_bare

    def _bare_value(self, name: str) -> str:
        start = self.at
        self._skip(r".*")
        value = self.text[start : self.at].strip()
        if name not in _NESTED_HASH_NAMES:
            value = _COMMENT_AFTER_BLANK.sub("", value).strip()
        value = value.removesuffix(",").rstrip()
        if not value:
            raise self._error(f"'{name}' has no value", start)
        if value.count("{") != value.count("}"):
            text = f"the value of '{name}' holds an unbalanced brace; '}}' stands on a line of its own"
            raise self._error(text, start)
        return self._unescaped(value, name, start)

    def _json_value(self) -> object:
        start = self.at
        try:
            value, self.at = self.decoder.raw_decode(self.maps, self.at)
            json.dumps(value, ensure_ascii=False).encode()
        except json.JSONDecodeError as error:
            raise self._error(error.msg, error.pos) from None
        except (ValueError, RecursionError):
            raise self._error("this value is no JSON", start) from None
        return value

    def _unescaped(self, value: str, name: str, start: int) -> str:
        is_quoted = len(value) >= 2 and value.startswith('"') and value.endswith('"')
        inside = value[1:-1] if is_quoted else value
        quoted = '"' + _BARE_QUOTE.sub(lambda match: '\\"' if match[0] == '"' else match[0], inside) + '"'
        try:
            plain = str(json.loads(quoted, strict=False))
            plain.encode()
        except ValueError:
            text = f"the value of '{name}' holds an invalid escape; write a backslash as \\\\"
            raise self._error(text, start) from None
        return plain

    def _end_of_line(self, name: str) -> None:
        self._skip(r"[ \t]*,?[ \t]*(?:#.*)?")
        if self.at < len(self.maps) and self.maps[self.at] != "\n":
            raise self._error(f"nothing may follow the '}}' that closes '{name}'", self.at)

    def _skip(self, pattern: str) -> None:
        if (found := re.compile(pattern).match(self.maps, self.at)) is not None:
            self.at = found.end()

    def _position(self, at: int) -> tuple[int, int]:
        line = bisect_right(self.line_starts, at)
        return line, at - self.line_starts[line - 1] + 1

    def _error(self, text: str, at: int) -> NotJson:
        line, column = self._position(at)
        return NotJson(Problem(line=line, column=column, text=text))


def camel_case(name: str) -> str:
    """ssl-profile -> sslProfile. Names without separators stay as they are."""
    first, *others = re.split(r"[_-]", name)
    return first + "".join(word.capitalize() for word in others)


def _switch(value: object) -> object:
    word = value.lower() if isinstance(value, str) else ""
    return True if word in _TRUE else False if word in _FALSE else value
