"""Classes of requests that two rulesets cannot distinguish: vhost names and users, each with an example.

Pure. Source: docs/spec/policy-and-auth.md §2.4-§2.7.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations
from typing import Final

from policy.addressing.lists import ESCAPED_USER_TOKEN, ESCAPES, has_user_token, split_at_user
from policy.addressing.patterns import PatternTree, split_tokens
from policy.analysis.changes import NAMELESS, OTHERS
from policy.analysis.effort import Effort
from policy.ruleset import Ruleset
from policy.vhosts import Vhost

# A character that no rule has, in place of the name of a user that no rule names.
FRESH_USER: Final = "\ue010"
READABLE_USERS: Final = ("someone", "unnamed", "another")
# The measured cost of comparing patterns of vhosts.
_PLACE_STEPS: Final = 20
_PLACES_BYTES: Final = 600
_TEXT_STEPS: Final = 5
_TEXT_BYTES: Final = 150
# Patterns that count words distinguish user names of several words: up to this length all forms are tried.
MAX_USER_SHAPE: Final = 11


def vhost_classes(old: Ruleset, new: Ruleset, effort: Effort) -> Iterator[tuple[str, Vhost | None, Vhost | None]]:
    """Yields each pair of vhosts that govern some name in both rulesets, with such a name. Raises TooComplexError."""
    seen: set[tuple[str | None, str | None]] = set()
    for requested in _requested_names(old, new, effort):
        before, after = old.select_vhost(requested), new.select_vhost(requested)
        pair = (before.name if before else None, after.name if after else None)
        if pair not in seen:
            seen.add(pair)
            yield requested, before, after


def _requested_names(old: Ruleset, new: Ruleset, effort: Effort) -> Iterator[str]:
    names = dict.fromkeys((*old.vhosts, *new.vhosts, *old.owners, *new.owners))
    yield from names
    trees = tuple(ruleset.tree for ruleset in (old, new) if ruleset.tree is not None)
    if trees:
        for words in _words_of_trees(trees, names, effort):
            # At least one of these names is not compared literally.
            yield from (".".join(words), "/".join(words), "." + ".".join(words), "/" + "/".join(words))
    yield ""
    yield next(name for name in ("any-other", *(f"any-other-{n}" for n in range(len(names) + 1))) if name not in names)


def _words_of_trees(trees: Sequence[PatternTree], names: Iterable[str], effort: Effort) -> Iterator[tuple[str, ...]]:
    """Yields for every combination of best matches a name that has it.

    names  of the vhosts, for the error
    """
    with effort.naming(tuple(names)):
        found = tuple(_found_words(trees, effort))
    yield from found


def _found_words(trees: Sequence[PatternTree], effort: Effort) -> Iterator[tuple[str, ...]]:
    effort.release()
    begin = tuple(tree.start() for tree in trees)
    queue = deque([(begin, ())])  # type: deque[tuple[tuple[tuple[object, ...], ...], tuple[str, ...]]]
    visited = {begin}
    found: set[tuple[str | None, ...]] = set()
    while queue:
        places, words = queue.popleft()
        results = tuple(tree.result(each) for tree, each in zip(trees, places, strict=True))  # type: ignore[arg-type]
        if results not in found:
            found.add(results)
            yield words
        effort.spend(_PLACE_STEPS * sum(map(len, places)))
        told = set().union(*(tree.words(each) for tree, each in zip(trees, places, strict=True)))  # type: ignore[arg-type]
        fresh = next(word for word in ("any", *(f"any{n}" for n in range(len(told) + 1))) if word not in told)
        for word in (fresh, *sorted(told)):
            moved = tuple(tree.moved(each, word) for tree, each in zip(trees, places, strict=True))  # type: ignore[arg-type]
            if moved not in visited:
                size = sum(map(len, moved))
                effort.spend(_PLACE_STEPS * size + len(words))
                effort.hold(_PLACES_BYTES + 8 * (size + len(words)))
                visited.add(moved)
                queue.append((moved, (*words, word)))


def group_combinations(before: Vhost | None, after: Vhost | None) -> Iterator[tuple[str, ...]]:
    """Yields authenticator groups that a user may have. One group decides in each ruleset, so pairs show every case."""
    names = sorted({name for vhost in (before, after) if vhost is not None for name in vhost.joined_groups})
    yield ()
    yield from ((name,) for name in names)
    yield from combinations(names, 2)


def user_classes(
    before: Vhost | None, after: Vhost | None, groups: tuple[str, ...], effort: Effort
) -> Iterator[tuple[str, str]]:
    """Yields a user and a name for the set that it represents: the named users, then the kinds of unnamed ones."""
    vhosts = [vhost for vhost in (before, after) if vhost is not None]
    named = dict.fromkeys(chain.from_iterable(vhost.user_groups for vhost in vhosts))
    for user in named:
        # A user named in both rulesets is in the group that names it, whatever its authenticator groups.
        if not groups or any(user not in vhost.user_groups for vhost in vhosts):
            yield user, user
    others = [group for vhost in vhosts if (group := vhost.group_of(FRESH_USER, groups)) is not None]
    lists = [
        each for group in others for each in ((group.source_key, group.sources), (group.target_key, group.targets))
    ]
    yield "", NAMELESS
    for name in sorted(denied_names(vhosts, effort) - named.keys()):
        yield name, f"users with names like '{name.replace(FRESH_USER, READABLE_USERS[0])}'"
    for shape in user_shapes([(key, rules.items) for key, rules in lists]):
        if shape not in named:
            example = shape.replace(FRESH_USER, READABLE_USERS[0])
            yield shape, OTHERS if shape == FRESH_USER else f"users with names like '{example}'"


def denied_names(vhosts: Iterable[Vhost], effort: Effort) -> set[str]:
    """Returns names that, inserted into an item with `${user}`, may give an address that is denied."""
    found: set[str] = set()
    for group in (group for vhost in vhosts for group in vhost.groups.values()):
        for rules, denied in ((group.sources, group.denied_sources), (group.targets, group.denied_targets)):
            found |= names_in_denied(rules.items, denied.items, effort)
    return found


def names_in_denied(items: Sequence[str], denied: Sequence[str], effort: Effort) -> set[str]:
    """Returns the same as denied_names for one list of addresses and its denials. Raises TooComplexError."""
    with effort.naming(tuple(denied)):
        return _names_in_denied(items, denied, effort)


def _names_in_denied(items: Sequence[str], denied: Sequence[str], effort: Effort) -> set[str]:
    found: set[str] = set()
    if not any(map(has_user_token, items)):
        return found
    is_escaped = any(ESCAPED_USER_TOKEN in item for item in items)
    heads = [split_at_user(each)[0] for each in items]
    effort.release()
    for item in denied:
        text = item.removesuffix("*")
        effort.spend(len(heads) + len(text))
        begins = {len(head) for head in heads if text.startswith(head)}
        begins |= {at + 1 for at, letter in enumerate(text) if letter in "./"}
        for begin in begins:  # each with every end after it: N texts of half the length
            length = len(text) - begin
            effort.spend(length * (_TEXT_STEPS + length // 16))
            effort.hold(length * (_TEXT_BYTES + length // 2))
        found |= {text[begin:end] for begin in begins for end in range(begin + 1, len(text) + 1)}
        if item.endswith("*"):
            found |= {text[begin:] + FRESH_USER for begin in begins}
            if is_escaped:  # the prefix may end within an escape
                found |= {text[begin:] + code[at:] for begin in begins for code in ESCAPES.values() for at in (1, 2)}
    if is_escaped:
        effort.spend(_TEXT_STEPS * len(found))
        effort.hold(sum(_TEXT_BYTES + len(name) for name in found))
        found |= set(map(_unescaped, found))
    return found - {FRESH_USER}


def _unescaped(text: str) -> str:
    for character, code in reversed(ESCAPES.items()):  # the escapes' own characters last
        text = text.replace(code, character)
    return text


def user_shapes(lists: Iterable[tuple[str, tuple[str, ...]]]) -> tuple[str, ...]:
    """Returns names that represent all users that no rule names, as far as these lists distinguish users.

    A name that no rule has behaves like a new character, unless patterns count its words: `${user}` may then be one
    word or many. So all names of up to MAX_USER_SHAPE characters are formed from new words and separators.
    """
    lists = list(lists)
    is_escaped = any(ESCAPED_USER_TOKEN in item for _, items in lists for item in items)
    shapes = [FRESH_USER, f"{FRESH_USER}.{FRESH_USER}"] if is_escaped else [FRESH_USER]
    with_user = any(has_user_token(item) for _, items in lists for item in items)
    counting = [item for key, items in lists if key.endswith("Pattern") for item in items]
    if with_user and counting:
        longest = min(2 * max(len(split_tokens(item)) for item in counting) + 2, MAX_USER_SHAPE)
        layer = ["", FRESH_USER]
        shapes = []
        for _ in range(longest):
            shapes += [shape for shape in layer if shape]
            layer = [
                shape + letter
                for shape in layer
                for letter in (".", FRESH_USER)
                if len(shape) > 0 or letter == "."
                if not (shape.endswith(FRESH_USER) and letter == FRESH_USER)
            ]
        shapes = sorted(set(shapes), key=lambda shape: (len(shape), shape != FRESH_USER, shape))
    return tuple(shapes)
