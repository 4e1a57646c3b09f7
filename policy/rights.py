"""The management rights of a user group: read, create, update and delete, by entity type and attribute.

A group's `management` is a list of grants. A grant is a role, the word `host`, or operations and entity types:

    observer                                 a role, see ROLES
    read *                                   an operation and the types it applies to; * is all
    create, delete ban address               several operations, with commas; several types, with blanks
    update connection(adminStatus) log(enable)   only these attributes
    host                                     values that name files or environment variables, see docs/policy.md

Pure. Source: docs/policy.md, Rights of management; the entity types are those of schemas/management.json.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from itertools import product
from types import MappingProxyType
from typing import Any, Final

import schemas
from policy.attributes import InvalidValue
from policy.decision import Decision, Reason, Rule
from policy.facts import ManagementFacts

MANAGEMENT_KEY: Final = "management"
READ, CREATE, UPDATE, DELETE = OPERATIONS = ("read", "create", "update", "delete")
ALL: Final = "*"
HOST: Final = "host"
NO_ROLE: Final = "none"
# A role is short for several grants. A user who may not change vhosts cannot extend its own rights.
ROLES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "observer": ("read *",),
        "operator": ("read *", "update connection(adminStatus)", "create, delete ban", "update log(enable)"),
        "administrator": ("* *",),
        NO_ROLE: (),
    }
)
# Operations that need the right to update, without regard to attributes.
_CHANGING: Final = frozenset({"UPDATE", "PROFILE", "DRAIN"})
# They name the entity, or its type. A right to an entity includes them.
NAMING: Final = frozenset({"name", "identity", "type"})
# Limits the grants that a management request for a vhost can make us read and keep, and those that an error quotes.
MAX_GRANTS: Final = 256
MAX_TEXT_CHARACTERS: Final = 4000
# The search for similar words takes quadratic time, and longer words are not typing errors.
MAX_WORD_CHARACTERS: Final = 64
_TYPE = re.compile(r"([^\s()]+)(?:\(([^()]*)\))?")

# (operation, short name of a type) -> the attributes that it permits; None for all.
_Table = Mapping[tuple[str, str], frozenset[str] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementRights:
    """Compiled grants.

    grants    as written, in order
    allowed   every allowed pair of operation and type, with the attributes if they are limited
    has_host  values may name files and environment variables
    is_set    false if the group does not set the attribute
    """

    grants: tuple[str, ...]
    allowed: _Table
    has_host: bool = False
    is_set: bool = True

    def __reduce__(self) -> tuple[Any, ...]:
        """Makes rights picklable, for the process that reads policy folders.

        A read-only view of a mapping cannot be pickled.
        """
        return _made_again, (self.grants, dict(self.allowed), self.has_host, self.is_set)

    @property
    def canonical(self) -> tuple[object, ...]:
        """Returns the value for a ruleset's digest, which is equal for grants that mean the same."""
        pairs = (
            (*pair, sorted(attributes) if attributes is not None else None) for pair, attributes in self.allowed.items()
        )
        return (self.has_host, sorted(pairs, key=str))

    @property
    def is_nothing(self) -> bool:
        return not self.allowed

    @property
    def is_everything(self) -> bool:
        """Returns whether every operation is allowed.

        Values that name files or environment variables are a separate right.
        """
        return self.allowed == UNSET.allowed

    def may(self, operation: str, entity_type: str) -> bool:
        """Returns whether the operation is allowed for the type, with at least some attributes."""
        return (operation, entity_type) in self.allowed

    def __str__(self) -> str:
        return "; ".join(self.grants) if self.grants else "nothing"


def _made_again(
    grants: tuple[str, ...], allowed: dict[tuple[str, str], frozenset[str] | None], has_host: bool, is_set: bool
) -> ManagementRights:
    return ManagementRights(grants=grants, allowed=MappingProxyType(allowed), has_host=has_host, is_set=is_set)


def decide_management(rights: ManagementRights, facts: ManagementFacts, rule: Rule | None = None) -> Decision:
    """Decides whether management may do this.

    rule  the place of the rights
    """
    try:
        if not lacking(rights, facts):
            return Decision(is_allowed=True, reason=Reason.ALLOWED, rule=rule)
        return Decision(is_allowed=False, reason=Reason.MANAGEMENT_NOT_ALLOWED, rule=rule)
    except Exception:
        return Decision(is_allowed=False, reason=Reason.INTERNAL_ERROR)


