"""Finds the groups of which a user is a member, and the groups of which these are members."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from auth.verifiers.ldap_servers import Session
from auth.verifiers.ldap_settings import GroupPlace, escape
from auth.verifiers.ldap_wire import BASE, SUBTREE, Entry, LdapConnection, LdapError

# Active Directory's rule for members of members (LDAP_MATCHING_RULE_IN_CHAIN), and the capability of a server with it.
CHAIN_RULE: Final = "1.2.840.113556.1.4.1941"
_ACTIVE_DIRECTORY: Final = "1.2.840.113556.1.4.800"

# Of one user. With more, the login is refused, instead of decided on a part of the groups.
MAX_GROUPS: Final = 2_000
MAX_DEPTH: Final = 20

# Members per search.
_BATCH: Final = 50


def groups_of(place: GroupPlace, reader: LdapConnection, dn: str, user: str, session: Session) -> set[str]:
    """Returns the names of a user's groups. Errors: LdapError, also for more than MAX_GROUPS or MAX_DEPTH."""
    if not place.base:
        return set()
    if place.holds_names:
        return _names(place, _search(place, reader, (user,), session))
    if place.is_nested and _has_chain_rule(reader, session):
        return _names(place, _search(place, reader, (dn,), session, f"{place.member}:{CHAIN_RULE}:"))
    return _walk(place, reader, dn, session)


def _walk(place: GroupPlace, reader: LdapConnection, dn: str, session: Session) -> set[str]:
    """Searches level by level. It visits each group once, so that groups which are members of each other end it."""
    names: set[str] = set()
    seen = {dn.casefold()}
    level = [dn]
    for _ in range(MAX_DEPTH):
        following: dict[str, str] = {}
        for batch in _batches(level):
            found = _search(place, reader, batch, session)
            names |= _names(place, found)
            following |= {entry.dn.casefold(): entry.dn for entry in found if entry.dn.casefold() not in seen}
            if len(seen) + len(following) > MAX_GROUPS + 1:
                raise LdapError(f"a user in more than {MAX_GROUPS} groups")
        if not following or not place.is_nested:
            return names
        seen |= following.keys()
        level = list(following.values())
    raise LdapError(f"groups nested more than {MAX_DEPTH} deep")


def _search(
    place: GroupPlace, reader: LdapConnection, members: Sequence[str], session: Session, attribute: str | None = None
) -> list[Entry]:
    matches = "".join(f"({attribute or place.member}={escape(member)})" for member in members)
    condition = f"(&{place.filter}(|{matches}))"
    return reader.search(place.base, SUBTREE, condition, (place.attribute,), session.limits)


def _names(place: GroupPlace, groups: Iterable[Entry]) -> set[str]:
    names = {text for group in groups for text in group.texts(place.attribute) if text.isprintable()}
    if len(names) > MAX_GROUPS:
        raise LdapError(f"a user in more than {MAX_GROUPS} groups")
    return names


def _has_chain_rule(reader: LdapConnection, session: Session) -> bool:
    """Returns whether the server has the chain rule. Each server is asked once, until it fails."""
    known = session.has_chain_rule
    if known is None:
        root = reader.search("", BASE, "(objectClass=*)", ("supportedCapabilities",), session.limits)
        known = any(_ACTIVE_DIRECTORY in entry.texts("supportedCapabilities") for entry in root)
        session.has_chain_rule = known
    return known


def _batches(members: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(members)
    while batch := list(islice(rest, _BATCH)):
        yield batch
