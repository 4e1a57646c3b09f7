"""Address lists as automata over characters, so that sets of addresses are compared exactly and not by samples.

Every list is regular: literals, prefixes, and word patterns, each with a user's name inserted. To find a word that is
in some lists and not in others, all automata are walked together, shortest words first.
In the router addresses have at most `patterns.MAX_TOKENS` words; longer addresses are not considered here.
Pure. Source: docs/spec/policy-and-auth.md §2.5, §2.6.
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final

from policy.addressing.address import MANAGEMENT_NAMES, MANAGEMENT_TEXTS, Address, resolve
from policy.addressing.lists import compile_literals, name_for, split_at_user, tokens_after, tokens_before
from policy.addressing.patterns import ANY_NUMBER, ONE, split_tokens
from policy.analysis.effort import Effort

SEPARATORS: Final = "./"
# Labels of steps that are not a single character.
_WORD, _SEPARATOR, _ANY = "word", "separator", "any"
# Measured costs: bytes of a set of states apart from its members, of a move, of a combination of sets; steps of a move
# and of a walk.
_SUBSET_BYTES: Final = 250
_MOVE_BYTES: Final = 100
_REACHED_BYTES: Final = 400
_MOVE_STEPS: Final = 10
_WALK_STEPS: Final = 300
# Candidates for a character that represents "one that is in no rule".
_FRESH: Final = "xyzuvwabcdefghijklmnopqrst0123456789_-\ue000\ue001\ue002\ue003"


class Automaton:
    """A nondeterministic automaton without empty steps. It does not change after construction.

    items  the items from which it was made, for error texts
    """

    __slots__ = ("accepting", "effort", "items", "letters", "starts", "steps", "subsets")

    def __init__(self, items: tuple[str, ...] = (), effort: Effort | None = None) -> None:
        """Begins an empty automaton.

        effort  pays for each state and step
        """
        self.steps: list[list[tuple[str, int]]] = []
        self.starts: set[int] = set()
        self.accepting: set[int] = set()
        self.letters: set[str] = set()
        self.items = items
        self.effort = effort or Effort()
        self.subsets: _Subsets | None = None

    @property
    def size(self) -> int:
        """Returns the number of states and steps."""
        return len(self.steps) + sum(map(len, self.steps))

    def state(self) -> int:
        self.effort.build(1)
        self.steps.append([])
        return len(self.steps) - 1

    def step(self, origin: int, label: str, target: int) -> None:
        self.effort.build(1)
        self.steps[origin].append((label, target))
        if len(label) == 1:
            self.letters.add(label)

    def chain(self, origin: int, text: str) -> int:
        """Adds a path from `origin` along the characters of `text`. Returns its last state."""
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
        """Returns an automaton of the texts that follow `head` in the words that this one accepts."""
        made = Automaton(self.items)
        made.steps, made.accepting, made.letters = self.steps, self.accepting, self.letters
        made.starts = set(self.walked(frozenset(self.starts), head))
        return made


class _Subsets:
    """The sets of states that words lead to, numbered, with the moves between them. They are computed when needed."""

    __slots__ = ("automaton", "begin", "held_bytes", "is_accepting", "kept_bytes", "moves", "numbers", "sets")

    def __init__(self, automaton: Automaton, effort: Effort) -> None:
        self.automaton = automaton
        self.numbers: dict[bytes, int] = {}
        self.sets: list[bytes] = []
        self.is_accepting: list[bool] = []
        self.moves: list[dict[str, int] | None] = []
        self.held_bytes = self.kept_bytes = 0
        self.begin = self._number(automaton.starts, effort)

    def _number(self, states: set[int], effort: Effort) -> int:
        key = array("I", sorted(states)).tobytes()
        found = self.numbers.get(key)
        if found is None:
            self._hold(len(key) + _SUBSET_BYTES, effort)
            found = self.numbers[key] = len(self.sets)
            self.sets.append(key)
            self.is_accepting.append(not states.isdisjoint(self.automaton.accepting))
            self.moves.append(None)
        return found

    def _hold(self, size_bytes: int, effort: Effort) -> None:
        self.held_bytes += size_bytes
        effort.hold(size_bytes)

    def moves_of(self, number: int, effort: Effort) -> dict[str, int]:
        """Returns letter -> number. The keys _WORD and _SEPARATOR are for all letters without an entry."""
        found = self.moves[number]
        if found is not None:
            return found
        targets: dict[str, set[int]] = {}
        steps = self.automaton.steps
        for state in array("I", self.sets[number]):
            effort.spend(len(steps[state]) + 1)
            for label, target in steps[state]:
                targets.setdefault(label, set()).add(target)
        anyway = targets.pop(_ANY, set())
        word, separator = (targets.pop(kind, set()) | anyway for kind in (_WORD, _SEPARATOR))
        found = {_WORD: self._number(word, effort), _SEPARATOR: self._number(separator, effort)}
        for letter, reached in targets.items():
            states = reached | (separator if letter in SEPARATORS else word)
            effort.spend(_MOVE_STEPS + len(states))
            self._hold(_MOVE_BYTES, effort)
            found[letter] = self._number(states, effort)
        self.moves[number] = found
        return found


def address_automaton(key: str, items: tuple[str, ...], user: str, effort: Effort | None = None) -> Automaton:
    """Returns an automaton of the addresses that the list allows to `user`. Raises TooComplexError.

    key     "sources", "targets" or any key that ends in "Pattern"
    items   as compiled: the deprecated user token replaced
    effort  keeps the automaton for the next call
    """
    effort = effort or Effort()
    name = ("address", key, items, user)
    if (known := effort.known.get(name)) is not None:
        assert isinstance(known, Automaton)
        return known
    with effort.naming(items):
        automaton = Automaton(items, effort)
        for item in items:
            if key.endswith("Pattern"):
                _add_pattern(automaton, item, user)
            else:
                _add_literal(automaton, item, user)
    effort.keep(name, automaton, automaton.size)
    return automaton


@lru_cache(maxsize=1)
def unclear_automaton() -> Automaton:
    """Returns an automaton of the texts that mean another text, or that are not an address.

    All other texts are the plain texts of `addressing.address`, of which each address has at least one.
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
    """Returns an automaton of the plain texts that reach the management agent of any router."""
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
    """Adds one or more characters other than `/`. Returns the state after them."""
    state = automaton.state()
    for label in (_WORD, "."):
        automaton.step(origin, label, state)
        automaton.step(state, label, state)
    return state


