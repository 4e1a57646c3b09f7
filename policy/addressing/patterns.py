"""Match patterns: tokens between `.` or `/`, `*` for exactly one token, `#` for zero or more.

Used for sourcePattern, targetPattern and, with enableVhostNamePatterns, for vhost names.
Source: docs/spec/policy-and-auth.md §2.6.
"""

from collections.abc import Iterable, Iterator, Sequence

ONE = "*"
ANY_NUMBER = "#"
# Matching costs at most tokens x pattern tokens. Stops an address of thousands of separators from making one Attach
# expensive. A longer text matches nothing.
MAX_TOKENS = 255


def split_tokens(text: str) -> list[str]:
    """Returns the tokens of a pattern or a name. Skips leading separators, and ignores one trailing separator."""
    text = text.replace("/", ".").lstrip(".")
    if text.endswith("."):
        text = text[:-1]
    return text.split(".") if text else []


def normalise_tokens(tokens: Sequence[str]) -> tuple[str, ...]:
    """Replaces `#.#` by `#` and `#.*` by `*.#`, as often as possible, so that equal patterns look equal."""
    if ANY_NUMBER not in tokens:
        return tuple(tokens)
    result: list[str] = []
    for token in tokens:
        if token == ANY_NUMBER and result and result[-1] == ANY_NUMBER:
            continue
        if token == ONE and result and result[-1] == ANY_NUMBER:
            result.insert(-1, ONE)
        else:
            result.append(token)
    return tuple(result)


def normalise(pattern: str) -> str:
    """Returns the form in which two patterns are compared, with `/` as the separator."""
    return normal_form(split_tokens(pattern))


def normal_form(tokens: Sequence[str]) -> str:
    """Returns the same form as normalise, from a pattern's tokens."""
    return "/".join(normalise_tokens(tokens))


def configured_tokens(prefix: str | None, pattern: str | None) -> tuple[str, ...]:
    """Returns the pattern of a configured address in its normal form. `prefix: P` is the pattern `P/#` (routing §3.3).

    Raises ValueError if the text has only separators.
    """
    text = (pattern if prefix is None else prefix) or ""
    stripped = text.strip("./")
    if not stripped:
        raise ValueError("no tokens")
    tokens = split_tokens(stripped)
    return normalise_tokens(tokens if prefix is None else [*tokens, ANY_NUMBER])


class _Node:
    __slots__ = ("any_number", "is_any_number", "literals", "one", "payload")

    def __init__(self, *, is_any_number: bool = False) -> None:
        self.literals: dict[str, _Node] = {}
        self.one: _Node | None = None  # after `*`
        self.any_number: _Node | None = None  # after `#`
        self.is_any_number = is_any_number
        self.payload: str | None = None

    @property
    def is_bare(self) -> bool:
        """Returns whether no pattern ends or continues here."""
        return self.payload is None and not (self.literals or self.one or self.any_number)

    def following(self, token: str) -> "_Node | None":
        return self.one if token == ONE else self.any_number if token == ANY_NUMBER else self.literals.get(token)

    def forget(self, token: str) -> None:
        if token == ONE:
            self.one = None
        elif token == ANY_NUMBER:
            self.any_number = None
        else:
            del self.literals[token]