def lacking(rights: ManagementRights, facts: ManagementFacts) -> str:
    """Returns the missing right, in the form of a grant; "" if none is missing."""
    operation, name = facts.operation, facts.entity_type
    if not rights.may(operation, name):
        return f"{operation} {name}"
    limited = rights.allowed[operation, name]
    if limited is None:
        return ""
    outside = sorted(set(facts.attributes) - limited - NAMING)
    return f"{operation} {name}({', '.join(outside)})" if outside else ""


# Compiling


def read_rights(value: object) -> ManagementRights:
    """Returns the rights in the attribute `management`: a list of texts, or one text. Raises InvalidValue."""
    if isinstance(value, str):
        texts: list[str] = [value]
    elif isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        texts = [str(item) for item in value]
    else:
        raise InvalidValue(f'has illegal value \'{value}\': grants are texts, such as "observer" or "read *"')
    if any(len(text) > MAX_TEXT_CHARACTERS for text in texts):
        raise InvalidValue(f"has a text of more than {MAX_TEXT_CHARACTERS} characters")
    grants = tuple(grant for text in texts for grant in _split_grants(text))
    if len(grants) > MAX_GRANTS:
        raise InvalidValue(f"has more than {MAX_GRANTS} grants")
    if NO_ROLE in grants and len(grants) > 1:
        raise InvalidValue(f"has '{NO_ROLE}' beside other grants")
    return _compiled(grants)


def read_request(text: str) -> ManagementFacts:
    """Returns the request that a text in the form of a grant describes: `update connection(adminStatus)`.

    Errors  InvalidValue
    """
    grants = tuple(_split_grants(text))
    pairs = dict(_meaning(grants[0])) if len(grants) == 1 and grants[0] not in ROLES else {}
    if len(pairs) != 1:
        raise InvalidValue("a request is one operation and one type, such as 'create ban'")
    (((operation, name), attributes),) = pairs.items()
    return ManagementFacts(operation=operation, entity_type=name, attributes=tuple(sorted(attributes or ())))


def _compiled(grants: tuple[str, ...]) -> ManagementRights:
    allowed: dict[tuple[str, str], frozenset[str] | None] = {}
    for grant in grants:
        for each in ROLES.get(grant, (grant,)):
            for pair, attributes in _meaning(each):
                before = allowed.get(pair, frozenset())
                allowed[pair] = None if before is None or attributes is None else before | attributes
    return ManagementRights(grants=grants, allowed=MappingProxyType(allowed), has_host=HOST in grants)


def _split_grants(text: str) -> Iterator[str]:
    """Yields the grants in a text.

    Commas separate grants, and also the operations of one grant: an operation without a type belongs to the next grant.
    """
    waiting: list[str] = []
    for part in _split_outside_parentheses(text):
        words = part.split()
        if not words:
            continue
        if len(words) == 1 and words[0] in (*OPERATIONS, ALL):
            waiting.append(words[0])
            continue
        if waiting and words[0] not in (*OPERATIONS, ALL):
            raise InvalidValue(_no_type(waiting))
        yield ", ".join([*waiting, " ".join(words)])
        waiting = []
    if waiting:
        raise InvalidValue(_no_type(waiting))


def _no_type(operations: list[str]) -> str:
    wanted = f"{', '.join(operations)} *"
    return f"item '{', '.join(operations)}' names no entity type: write '{wanted}', or a type in place of *"


def _split_outside_parentheses(text: str) -> list[str]:
    parts, depth, begin = [], 0, 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
        if depth not in (0, 1):
            break
    if depth != 0:
        raise InvalidValue(f"item '{text[:200]}' has parentheses that do not match")
    return [*parts, text[begin:]]


def _meaning(grant: str) -> Iterator[tuple[tuple[str, str], frozenset[str] | None]]:
    """Yields the rights of a grant that is not a role. Raises InvalidValue."""
    if grant == HOST:
        return
    *others, last = _split_outside_parentheses(grant)
    operation, _, rest = last.strip().partition(" ")
    operations = [each.strip() for each in (*others, operation)]
    for each in operations:
        if each not in (*OPERATIONS, ALL):
            raise InvalidValue(f"item '{grant}': {_unknown(each)}")
    for name, listed in _types_of(rest, grant):
        for each, kind in product(operations, _kinds(name, grant)):
            yield from _pairs(each, kind, listed, grant, is_any_type=name == ALL)


