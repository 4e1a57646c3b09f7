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

from policy.addressing.address import MANAGEMENT_NAMES, MANAGEMENT_TEXTS, Address, resolve
from policy.addressing.lists import USER_TOKEN, compile_literals, tokens_after, tokens_before
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

    def walked(self, states: frozenset[int], text: str) -> frozenset[int]:
        for letter in text:
            states = self.moved(states, letter)
        return states

    def behind(self, head: str) -> "Automaton":
        """An automaton of the texts that follow `head` in the words this one accepts."""
        made = Automaton()
        made.steps, made.accepting, made.letters = self.steps, self.accepting, self.letters
        made.starts = set(self.walked(frozenset(self.starts), head))
        return made

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


@lru_cache(maxsize=1)
def unclear_automaton() -> Automaton:
    """The texts that do not stand for themselves: aliases of another text, and what is no address.

    All others are the plain texts of `addressing.address`, of which each address has at least one.
    """
    automaton = Automaton()
    start, inside, end, ever = (automaton.state() for _ in range(4))
    automaton.starts.add(start)
    automaton.accepting |= {end, ever}
    automaton.step(start, "/", ever)
    automaton.step(ever, _ANY, ever)
    for state in (start, inside):
        automaton.step(state, _ANY, inside)
        automaton.step(state, _SEPARATOR, end)
        automaton.step(automaton.chain(state, ":"), "/", ever)
    for head, parts in (("_topo/", 2), ("_edge/", 1)):
        state = automaton.chain(start, head)
        for _ in range(parts):
            automaton.step(state, "/", ever)
            state = _add_part(automaton, state)
            automaton.accepting.add(state)
            state = automaton.chain(state, "/")
    return automaton


@lru_cache(maxsize=4)
def management_automaton() -> Automaton:
    """The plain texts by which the management agent of some router is reached."""
    automaton = Automaton()
    automaton.starts.add(start := automaton.state())
    for text in MANAGEMENT_TEXTS:
        automaton.accepting.add(automaton.chain(start, text))
    _add_management_of_others(automaton, start)
    return automaton


def _add_management_of_others(automaton: Automaton, start: int) -> None:
    for head, parts in (("_topo/", 2), ("_edge/", 1)):
        state = automaton.chain(start, head)
        for _ in range(parts):
            state = automaton.chain(_add_part(automaton, state), "/")
        for name in MANAGEMENT_NAMES:
            automaton.accepting.add(automaton.chain(state, name))


def _add_part(automaton: Automaton, origin: int) -> int:
    """One or more characters other than `/`."""
    state = automaton.state()
    for label in (_WORD, "."):
        automaton.step(origin, label, state)
        automaton.step(state, label, state)
    return state


@lru_cache(maxsize=1024)
def denial_automaton(denied: tuple[str, ...], router_id: str) -> Automaton:
    """The plain texts that are denied: by themselves, or by another name of what they reach.

    denied     as lists.denied_items gives them
    router_id  as for addressing.address.resolve
    """
    automaton = Automaton()
    for item in denied:
        _add_literal(automaton, item, "")
    # Texts that differ only in how they begin, and reach the same.
    alike: list[tuple[str, ...]] = [("_topo/0/", "_topo/all/")]
    if router_id:
        alike.append(("_local/", f"_topo/0/{router_id}/", f"_topo/all/{router_id}/", f"_edge/{router_id}/"))
    for heads in alike:
        begun = frozenset(automaton.starts)
        behind = frozenset(state for head in heads for state in automaton.walked(begun, head))
        for head in heads if behind else ():
            automaton.starts.add(start := automaton.state())
            end = automaton.chain(start, head)
            automaton.steps[end] += [step for state in behind for step in automaton.steps[state]]
            if not behind.isdisjoint(automaton.accepting):
                automaton.accepting.add(end)
    matcher = compile_literals(denied).bind("")
    own = resolve(MANAGEMENT_TEXTS[0], router_id=router_id)
    assert isinstance(own, Address)
    automaton.starts.add(start := automaton.state())
    if any(matcher.match(name) is not None for name in own.names):
        for name in (*own.names, *MANAGEMENT_NAMES):
            automaton.accepting.add(automaton.chain(start, name))
    if any(matcher.match(name) is not None for name in MANAGEMENT_TEXTS):
        _add_management_of_others(automaton, start)
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

    wanted  gets, for each automaton, whether it accepts the word; it never holds for a word the first does not accept
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
            if moved[0]:
                queue.append((moved, longer))
    return None


def _fresh_letters() -> Iterable[str]:
    yield from _FRESH
    yield from (chr(code) for code in range(0xE004, 0xF8FF))