def denial_automaton(denied: tuple[str, ...], router_id: str, effort: Effort | None = None) -> Automaton:
    """Returns an automaton of the denied plain texts, including other names of denied addresses.

    Raises TooComplexError.

    denied     as lists.denied_items returns them
    router_id  as for addressing.address.resolve
    effort     keeps the automaton for the next call
    """
    effort = effort or Effort()
    name = ("denial", denied, router_id)
    if (known := effort.known.get(name)) is not None:
        assert isinstance(known, Automaton)
        return known
    with effort.naming(denied):
        automaton = _denial_automaton(denied, router_id, effort)
    effort.keep(name, automaton, automaton.size)
    return automaton


def _denial_automaton(denied: tuple[str, ...], router_id: str, effort: Effort) -> Automaton:
    automaton = Automaton(denied, effort)
    for item in denied:
        _add_literal(automaton, item, "")
    # Beginnings of texts that reach the same address.
    alike: list[tuple[str, ...]] = [("_topo/0/", "_topo/all/")]
    if router_id:
        alike.append(("_local/", f"_topo/0/{router_id}/", f"_topo/all/{router_id}/", f"_edge/{router_id}/"))
    for heads in alike:
        begun = frozenset(automaton.starts)
        behind = frozenset(state for head in heads for state in automaton.walked(begun, head))
        for head in heads if behind else ():
            automaton.starts.add(start := automaton.state())
            end = automaton.chain(start, head)
            copied = [step for state in behind for step in automaton.steps[state]]
            effort.build(len(copied))
            automaton.steps[end] += copied
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
    head, token, rest = split_at_user(item)
    is_prefix = item.endswith("*")
    if token:
        rest = rest.removesuffix("*")
        if is_prefix and not user and not rest:
            return
        text = f"{head}{name_for(token, user)}{rest}"
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
    head, token, rest = split_at_user(item)
    user = name_for(token, user)
    start = automaton.state()
    automaton.starts.add(start)
    if not token:
        if words := split_tokens(item):
            _add_words(automaton, start, words, is_leading=True)
    elif not user:
        return
    elif not head:
        if (tokens := tokens_after(rest)) is not None:
            end = automaton.chain(start, user)
            # After the name comes a separator or the end.
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
    """Adds the states and steps of a word pattern.

    start       the state at the beginning of the address; None if the first boundary is reached in another way
    is_leading  whether separators at the beginning are skipped
    behind      text that must follow directly after a separator or at the beginning; "" if the address ends there
    Returns     the boundary states: before the word of that index, directly after a separator
    """
    count = len(tokens)
    # A boundary has a step for each `#` after it: counted before they are made.
    automaton.effort.build(sum(_run_lengths(tokens)))
    boundaries = [automaton.state() for _ in range(count + 1)]
    # A boundary reaches the boundaries after every following `#`, which may match no word.
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
                automaton.effort.build(len(behind_steps))
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


