"""Writes vhosts and other entities as sections of a router's configuration.

Groups are JSON. qdrouterd 1.20 can read them too if each is on one line that ends with a comma.
Pure. Source: docs/spec/management.md §1.1.
"""

import json
from collections.abc import Iterator, Mapping

from policy.attributes import BLANKS, Path, split_items
from policy.files.conf_text import HASH_NAMES
from policy.files.layout import INDENT, MAX_LINE, Comments, value_lines


class NotWritableError(Exception):
    """A value cannot be written in a configuration.

    path  inside the vhost's attributes
    """

    def __init__(self, path: Path, text: str) -> None:
        super().__init__(text)
        self.path = path


def vhost_section(attributes: Mapping[str, object], comments: Comments, *, is_compact: bool) -> list[str]:
    """Returns the lines of a `vhost` section. Raises NotWritableError.

    comments    by paths inside the attributes; those of the vhost itself have the path ()
    is_compact  one line for each group, however long, as 1.20 requires
    """
    return conf_section("vhost", attributes, comments, is_compact=is_compact)


def conf_section(type_: str, attributes: Mapping[str, object], comments: Comments, *, is_compact: bool) -> list[str]:
    """Returns the lines of a section of any type, like vhost_section."""
    lines = [*_led(comments, (), 0), f"{type_} {{"]
    for key, value in attributes.items():
        if key == "groups" and isinstance(value, Mapping):
            lines += [*_led(comments, (key,), 1), f"{INDENT}{key}: {{"]
            for name, settings in value.items():
                lines += _group(name, settings, comments, is_compact=is_compact)
            lines.append(f"{INDENT}}}")
        elif isinstance(value, Mapping):
            lines.append(f"{INDENT}{key}: {json.dumps(value)}")
        else:
            lines += [*_led(comments, (key,), 1, is_deep=True), f"{INDENT}{key}: {_bare(key, value)}"]
    return [*lines, "}"]


def _group(name: str, settings: object, comments: Comments, *, is_compact: bool) -> Iterator[str]:
    path, margin = ("groups", name), INDENT * 2
    yield from _led(comments, path, 2, is_deep=True)
    begin = f"{json.dumps(name, ensure_ascii=False)}: "
    flat = f"{margin}{begin}{json.dumps(settings, ensure_ascii=False)},"
    if is_compact or len(flat) <= MAX_LINE:
        yield flat
    else:
        *lines, last = value_lines(settings, 2, begin)
        yield from lines
        yield f"{last},"


def _led(comments: Comments, path: Path, depth: int, *, is_deep: bool = False) -> Iterator[str]:
    """Yields the comments before the value at `path`.

    is_deep  also the comments inside the value, which is written on one line
    """
    for other, before in comments.before.items():
        if other == path or (is_deep and other[: len(path)] == path):
            yield from (f"{INDENT * depth}{comment}" for comment in before.comments)


def _bare(key: str, value: object) -> str:
    """Returns the value of an attribute as written after the colon, with JSON's escapes."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        items = split_items(value)
        if wrong := [item for item in items if "," in item or item != item.strip(BLANKS)]:
            text = f"'{wrong[0]}' has a comma or an outer blank, and there are no lists in a configuration"
            raise NotWritableError((key,), text)
        value = ", ".join(items)
    text = str(value)
    if not text:
        return '""'
    # The values of `hostname` and similar names end at the first blank, all others at the first #.
    end = " " if key in HASH_NAMES else "#"
    inner = "".join(_escaped(character) if character == end else _as_json(character) for character in text)
    if inner[0] in " {":
        inner = _escaped(inner[0]) + inner[1:]
    return inner[:-1] + _escaped(" ") if inner.endswith(" ") else inner


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04x}"


def _as_json(character: str) -> str:
    return json.dumps(character, ensure_ascii=not character.isprintable())[1:-1]