def _similar(word: str, words: Iterable[str]) -> str:
    """Returns `did you mean 'read'?`, or "" if no word is similar."""
    found = get_close_matches(word, list(words), n=1) if len(word) <= MAX_WORD_CHARACTERS else []
    return f"did you mean '{found[0]}'?" if found else ""


def _unknown(word: str) -> str:
    advice = _similar(word.lower(), (*OPERATIONS, *ROLES, HOST))
    known = f"operations are {', '.join(OPERATIONS)} and *, roles {', '.join(ROLES)}, and there is '{HOST}'"
    return f"'{word}' is no operation and no role: {advice or known}"


def _types_of(text: str, grant: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields the types in a grant, each with its attributes; none means all."""
    at = 0
    while at < len(text):
        found = _TYPE.match(text, at)
        if found is None:
            raise InvalidValue(f"item '{grant}': '{text[at:]}' is no entity type")
        listed = None if found[2] is None else tuple(each.strip() for each in found[2].split(","))
        if listed is not None and "" in listed:
            raise InvalidValue(f"item '{grant}': an attribute is missing in the parentheses behind '{found[1]}'")
        yield found[1], listed or ()
        at = found.end()
        if at < len(text) and text[at] != " ":
            raise InvalidValue(f"item '{grant}': a blank is missing before '{text[at:]}'")
        at += 1


def _kinds(name: str, grant: str) -> Iterable["_Kind"]:
    if name == ALL:
        return _kinds_by_name()[1]
    found = _kinds_by_name()[0].get(name)
    if found is None:
        advice = _similar(name, (kind.name for kind in _kinds_by_name()[1])) or "docs/management.md lists the types"
        raise InvalidValue(f"item '{grant}': '{name}' is no entity type: {advice}")
    return (found,)


def _pairs(
    operation: str, kind: "_Kind", listed: tuple[str, ...], grant: str, *, is_any_type: bool
) -> Iterator[tuple[tuple[str, str], frozenset[str] | None]]:
    if operation == ALL or is_any_type:
        if listed:
            raise InvalidValue(f"item '{grant}': attributes go with create or update of one type, not with *")
        for each in OPERATIONS if operation == ALL else (operation,):
            if each in kind.attributes:
                yield (each, kind.name), None
        return
    possible = kind.attributes.get(operation)
    if possible is None:
        can = ", ".join(kind.attributes)
        raise InvalidValue(f"item '{grant}': there is no {operation} of '{kind.name}', only {can}")
    if listed and operation not in (CREATE, UPDATE):
        raise InvalidValue(f"item '{grant}': attributes go with create and update, not with {operation}")
    for attribute in listed:
        if attribute not in possible:
            text = f"item '{grant}': no {operation} of '{kind.name}' can give '{attribute}'"
            raise InvalidValue(f"{text}: {advice}" if (advice := _similar(attribute, possible)) else text)
    yield (operation, kind.name), frozenset(listed) if listed else None


@dataclass(frozen=True, slots=True)
class _Kind:
    """An entity type.

    attributes  operation of the type -> the attributes that it can have
    """

    name: str
    attributes: Mapping[str, frozenset[str]]


@cache
def _kinds_by_name() -> tuple[Mapping[str, _Kind], tuple[_Kind, ...]]:
    """Returns the types by each of their names, and a tuple of all types."""
    document = schemas.load("management")
    by_name: dict[str, _Kind] = {}
    kinds = []
    for name, entry in document["entityTypes"].items():
        is_base = any(name in other["bases"] for other in document["entityTypes"].values())
        if is_base:
            continue
        kind = _Kind(name, MappingProxyType(dict(_possible(entry))))
        kinds.append(kind)
        long_name = entry["fullyQualifiedType"]
        for each in (name, long_name, long_name.removeprefix(f"{document['prefix']}.")):
            by_name[each] = kind
    return by_name, tuple(kinds)


def _possible(entry: Mapping[str, Any]) -> Iterator[tuple[str, frozenset[str]]]:
    attributes, operations = entry["attributes"], (*entry["operations"], *entry.get("moreOperations", ()))
    yield READ, frozenset(attributes)
    if "CREATE" in operations:
        yield CREATE, frozenset(name for name, each in attributes.items() if each.get("create"))
    updatable = frozenset(name for name, each in attributes.items() if each.get("update"))
    if updatable or not _CHANGING.isdisjoint(operations):
        yield UPDATE, updatable
    if "DELETE" in operations:
        yield DELETE, frozenset()


# Differences


def exists(operation: str, entity_type: str) -> bool:
    """Returns whether the type has this operation, as far as rights can be granted for it."""
    kind = _kinds_by_name()[0].get(entity_type)
    return kind is not None and operation in kind.attributes


def shown_difference(more: ManagementRights, less: ManagementRights) -> tuple[str, ...]:
    """Returns the rights that `more` allows and `less` does not, each in the form of a grant."""
    found = dict(_difference(more, less))
    grants = []
    for operation in OPERATIONS:
        every = [(operation, kind.name) for kind in _kinds_by_name()[1] if operation in kind.attributes]
        if all(found.get(pair, ()) is None for pair in every):
            grants.append(f"{operation} *")
            for pair in every:
                del found[pair]
    alike: dict[tuple[str, str], list[str]] = {}
    for (operation, name), attributes in found.items():
        alike.setdefault((name, "" if attributes is None else f"({', '.join(attributes)})"), []).append(operation)
    by_operations: dict[str, list[str]] = {}
    for (name, listed), operations in alike.items():
        by_operations.setdefault(", ".join(operations), []).append(f"{name}{listed}")
    grants += [f"{operations} {' '.join(names)}" for operations, names in by_operations.items()]
    return (*grants, *([HOST] if more.has_host and not less.has_host else []))


def _difference(
    more: ManagementRights, less: ManagementRights
) -> Iterator[tuple[tuple[str, str], tuple[str, ...] | None]]:
    """Yields pairs of operation and type with the attributes that `less` lacks; None if it lacks all."""
    for pair, attributes in more.allowed.items():
        known = less.allowed.get(pair, frozenset())
        if known is None:
            continue
        if attributes is None and not known:
            yield pair, None
            continue
        operation, name = pair
        wanted = _kinds_by_name()[0][name].attributes[operation] if attributes is None else attributes
        if extra := tuple(sorted(wanted - known)):
            yield pair, extra


def some_difference(more: ManagementRights, less: ManagementRights) -> str:
    """Returns one right that `more` has and `less` lacks, in the form of a grant; "" if there is none."""
    for (operation, name), attributes in _difference(more, less):
        return f"{operation} {name}" if attributes is None else f"{operation} {name}({attributes[0]})"
    return HOST if more.has_host and not less.has_host else ""


def common(one: ManagementRights, other: ManagementRights) -> ManagementRights:
    """Returns the rights that both have, shown as the grants of `one`."""
    allowed: dict[tuple[str, str], frozenset[str] | None] = {}
    for pair, attributes in one.allowed.items():
        if pair not in other.allowed:
            continue
        limited = other.allowed[pair]
        if attributes is None or limited is None:
            allowed[pair] = limited if attributes is None else attributes
        elif both := attributes & limited:
            allowed[pair] = both
    return ManagementRights(
        grants=one.grants, allowed=MappingProxyType(allowed), has_host=one.has_host and other.has_host
    )


def with_type_of(rights: ManagementRights, kept: ManagementRights, entity_type: str) -> ManagementRights:
    """Returns `rights`, and also the rights of `kept` for one entity type."""
    own = {pair: attributes for pair, attributes in kept.allowed.items() if pair[1] == entity_type}
    return replace(rights, allowed=MappingProxyType({**rights.allowed, **own}))


def holds(rights: ManagementRights, grant: str) -> bool:
    """Returns whether the rights include everything that a grant allows. Raises InvalidValue if it is not a grant."""
    return not shown_difference(read_rights([grant]), rights)


NOTHING: Final = read_rights(())
# If a group does not set rights: all rights of a client that reaches $management in 1.20, except values that name files
# or environment variables of the host.
UNSET: Final = ManagementRights(
    grants=("everything but host: 'management' is not set",),
    allowed=read_rights("administrator").allowed,
    is_set=False,
)
# If no policy is in force: as in 1.20.
UNRESTRICTED: Final = ManagementRights(
    grants=("everything: no policy is in force",), allowed=UNSET.allowed, has_host=True, is_set=False
)
