"""A denial is written with `.` and what it is to deny with `/`, or the other way round.

To a pattern `orders/secret` and `orders.secret` are one address: `orders/#` allows both. To a denial, and to `sources`
and `targets`, they are two: `denyTargets: orders.secret` leaves `orders/secret` open. Deny both.
"""

from collections.abc import Iterator
from typing import Final

from policy.addressing.lists import (
    AddressMatcher,
    AddressRules,
    compile_literals,
    compile_patterns,
    denied_items,
    reached_literal,
)
from policy.lint.findings import SOME_USER, About, Confidence, Family, Finding, GroupText, Level, PolicyText

ID = "PAL073"
TITLE = "denial with the other separator"
FAMILY = Family.SECURITY

_OTHER: Final = {".": "/", "/": "."}
_OF_A_ROUTER: Final = ("_topo", "_edge", "_local")


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        for key, items, denied_by, denied in group.denials():
            if not any(separator in item for item in denied for separator in _OTHER):
                continue
            rules: AddressRules = compile_patterns(items) if key.endswith("Pattern") else compile_literals(items)
            allowed, denials = rules.bind(SOME_USER), compile_literals(denied_items(denied)).bind("")
            for item in denied:
                if (open_item := _left_open(item, key, allowed, denials)) is not None:
                    yield _finding(group, key, denied_by, item, open_item)


def _left_open(item: str, key: str, allowed: AddressMatcher, denials: AddressMatcher) -> str | None:
    """The denial with the other separator, where that is what the list allows."""
    plain = reached_literal(item)
    written = {separator for separator in _OTHER if separator in plain}
    if len(written) != 1 or plain.startswith(_OF_A_ROUTER):
        return None
    separator = written.pop()
    other = plain.replace(separator, _OTHER[separator])
    allowing = allowed.match(_sample(other))
    if allowing is None or denials.match(_sample(other)) is not None:
        return None
    if key.endswith("Pattern"):
        is_slip = _OTHER[separator] in allowing and separator not in allowing
    else:
        # `*` and the like allow both, which are two addresses.
        is_slip = allowed.match(_sample(plain)) is None
    return other if is_slip else None


def _sample(item: str) -> str:
    return f"{item[:-1]}x" if item.endswith("*") else item


def _finding(group: GroupText, key: str, denied_by: str, item: str, other: str) -> Finding:
    text = f"'{item}' does not deny '{other}', which '{key}' allows: deny both"
    about = About(item=item, instead=f"{item}, {other}", confidence=Confidence.LIKELY)
    return group.finding(ID, Level.WARNING, text, denied_by, about)