class PatternTree:
    """A set of patterns, each with a text that `find` returns.

    The trees of a policy do not change after construction.
    """

    __slots__ = ("_root",)

    def __init__(self, patterns: Iterable[tuple[Sequence[str], str]]) -> None:
        """Builds the tree.

        patterns  (tokens, payload); of two patterns that are equal when normalised, the first counts
        """
        self._root = _Node()
        for tokens, payload in patterns:
            node = self._root
            for token in normalise_tokens(tokens):
                # Literal words are most of a ruleset of thousands. They need no call.
                following = node.literals.get(token)
                node = _child(node, token) if following is None else following
            if node.payload is None:
                node.payload = payload

    def add(self, tokens: Sequence[str], payload: str) -> None:
        """Adds a pattern that is not in the tree yet."""
        node = self._root
        for token in normalise_tokens(tokens):
            node = _child(node, token)
        node.payload = payload

    def discard(self, tokens: Sequence[str]) -> None:
        """Removes a pattern and its unused nodes.

        Attack: patterns that come and go would leave their words in memory.
        """
        path = [self._root]
        tokens = normalise_tokens(tokens)
        for token in tokens:
            node = path[-1].following(token)
            if node is None:
                return
            path.append(node)
        path[-1].payload = None
        for token, parent, node in zip(reversed(tokens), reversed(path[:-1]), reversed(path[1:]), strict=True):
            if not node.is_bare:
                return
            parent.forget(token)

    def find(self, tokens: Sequence[str]) -> str | None:
        """Returns the payload of the best match, comparing from the first token on.

        A literal token precedes `*`, and `*` precedes `#`.
        """
        return next(self.matches(tokens), None)

    def matches(self, tokens: Sequence[str]) -> Iterator[str]:
        """Yields the payloads of all matches, the best first."""
        end = len(tokens)
        if end > MAX_TOKENS:
            return
        node: _Node | None = self._root
        at = 0
        stack: list[tuple[_Node, int]] = []
        # A place that led to no match is not tried again; without this, `#.a.#.a.#.b` is exponential. Only places
        # inside a `#` can be reached in two ways.
        tried: set[tuple[_Node, int]] = set()
        while True:
            if node is None:
                if not stack:
                    return
                node, at = stack.pop()
            if node.is_any_number:
                if (node, at) in tried:
                    node = None
                    continue
                tried.add((node, at))
            if at == end:
                if node.payload is not None:
                    yield node.payload
                if node.any_number is not None and node.any_number.payload is not None:
                    yield node.any_number.payload
                node = None
                continue
            # The last place pushed is tried first, and a literal word before all of them.
            if node.is_any_number:
                stack.append((node, at + 1))
            if node.any_number is not None:
                stack.append((node.any_number, at))
            if node.one is not None:
                stack.append((node.one, at + 1))
            node = node.literals.get(tokens[at])
            at += 1

    # The same matching word by word, so that a caller can follow several trees at once (request_classes.py).

    def start(self) -> "tuple[_Node, ...]":
        """Returns the beginning of a walk: the places reached, the best first."""
        return (self._root,)

    def moved(self, places: "tuple[_Node, ...]", token: str) -> "tuple[_Node, ...]":
        """Returns the places after one more word, the best first."""
        found: dict[_Node, None] = {}
        for place in places:
            for node in (place, place.any_number):
                if node is None:
                    continue
                for following in (node.literals.get(token), node.one):
                    if following is not None:
                        found.setdefault(following)
            # A word for `#` is the last choice; the `#` that begins here comes before the one that contains this place.
            if place.any_number is not None:
                found.setdefault(place.any_number)
            if place.is_any_number:
                found.setdefault(place)
        return tuple(found)

    def result(self, places: "tuple[_Node, ...]") -> str | None:
        """Returns the payload of the best match of a text that ends here. None if no pattern matches."""
        for place in places:
            if place.payload is not None:
                return place.payload
            if place.any_number is not None and place.any_number.payload is not None:
                return place.any_number.payload
        return None

    def words(self, places: "tuple[_Node, ...]") -> set[str]:
        """Returns the literal words that can continue at these places."""
        nodes = [node for place in places for node in (place, place.any_number) if node is not None]
        return {word for node in nodes for word in node.literals}


def _child(node: _Node, token: str) -> _Node:
    if token == ONE:
        if node.one is None:
            node.one = _Node()
        return node.one
    if token == ANY_NUMBER:
        if node.any_number is None:
            node.any_number = _Node(is_any_number=True)
        return node.any_number
    return node.literals.setdefault(token, _Node())
