"""Finds the bindings of an exchange that a subject matches. Source: docs/spec/routing.md §18."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

MatchMethod = Literal["amqp", "mqtt"]

# A subject with more words matches only the pattern that matches everything. Attack: a subject of a hundred thousand
# words, each of which is compared at every `#`.
MAX_WORDS: Final = 64

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Syntax:
    separator: str
    one: str  # matches any one word
    many: str  # matches any number of words, including none
    is_many_last: bool  # and nothing may follow it


_SYNTAX: Final[dict[MatchMethod, Syntax]] = {
    "amqp": Syntax(".", "*", "#", is_many_last=False),
    "mqtt": Syntax("/", "+", "#", is_many_last=True),
}


class _Node(Generic[M]):
    """One step of the matching.

    repeats  True if any further word also matches
    """

    __slots__ = ("many", "members", "one", "repeats", "words")

    def __init__(self, *, repeats: bool = False) -> None:
        self.repeats = repeats
        self.words: dict[str, _Node[M]] = {}
        self.one: _Node[M] | None = None
        self.many: _Node[M] | None = None
        self.members: dict[M, None] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.words or self.members or self.one or self.many)


class Subjects(Generic[M]):
    """Members by the patterns that subjects match. The cost of a subject is its words times the `#` that match it."""

    def __init__(self, method: MatchMethod) -> None:
        self._syntax = _SYNTAX[method]
        self._root: _Node[M] = _Node()

    def is_valid(self, pattern: str) -> bool:
        words = pattern.split(self._syntax.separator)
        return not self._syntax.is_many_last or self._syntax.many not in words[:-1]

    def add(self, pattern: str, member: M) -> None:
        """Adds a member.

        pattern  a valid pattern
        """
        node = self._root
        for word in pattern.split(self._syntax.separator):
            if word == self._syntax.many:
                node.many = node.many or _Node(repeats=True)
                node = node.many
            elif word == self._syntax.one:
                node.one = node.one or _Node()
                node = node.one
            else:
                node = node.words.setdefault(word, _Node())
        node.members[member] = None

    def remove(self, pattern: str, member: M) -> None:
        """Removes a member that was added with this pattern."""
        self._remove(self._root, pattern.split(self._syntax.separator), member)

    def _remove(self, root: _Node[M], words: list[str], member: M) -> None:
        passed = [root]
        for word in words:
            node = passed[-1]
            found = node.many if word == self._syntax.many else node.one if word == self._syntax.one else None
            passed.append(found or node.words[word])
        del passed[-1].members[member]
        for word, node, below in zip(reversed(words), reversed(passed[:-1]), reversed(passed[1:]), strict=True):
            if not below.is_empty:
                return
            if below is node.many:
                node.many = None
            elif below is node.one:
                node.one = None
            else:
                del node.words[word]

    def find(self, subject: str) -> list[M]:
        """Returns the members whose patterns the subject matches, each once."""
        words = subject.split(self._syntax.separator, MAX_WORDS)
        if len(words) > MAX_WORDS:
            return list(self._root.many.members) if self._root.many is not None else []
        matched = dict.fromkeys(_with_many(self._root))
        for word in words:
            matched = dict.fromkeys(after for node in matched for after in _after(node, word))
        return list(dict.fromkeys(member for node in matched for member in node.members))


def _after(node: _Node[M], word: str) -> Iterator[_Node[M]]:
    if node.repeats:
        yield node
    for found in (node.words.get(word), node.one):
        if found is not None:
            yield from _with_many(found)


def _with_many(node: _Node[M]) -> Iterator[_Node[M]]:
    """Iterates over the node and the nodes that match too because `#` matches no word."""
    at: _Node[M] | None = node
    while at is not None:
        yield at
        at = at.many
