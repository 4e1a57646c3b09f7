"""Suggests what a user may write at a place: sections, attributes, values, and names in the project.

Pure. Sources: schemas/policy.json, schemas/management.json.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from policy.editor.cursor import Cursor, Role, item_at
from policy.editor.vocabulary import REFERENCES, VHOST, Attribute, attributes_at, described, section_types
from policy.groups import ADDRESS_KEYS, DENY_KEYS
from policy.vhosts import ANY_USER, CONNECTOR_GROUP, DEFAULT_GROUP

# The maximum that an editor can show; a policy may have hundreds of thousands of users.
MAX_OFFERS: Final = 300
_RIGHTS: Final = ("observer", "operator", "administrator", "none", "host", "read *")
_LISTS: Final = frozenset({"users", "remoteHosts", "aliases", "authenticatorGroups", "management"})


class Kind(Enum):
    SECTION = "section"
    ATTRIBUTE = "attribute"
    VALUE = "value"
    NAME = "name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names that a project already has.

    groups    of all vhosts
    users     in all groups
    sections  type -> the names of its sections; for vhosts their hostnames
    """

    groups: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    sections: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A suggestion: replace the text from `start` to `end` by `text`."""

    label: str
    kind: Kind
    text: str
    start: int
    end: int
    detail: str = ""
    documentation: str = ""
    is_deprecated: bool = False


def offers_at(cursor: Cursor, text: str, offset: int, names: Names, *, is_conf: bool) -> tuple[Offer, ...]:
    """Returns the suggestions at an offset. The editor compares them with the word that is already there."""
    if cursor.role is Role.TYPE:
        found = _sections(cursor, text, is_conf=is_conf)
    elif cursor.role is Role.NAME:
        found = _attributes(cursor, text, names, is_conf=is_conf)
    elif cursor.role is Role.VALUE:
        found = _values(cursor, offset, names, is_conf=is_conf)
    else:
        return ()
    return tuple(offer for offer, _ in zip(found, range(MAX_OFFERS), strict=False))


def _sections(cursor: Cursor, text: str, *, is_conf: bool) -> Iterator[Offer]:
    if is_conf:
        for name, about in section_types().items():
            new = name if _goes_on(text, cursor.end, "{") else f"{name} {{\n    \n}}"
            yield Offer(
                label=name, kind=Kind.SECTION, text=new, start=cursor.start, end=cursor.end, documentation=about
            )
        return
    about = section_types()[VHOST]
    if cursor.is_quoted:
        yield _quoted(cursor, VHOST, Kind.SECTION, about)
    else:
        pair = '["vhost", {\n  "hostname": "",\n  "groups": {}\n}]'
        is_empty = not text.replace(cursor.word, "", 1).strip() if len(text) < 1000 else False
        new = f"[\n{pair}\n]\n" if is_empty else pair
        if text[: cursor.start].rstrip().endswith("["):
            new = '"vhost", {' if text[: cursor.start].rstrip()[:-1].rstrip().endswith(("[", ",")) else pair
        yield Offer(label=VHOST, kind=Kind.SECTION, text=new, start=cursor.start, end=cursor.end, documentation=about)


def _attributes(cursor: Cursor, text: str, names: Names, *, is_conf: bool) -> Iterator[Offer]:
    if cursor.section == VHOST and cursor.path == ("groups",):
        known = dict.fromkeys((DEFAULT_GROUP, CONNECTOR_GROUP, *names.groups))
        for name in known:
            if name not in cursor.siblings:
                yield _key(cursor, text, name, Kind.NAME, "a user group", "", is_conf=is_conf)
        return
    for name, attribute in attributes_at(cursor.section, cursor.path).items():
        if name in cursor.siblings or (attribute.is_deprecated and name != cursor.word):
            continue
        offer = _key(cursor, text, name, Kind.ATTRIBUTE, attribute.description, described(attribute), is_conf=is_conf)
        yield offer


def _key(cursor: Cursor, text: str, name: str, kind: Kind, detail: str, documentation: str, *, is_conf: bool) -> Offer:
    """Returns a suggestion of a name, with the quotes and the colon that are still missing."""
    end = cursor.end + cursor.is_closed
    colon = "" if _goes_on(text, end, ":") else ": "
    before, after = ("", '"') if cursor.is_quoted else ("", "") if is_conf else ('"', '"')
    new = f"{before}{name}{after}{colon}"
    return Offer(
        label=name, kind=kind, text=new, start=cursor.start, end=end, detail=detail, documentation=documentation
    )


def _values(cursor: Cursor, offset: int, names: Names, *, is_conf: bool) -> Iterator[Offer]:
    if not cursor.path:
        return
    attribute = attributes_at(cursor.section, cursor.path[:-1]).get(cursor.path[-1])
    if attribute is None:
        return
    known = dict.fromkeys(_known_values(cursor, attribute, names))
    is_list = attribute.name in _LISTS or attribute.name in (*ADDRESS_KEYS, *DENY_KEYS)
    is_bare = is_conf or not attribute.is_text
    for value in known:
        kind = Kind.VALUE if value in attribute.values else Kind.NAME
        if is_list and (cursor.is_quoted or is_conf):
            _, start, end = item_at(cursor, offset)
            yield Offer(label=value, kind=kind, text=value, start=start, end=end)
        elif cursor.is_quoted:
            yield _quoted(cursor, value, kind)
        else:
            new = value if is_bare else f'"{value}"'
            yield Offer(label=value, kind=kind, text=new, start=cursor.start, end=cursor.end)


def _known_values(cursor: Cursor, attribute: Attribute, names: Names) -> Iterable[str]:
    name = attribute.name
    if cursor.section == VHOST and len(cursor.path) == 3:
        if name == "users":
            return (ANY_USER, *names.users)
        if name == "authenticatorGroups":
            return names.groups
        if name == "remoteHosts":
            return ("*", "127.0.0.1", "::1", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
        if name == "management":
            return _RIGHTS
        if name in ADDRESS_KEYS:
            tokens = ("${user}", "${user:escaped}")
            return tokens if name.endswith("Pattern") else (*tokens, "*")
    if cursor.section == VHOST and name == "hostname":
        return ("$default",)
    if (referred := REFERENCES.get(name)) is not None and not attribute.values:
        return names.sections.get(referred, ())
    return attribute.values


def _quoted(cursor: Cursor, word: str, kind: Kind, documentation: str = "") -> Offer:
    """Returns a suggestion of a word inside quotes, with the closing quote if it is missing."""
    text = word if cursor.is_closed else f'{word}"'
    return Offer(label=word, kind=kind, text=text, start=cursor.start, end=cursor.end, documentation=documentation)


def _goes_on(text: str, at: int, mark: str) -> bool:
    """Returns whether the mark follows next in the line."""
    return text[at : at + 100].lstrip(" \t").startswith(mark)
