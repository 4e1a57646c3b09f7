"""Describes the word under the pointer for an editor, and shows the resulting rights.

Pure. Sources: schemas/policy.json, schemas/management.json, the lint rules.
"""

from collections.abc import Mapping, Sequence

from policy.attributes import Place
from policy.editor.cursor import Cursor, Role, item_at
from policy.editor.effective_rights import rights_of_group, rights_of_user
from policy.editor.vocabulary import VHOST, attributes_at, described, section_types
from policy.files.loader import PolicyFileError, read_sections
from policy.files.sections import Section
from policy.lint.reports import why
from policy.lint.rules import RULES

_BY_ID = {rule.ID: rule for rule in RULES}


def rule_page(rule_id: str) -> str:
    """Returns the explanation of a lint rule, in Markdown; "" if there is no such rule."""
    rule = _BY_ID.get(rule_id)
    return f"**{rule.ID}: {rule.TITLE}** ({rule.FAMILY})\n\n{why(rule)}" if rule is not None else ""


def description_at(cursor: Cursor) -> str:
    """Returns the schema's description of the section or attribute at a place, in Markdown; "" if there is none."""
    if cursor.role is Role.TYPE:
        about = section_types().get(cursor.word)
        return f"`{cursor.word}`\n\n{about}" if about is not None else ""
    if cursor.role is Role.NAME:
        attribute = attributes_at(cursor.section, cursor.path).get(cursor.word)
    elif cursor.role is Role.VALUE and cursor.path:
        attribute = attributes_at(cursor.section, cursor.path[:-1]).get(cursor.path[-1])
    else:
        attribute = None
    return described(attribute) if attribute is not None else ""


def asks_for_rights(cursor: Cursor) -> bool:
    """Returns whether the place is the name of a group, or a user in a group's list."""
    if cursor.section != VHOST or not cursor.word:
        return False
    if cursor.role is Role.NAME:
        return cursor.path == ("groups",)
    return cursor.role is Role.VALUE and len(cursor.path) == 3 and cursor.path[::2] == ("groups", "users")


def rights_at(
    cursor: Cursor, offset: int, place: Place, text: str, file: str, policy: Mapping[str, object], now: float
) -> str:
    """Returns the rights of the user or group at a place, in Markdown; "" if they cannot be known.

    place   line and column of the offset, 1-based
    text    the last readable text of the whole file
    policy  attributes of the router's `policy` section, {} if it is not known
    """
    is_user = cursor.role is Role.VALUE
    group = cursor.path[1] if is_user else cursor.word
    name = item_at(cursor, offset)[0] if is_user else group
    if not name:
        return ""
    vhost = _vhost_around(_sections(text, file), place, group)
    if vhost is None:
        return ""
    return rights_of_user(vhost, policy, name, now) if is_user else rights_of_group(vhost, policy, group, now)


def _sections(text: str, file: str) -> Sequence[Section]:
    try:
        return read_sections(text, file) or ()
    except PolicyFileError:
        return ()


def _vhost_around(sections: Sequence[Section], place: Place, group: str) -> Section | None:
    """Returns the last vhost that begins before the place and has the group."""
    found = None
    for section in sections:
        groups = section.attributes.get("groups")
        has_group = section.type == VHOST and isinstance(groups, Mapping) and group in groups
        if has_group and (section.source.line or 1, section.source.column) <= place:
            found = section
    return found
