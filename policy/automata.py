"""Address lists as automata over characters, so that sets of addresses are compared exactly and not by trying some.

Every list is regular: literals, literals with anything behind, and word patterns, each with a user's name put in. A
word that is in some lists and not in others is found by walking all automata at once, shortest words first.
Words are at most `patterns.MAX_TOKENS` words long in the router; longer addresses are not looked at here.
Pure. Source: docs/spec/policy-and-auth.md §2.5, §2.6.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final

from policy.addressing.lists import USER_TOKEN, tokens_after, tokens_before
from policy.addressing.patterns import ANY_NUMBER, ONE, split_tokens

SEPARATORS: Final = "./"
# Labels of steps that are no single character.
_WORD, _SEPARATOR, _ANY = "word", "separator", "any"
# Stops a list written to be hard from occupying a pipeline for hours; real ones stay below a few thousand.
MAX_VISITED: Final = 200_000
# A character that stands for "one that is in no rule".
_FRESH: Final = "xyzuvwabcdefghijklmnopqrst0123456789_-\ue000\ue001\ue002\ue003"


class TooComplexError(Exception):
    """The lists cannot be compared within MAX_VISITED steps."""


class Automaton:
    """A nondeterministic automaton without empty steps. Build it, then do not change it."""

    __slots__ = ("accepting", "letters", "starts", "steps")

    def __init__(self) -> None:
        self.steps: list[list[tuple[str, int]]] = []
        self.starts: set[int] = set()
        self.accepting: set[int] = set()
        self.letters: set[str] = set()

    def state(self) -> int:
        self.steps.append([])
        return len(self.steps) - 1

    def step(self, origin: int, label: str, target: int) -> None:
        self.steps[origin].append((label, target))
        if len(label) == 1:
            self.letters.add(label)

    def chain(self, origin: int, text: str) -> int:
        """A new way from `origin` along the characters of `text`; its end."""
        for letter in text:
            following = self.state()
            self.step(origin, letter, following)
            origin = following
        return origin

    def moved(self, states: frozenset[int], letter: str) -> frozenset[int]:
        kind = _SEPARATOR if letter in SEPARATORS else _WORD
        labels = (letter, kind, _ANY)
        return frozenset(target for state in states for label, target in self.steps[state] if label in labels)

    def outgoing(self, states: Iterable[int]) -> set[str]:
        return {label for state in states for label, _ in self.steps[state] if len(label) == 1}


@lru_cache(maxsize=4096)
def address_automaton(key: str, items: tuple[str, ...], user: str) -> Automaton:
    """The addresses the list allows to `user`.

    key    "sources", "targets" or any key that ends in "Pattern"
    items  as compiled: the deprecated user token replaced
    """
    automaton = Automaton()
    for item in items:
        if key.endswith("Pattern"):
            _add_pattern(automaton, item, user)
        else:
            _add_literal(automaton, item, user)
    return automaton


def _add_literal(automaton: Automaton, item: str, user: str) -> None:
    head, token, rest = item.partition(USER_TOKEN)
    is_prefix = item.endswith("*")
    if token:
        rest = rest.removesuffix("*")
        if is_prefix and not user and not rest:
            return
        text = f"{head}{user}{rest}"
    else:
        text = item.removesuffix("*")
    start = automaton.state()
    automaton.starts.add(start)
    end = automaton.chain(start, text)
    if is_prefix:
        loop = automaton.state()
        automaton.step(end, _ANY, loop)
        automaton.step(loop, _ANY, loop)
        automaton.accepting.add(loop)
    # The start is never accepting: no address is empty.
    if end != start:
        automaton.accepting.add(end)


def _add_pattern(automaton: Automaton, item: str, user: str) -> None:
    head, token, rest = item.partition(USER_TOKEN)
    start = automaton.state()
    automaton.starts.add(start)
    if not token:
        _add_words(automaton, start, split_tokens(item), is_leading=True)
    elif not user:
        return
    elif not head:
        if (tokens := tokens_after(rest)) is not None:
            end = automaton.chain(start, user)
            # Behind the name comes a separator, or nothing.
            boundaries = _add_words(automaton, None, tokens, is_leading=False)
            for boundary in boundaries[:1]:
                automaton.step(end, _SEPARATOR, boundary)
                if boundary in automaton.accepting:
                    automaton.accepting.add(end)
    elif not rest and (tokens := tokens_before(head)) is not None:
        _add_words(automaton, start, tokens, is_leading=True, behind=user)


def _add_words(
    automaton: Automaton, start: int | None, tokens: Sequence[str], *, is_leading: bool, behind: str = ""
) -> list[int]:
    """The ways of a word pattern.

    start       the state at the beginning of the address; None where the first boundary is reached otherwise
    is_leading  are separators skipped at the beginning?
    behind      what must follow, directly after a separator or at the beginning; "" when the address ends there
    Returns     the boundary states: before the word of that index, just behind a separator
    """
    count = len(tokens)
    boundaries = [automaton.state() for _ in range(count + 1)]
    # A boundary reaches those behind every `#` that follows: it may stand for no word.
    reach = [_reachable(tokens, index) for index in range(count + 1)]
    ends = {index for index in range(count + 1) if count in reach[index]}
    if behind:
        last = automaton.chain(first := automaton.state(), behind)
        automaton.accepting.add(last)
        behind_steps = automaton.steps[first]
    else:
        behind_steps = []
        automaton.accepting.update(boundaries[index] for index in ends)
    inside: dict[tuple[int, int], int] = {}
    wild: dict[int, int] = {}
    for index, token in enumerate(tokens):
        following = index if token == ANY_NUMBER else index + 1
        if token in (ONE, ANY_NUMBER):
            wild[index] = state = automaton.state()
            automaton.step(state, _WORD, state)
            states = [state]
        else:
            states = [automaton.state() for _ in token]
            for at, letter in enumerate(token[1:]):
                automaton.step(states[at], letter, states[at + 1])
            if states:
                inside[index, 0] = states[0]
            states = states[-1:]
        for state in states:
            automaton.step(state, _SEPARATOR, boundaries[following])
            if not behind and following in ends:
                automaton.accepting.add(state)

    def leave(origin: int, index: int, *, skips_separators: bool) -> None:
        for at in reach[index]:
            if at == count:
                automaton.steps[origin].extend(behind_steps)
                continue
            following = at if tokens[at] == ANY_NUMBER else at + 1
            if at in wild:
                automaton.step(origin, _WORD, wild[at])
            elif (at, 0) in inside:
                automaton.step(origin, tokens[at][0], inside[at, 0])
            if not skips_separators and (at in wild or not tokens[at]):
                automaton.step(origin, _SEPARATOR, boundaries[following])

    for index, boundary in enumerate(boundaries):
        leave(boundary, index, skips_separators=False)
    if start is not None:
        leave(start, 0, skips_separators=is_leading)
        skipped = automaton.state()
        automaton.step(start, _SEPARATOR, skipped)
        automaton.step(skipped, _SEPARATOR, skipped)
        leave(skipped, 0, skips_separators=True)
        if not behind and 0 in ends:
            automaton.accepting.add(skipped)
    return boundaries


def _reachable(tokens: Sequence[str], index: int) -> list[int]:
    found = [index]
    while index < len(tokens) and tokens[index] == ANY_NUMBER:
        index += 1
        found.append(index)
    return found


def find_word(automata: Sequence[Automaton], wanted: Callable[[tuple[bool, ...]], bool]) -> str | None:
    """The shortest non-empty word for which `wanted` holds, None when there is none. Raises TooComplexError.

    wanted  gets, for each automaton, whether it accepts the word
    """
    letters = set().union(*(automaton.letters for automaton in automata))
    fresh = next(letter for letter in _fresh_letters() if letter not in letters)
    begin = tuple(frozenset(automaton.starts) for automaton in automata)
    queue = deque([(begin, "")])
    visited = {begin}
    while queue:
        states, word = queue.popleft()
        outgoing = set().union(
            *(automaton.outgoing(each) for automaton, each in zip(automata, states, strict=True)), SEPARATORS
        )
        for letter in (fresh, *sorted(outgoing)):
            moved = tuple(automaton.moved(each, letter) for automaton, each in zip(automata, states, strict=True))
            if moved in visited:
                continue
            visited.add(moved)
            if len(visited) > MAX_VISITED:
                raise TooComplexError(f"these lists cannot be compared within {MAX_VISITED} steps")
            longer = word + letter
            accepts = tuple(
                not each.isdisjoint(automaton.accepting) for automaton, each in zip(automata, moved, strict=True)
            )
            if wanted(accepts):
                return longer
            if any(moved):
                queue.append((moved, longer))
    return None


def _fresh_letters() -> Iterable[str]:
    yield from _FRESH
    yield from (chr(code) for code in range(0xE004, 0xF8FF))
