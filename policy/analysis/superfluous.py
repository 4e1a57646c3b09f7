"""Finds the items of an address list that add nothing to the others. The result is exact, for every user. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from policy.addressing.lists import has_user_token, reached_item
from policy.addressing.patterns import ANY_NUMBER, ONE, split_tokens
from policy.analysis.automata import address_automaton, find_word
from policy.analysis.effort import Effort
from policy.analysis.request_classes import user_shapes

# The measured cost of examining an item; see effort.py.
_ITEM_STEPS: Final = 20


def superfluous_items(
    key: str, items: Sequence[str], effort: Effort | None = None
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields the items that allow nothing beyond the other items, each with the items that overlap it.

    Of several items that cover each other one is kept. The result is exact if the lists do not count the words of a
    name.
    Otherwise it covers names of up to MAX_USER_SHAPE characters. Raises TooComplexError.
    """
    effort = effort or Effort()
    removed: set[str] = set()
    with effort.naming(tuple(items)):
        candidates = tuple(_candidates(key, items, effort))
    for item in candidates:
        with effort.naming(tuple(items)):
            effort.spend(_ITEM_STEPS * len(items))
        others = [other for other in items if other != item and other not in removed]
        covering = covering_items(key, item, others, effort)
        if covering is not None:
            removed.add(item)
            yield item, covering


def _candidates(key: str, items: Sequence[str], effort: Effort) -> Iterator[str]:
    """Yields the items that may be superfluous. A quick look excludes most items."""
    if not key.endswith("Pattern"):
        # A single text is covered by a prefix. An infinite set is covered only by a prefix.
        prefixes = Counter(item[:-1] for item in items if item.endswith("*"))
        lengths = sorted({len(prefix) for prefix in prefixes})
        for item in items:
            effort.spend(_ITEM_STEPS * len(lengths))
            own = item[:-1] if item.endswith("*") else None
            if any(item[:length] in prefixes and item[:length] != own for length in lengths if length <= len(item)):
                yield item
        return
    words = {item: tuple(split_tokens(item)) for item in items}
    endless = [item for item in items if _is_endless(item)]
    times = Counter(words[item] for item in items)
    # Two patterns can overlap only if their words before the first wildcard agree, as far as both have words.
    leads = {item: () if has_user_token(item) else _lead(words[item]) for item in endless}
    counts = Counter(leads.values())
    lengths = sorted({len(lead) for lead in counts})
    for item in items:
        effort.spend(_ITEM_STEPS * len(lengths) + len(words[item]) ** 2 // 8)
    through = Counter(lead[:length] for lead in leads.values() for length in range(len(lead)))
    for item in items:
        lead = leads.get(item, words[item])
        is_met = any(lead[:length] in counts for length in lengths if length < len(lead))
        if item in leads:
            is_met = is_met or counts[lead] > 1 or lead in through
        else:
            is_met = is_met or lead in counts or times[lead] > 1
        if is_met:
            yield item


def _lead(words: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the words before the first wildcard."""
    return words[: next((at for at, word in enumerate(words) if word in (ONE, ANY_NUMBER)), len(words))]


def covering_items(key: str, item: str, others: Sequence[str], effort: Effort | None = None) -> tuple[str, ...] | None:
    """Returns the items among `others` that overlap `item`, if together they allow all that it allows.

    Returns  None if `item` adds something. Raises TooComplexError
    """
    effort = effort or Effort()
    if key.endswith("Pattern"):
        candidates = tuple(other for other in others if _may_meet(item, other))
        if _is_endless(item) and not any(_is_endless(other) for other in candidates):
            return None
    else:
        # Finite items cannot cover an infinite one together; one item has to cover it alone.
        candidates = tuple(other for other in others if other.endswith("*") and item.startswith(other[:-1]))
    if not candidates:
        return None
    # An item that is another spelling, such as `amqp:/a*`, also allows the plain form of its texts.
    both = {item, reached_item(key, item)} - {""}
    for user in ("", *user_shapes([(key, (item, *candidates))])):
        all_of_them = address_automaton(key, tuple(others) if len(both) > 1 else candidates, user, effort)
        for each in both:
            one = address_automaton(key, (each,), user, effort)
            if find_word((one, all_of_them), lambda is_in: is_in[0] and not is_in[1], effort):
                return None
    return candidates


def _is_endless(pattern: str) -> bool:
    if "*" not in pattern and "#" not in pattern:
        return has_user_token(pattern)
    return has_user_token(pattern) or not {"*", "#"}.isdisjoint(split_tokens(pattern))


def _may_meet(item: str, other: str) -> bool:
    """Returns False only if no address matches both patterns."""
    if has_user_token(item) or has_user_token(other):
        return True
    one, another = split_tokens(item), split_tokens(other)
    for mine, its in zip(one, another, strict=False):
        if "#" in (mine, its):
            return True
        if mine != its and "*" not in (mine, its):
            return False
    return len(one) == len(another) or "#" in one or "#" in another