def _run_lengths(tokens: Sequence[str]) -> Iterable[int]:
    """Yields for each index the number of consecutive `#` that begin there."""
    run = 0
    for token in reversed(tokens):
        run = run + 1 if token == ANY_NUMBER else 0
        yield run


def _reachable(tokens: Sequence[str], index: int) -> list[int]:
    found = [index]
    while index < len(tokens) and tokens[index] == ANY_NUMBER:
        index += 1
        found.append(index)
    return found


def find_word(
    automata: Sequence[Automaton], wanted: Callable[[tuple[bool, ...]], bool], effort: Effort | None = None
) -> str | None:
    """Returns the shortest non-empty word for which `wanted` holds, None if there is none. Raises TooComplexError.

    wanted  gets, for each automaton, whether it accepts the word; it never holds for a word that the first does not
            accept
    effort  pays for the search
    """
    effort = effort or Effort()
    largest = max(automata, key=lambda each: len(each.steps))
    try:
        with effort.naming(largest.items):
            return _find_word(automata, wanted, effort)
    finally:
        for automaton in automata:
            table = automaton.subsets
            if table is not None and not effort.may_keep_bytes(table.held_bytes - table.kept_bytes):
                automaton.subsets = None
            elif table is not None:
                table.kept_bytes = table.held_bytes


def _find_word(automata: Sequence[Automaton], wanted: Callable[[tuple[bool, ...]], bool], effort: Effort) -> str | None:
    effort.release()
    effort.spend(_WALK_STEPS)
    tables = []
    for automaton in automata:
        if automaton.subsets is None:
            automaton.subsets = _Subsets(automaton, effort)
        else:
            effort.hold(automaton.subsets.held_bytes)
        tables.append(automaton.subsets)
    count = len(tables)
    letters = set().union(*(automaton.letters for automaton in automata))
    fresh = next(letter for letter in _fresh_letters() if letter not in letters)
    begin = tuple(table.begin for table in tables)
    # How each combination of sets was first reached: from which combination, by which letter.
    reached: dict[tuple[int, ...], tuple[tuple[int, ...], str]] = {begin: ((), "")}
    queue = deque([begin])
    nothing = b""
    while queue:
        states = queue.popleft()
        moves = [table.moves_of(number, effort) for table, number in zip(tables, states, strict=True)]
        told = set(SEPARATORS).union(*moves)
        told -= {_WORD, _SEPARATOR}
        effort.spend((len(told) + 1) * (count + _MOVE_STEPS))
        for letter in (fresh, *sorted(told)):
            kind = _SEPARATOR if letter in SEPARATORS else _WORD
            moved = tuple([move[letter] if letter in move else move[kind] for move in moves])
            if moved in reached:
                continue
            reached[moved] = (states, letter)
            effort.hold(_REACHED_BYTES + 8 * count)
            if wanted(tuple([table.is_accepting[number] for table, number in zip(tables, moved, strict=True)])):
                return _word_to(moved, reached)
            if tables[0].sets[moved[0]] != nothing:
                queue.append(moved)
    return None


def _word_to(states: tuple[int, ...], reached: dict[tuple[int, ...], tuple[tuple[int, ...], str]]) -> str:
    letters = []
    while (came := reached[states])[1]:
        letters.append(came[1])
        states = came[0]
    return "".join(reversed(letters))


def _fresh_letters() -> Iterable[str]:
    yield from _FRESH
    yield from (chr(code) for code in range(0xE004, 0xF8FF))
