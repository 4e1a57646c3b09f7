"""Users who are not named may send to management.

Requests to `$management` read and change the router's configuration, close connections and delete vhosts. The address
has many other names, such as `amqp:/$management`, `_local/$management` and `_topo/0/ROUTER/$management`: whether a list
allows one of them is decided exactly, and `denyTargets: $management` denies them all. Give it to a group that lists its
members.
"""

from collections.abc import Iterator
from contextlib import suppress

from policy.addressing.lists import denied_items, reached_item
from policy.analysis.automata import (
    TooComplexError,
    address_automaton,
    denial_automaton,
    find_word,
    management_automaton,
    unclear_automaton,
)
from policy.lint.findings import SOME_USER, Family, Finding, GroupText, Level, PolicyText

ID = "PAL012"
TITLE = "management for unnamed users"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for vhost in policy.vhosts:
        for group in vhost.open_groups:
            if reaches_management(group):
                key = "targets" if "targets" in group.settings else "targetPattern"
                text = "users who are not named may send to management: give it to a group that lists its members"
                yield group.finding(ID, Level.WARNING, text, key)


def reaches_management(group: GroupText) -> bool:
    """May members send management requests to this router or another?"""
    denied = denial_automaton(denied_items(group.items("denyTargets")), "")
    for key in ("targets", "targetPattern"):
        items = group.items(key)
        # An item written as another name allows the address it reaches by that name.
        reached = tuple(dict.fromkeys((*items, *filter(None, (reached_item(key, item) for item in items)))))
        allowed = address_automaton(key, reached, SOME_USER)
        # A list too hard to decide is not blamed for anything.
        with suppress(TooComplexError):
            sets = (allowed, management_automaton(), denied, unclear_automaton())
            if find_word(sets, lambda is_in: is_in == (True, True, False, False)) is not None:
                return True
    return False
