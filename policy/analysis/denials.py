"""Merges an address list and a list of denials into one list, if such a list exists.

For `orders.*` without `orders.secret` none exists. But an item that is entirely denied can be dropped, and an item that
no denial concerns can stay. That is decided exactly, for every user.
Pure. Source: docs/policy.md, Extensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from policy.addressing.lists import denied_items, has_user_token
from policy.analysis.automata import address_automaton, denial_automaton, find_word, unclear_automaton
from policy.analysis.effort import Effort
from policy.analysis.request_classes import names_in_denied, user_shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The result of a merge.

    kept     the items that mean the same without the denials
    denied   items that are entirely denied
    partial  items that are denied in part, each with an address that is not denied
    renamed  kept items that reach an address by another name, to which the denials apply as well
    """

    kept: tuple[str, ...]
    denied: tuple[str, ...]
    partial: tuple[tuple[str, str], ...]
    renamed: tuple[str, ...]


def resolve_denials(key: str, items: Sequence[str], denied: Sequence[str], effort: Effort | None = None) -> Resolved:
    """Merges a list and its denials. Raises TooComplexError.

    key     of the items: "sources", "targetPattern" ...
    denied  as lists.denied_items returns them
    """
    effort = effort or Effort()
    kept: list[str] = []
    lost: list[str] = []
    partial: list[tuple[str, str]] = []
    for item in items:
        outside = _word(key, (item,), denied, effort, is_denied=False)
        inside = _word(key, (item,), denied, effort, is_denied=True)
        if inside is None:
            # An item that allows no address is not denied either.
            kept.append(item)
        elif outside is None:
            lost.append(item)
        else:
            partial.append((item, outside))
    renamed = [item for item in kept if denied and _has_names(item)]
    return Resolved(kept=tuple(kept), denied=tuple(lost), partial=tuple(partial), renamed=tuple(renamed))


def idle_denials(
    key: str, items: Sequence[str], denied: Sequence[str], effort: Effort | None = None
) -> tuple[str, ...]:
    """Returns the denials, as written, of addresses that no item allows to any user. Raises TooComplexError."""
    if any(_has_names(item) for item in items):
        return ()
    effort = effort or Effort()
    return tuple(each for each in denied if _word(key, items, denied_items((each,)), effort, is_denied=True) is None)


def _word(key: str, items: Sequence[str], denied: Sequence[str], effort: Effort, *, is_denied: bool) -> str | None:
    """Returns an address that the items allow to some user and that is denied, or not denied. None if there is none."""
    users = [""]
    if any(map(has_user_token, items)):
        users += [*sorted(names_in_denied(items, denied, effort)), *user_shapes([(key, tuple(items))])]
    # An item that is another spelling has no plain text: the denials of its texts are compared.
    plain = tuple(item for item in items if not _has_names(item))
    others = tuple(item for item in items if _has_names(item))
    unclear = unclear_automaton()
    for user in users:
        allowed, denials = address_automaton(key, plain, user, effort), denial_automaton(tuple(denied), "", effort)
        word = find_word((allowed, denials, unclear), lambda is_in: is_in == (True, is_denied, False), effort)
        if word is not None:
            return word
        allowed = address_automaton(key, others, user, effort)
        denials = address_automaton("sources", tuple(denied), "", effort)
        word = find_word((allowed, denials), lambda is_in: is_in == (True, is_denied), effort)
        if word is not None:
            return word
    return None


def _has_names(item: str) -> bool:
    """Returns whether the router may understand an address of this item as another one (routing.md §3.1)."""
    return ":/" in item or item.startswith("/") or item.endswith(("/", "."))
