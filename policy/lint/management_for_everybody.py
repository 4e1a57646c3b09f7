"""Users who are not named may send to management.

Requests to `$management` read and change the router's configuration, close connections and delete vhosts. The address
has many other names, such as `amqp:/$management`, `_local/$management` and `_topo/0/ROUTER/$management`: whether a list
allows one of them is decided exactly, and `denyTargets: $management` denies them all. Give it to a group that lists its
members.
"""

from collections.abc import Iterator
from typing import Final

from policy.addressing.address import MANAGEMENT_TEXTS
from policy.addressing.lists import denied_items, reached_item
from policy.analysis.automata import (
    address_automaton,
    denial_automaton,
    find_word,
    management_automaton,
    unclear_automaton,
)
from policy.analysis.effort import RULE_STEPS, Effort, TooComplexError
from policy.lint.findings import SOME_USER, Family, Finding, GroupText, Level, PolicyText

# What a group and an item take, as measured; see effort.py.
_GROUP_STEPS: Final = 20_000
_ITEM_STEPS: Final = 3000

# First characters of the plain texts of management, of items that may begin with any text, and of other spellings.
_BEGINNINGS: Final = frozenset({"*", "#", ".", "/", "_", *(text[0] for text in MANAGEMENT_TEXTS)})

ID = "PAL012"
TITLE = "management for unnamed users"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    effort = Effort(RULE_STEPS)
    for vhost in policy.vhosts:
        for group in vhost.open_groups:
            key = "targets" if "targets" in group.settings else "targetPattern"
            claim = "users who are not named may send to management"
            try:
                if reaches_management(group, effort):
                    text = f"{claim}: give it to a group that lists its members"
                    yield group.finding(ID, Level.WARNING, text, key)
            except TooComplexError as error:
                yield group.finding(ID, Level.WARNING, error.about(claim), key)


def reaches_management(group: GroupText, effort: Effort) -> bool:
    """May members send management requests to this router or another? Raises TooComplexError.

    effort  of a rule; this takes a share of it
    """
    items = sum(len(group.items(key)) for key in ("targets", "targetPattern", "denyTargets"))
    with effort.share(_GROUP_STEPS + _ITEM_STEPS * items) as share:
        return _reaches_management(group, share)


def _reaches_management(group: GroupText, effort: Effort) -> bool:
    for key in ("targets", "targetPattern"):
        items = tuple(item for item in group.items(key) if _may_begin_as_management(item))
        if not items:
            continue
        denied = denial_automaton(denied_items(group.items("denyTargets")), "", effort)
        # An item written as another name allows the address it reaches by that name.
        reached = tuple(dict.fromkeys((*items, *filter(None, (reached_item(key, item) for item in items)))))
        allowed = address_automaton(key, reached, SOME_USER, effort)
        sets = (allowed, management_automaton(), denied, unclear_automaton())
        if find_word(sets, lambda is_in: is_in == (True, True, False, False), effort) is not None:
            return True
    return False


def _may_begin_as_management(item: str) -> bool:
    """False where it can be seen at a glance that no address of the item is one of management: most begin otherwise."""
    return item[0] in _BEGINNINGS or ":/" in item
