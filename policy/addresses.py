"""Which addresses a group may use: literal lists (`sources`, `targets`) and pattern lists (`sourcePattern`, ...).

A list is compiled once per ruleset and bound to a user once per connection. What comes from the user's name is always
taken literally: a `*`, `#` or separator in it widens nothing.
Source: docs/spec/policy-and-auth.md §2.5, §2.6.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from policy.address_text import normalise, without_authority
from policy.patterns import PatternTree, normal_form, split_tokens

USER_TOKEN = "${user}"  # noqa: S105 - a token of the grammar, not a secret
DEPRECATED_USER_TOKEN = "{user}"  # noqa: S105


class AddressMatcher(Protocol):
    """An address list bound to one connection's user."""

    def match(self, address: str) -> str | None:
        """The item that allows `address`, None when none does."""
        ...


class Exclusions:
    """Addresses a list allows, but for those another list names."""

    __slots__ = ("_allowed", "_denied")

    def __init__(self, allowed: AddressMatcher, denied: AddressMatcher) -> None:
        self._allowed = allowed
        self._denied = denied

    def match(self, address: str) -> str | None:
        return None if self._denied.match(address) is not None else self._allowed.match(address)


class AddressRules(Protocol):
    """A compiled address list."""

    @property
    def canonical(self) -> tuple[str, ...]:
        """The items, sorted, equal for lists that mean the same."""
        ...

    @property
    def items(self) -> tuple[str, ...]:
        """The items, sorted, as they are written but for the deprecated user token."""
        ...

    def bind(self, user: str) -> AddressMatcher: ...


@dataclass(frozen=True, slots=True)
class _UserItem:
    head: str
    rest: str  # without the trailing `*`
    is_prefix: bool
    item: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteralRules:
    """`sources` or `targets`.

    exact     whole addresses
    prefixes  (length, texts of that length), shortest first: the items `text*` without their `*`
    """

    canonical: tuple[str, ...]
    is_any: bool
    exact: frozenset[str]
    prefixes: tuple[tuple[int, frozenset[str]], ...]
    user_items: tuple[_UserItem, ...]

    @property
    def items(self) -> tuple[str, ...]:
        return self.canonical

    def bind(self, user: str) -> AddressMatcher:
        exact: dict[str, str] = {}
        prefixes: list[tuple[str, str]] = []
        for rule in self.user_items:
            if not rule.is_prefix:
                exact[f"{rule.head}{user}{rule.rest}"] = rule.item
            # `${user}*` would let a peer without a name have everything, and `inbox.${user}*` everybody's inbox.
            elif user or rule.rest:
                prefixes.append((f"{rule.head}{user}{rule.rest}", rule.item))
        return _BoundLiterals(self, exact, tuple(prefixes))


@dataclass(frozen=True, slots=True)
class _BoundLiterals:
    rules: LiteralRules
    user_exact: dict[str, str]  # address -> item
    user_prefixes: tuple[tuple[str, str], ...]

    def match(self, address: str) -> str | None:
        rules = self.rules
        if not address:
            return None
        if rules.is_any:
            return "*"
        if address in rules.exact:
            return address
        for length, texts in rules.prefixes:
            head = address[:length]
            if head in texts:
                return f"{head}*"
        if (item := self.user_exact.get(address)) is not None:
            return item
        for prefix, item in self.user_prefixes:
            if address.startswith(prefix):
                return item
        return None


_NO_LITERALS = LiteralRules(canonical=(), is_any=False, exact=frozenset(), prefixes=(), user_items=())


def compile_literals(items: Iterable[str]) -> LiteralRules:
    """items  of a `sources` or `targets` list, each with `${user}` at most once"""
    canonical = tuple(sorted(set(items)))
    if not canonical:
        return _NO_LITERALS
    is_any = False
    exact: set[str] = set()
    prefixes: dict[int, set[str]] = {}
    user_items: list[_UserItem] = []
    for item in canonical:
        if USER_TOKEN in item:
            head, _, rest = item.partition(USER_TOKEN)
            is_prefix = rest.endswith("*")
            user_items.append(_UserItem(head, rest.removesuffix("*"), is_prefix, item))
        elif item == "*":
            is_any = True
        elif item.endswith("*"):
            prefixes.setdefault(len(item) - 1, set()).add(item[:-1])
        else:
            exact.add(item)
    return LiteralRules(
        canonical=canonical,
        is_any=is_any,
        exact=frozenset(exact),
        prefixes=tuple((length, frozenset(texts)) for length, texts in sorted(prefixes.items())),
        user_items=tuple(user_items),
    )


def denied_items(items: Iterable[str]) -> tuple[str, ...]:
    """The items of a list of denials, with what is reached by those that are written as another name of an address.

    `amqp:/x` is routed to `x`: who denies the one means the other. Of `amqp:/x*` it is everything that begins with `x`;
    `amqp:/*` names every address there is. A client's other names of an address are the caller's to look through.
    """
    found = set(items)
    for item in tuple(found):
        reached = f"{without_authority(item[:-1])}*" if item.endswith("*") else normalise(item)
        if reached:
            found.add(reached)
    return tuple(sorted(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternRules:
    """`sourcePattern` or `targetPattern`.

    after_user   what may follow the user's name, of the items `${user}` and `${user}/...`
    before_user  what may precede it, of the items `.../${user}`
    """

    canonical: tuple[str, ...]
    items: tuple[str, ...]
    tree: PatternTree
    after_user: PatternTree | None
    before_user: PatternTree | None

    def bind(self, user: str) -> AddressMatcher:
        return _BoundPatterns(self, user)


@dataclass(frozen=True, slots=True)
class _BoundPatterns:
    rules: PatternRules
    user: str

    def match(self, address: str) -> str | None:
        rules, user = self.rules, self.user
        if not address:
            return None
        if (item := rules.tree.find(split_tokens(address))) is not None:
            return item
        # The name is one unit, whatever it contains; a missing name is not a token.
        if not user:
            return None
        if rules.after_user is not None and address.startswith(user):
            tokens = tokens_after(address[len(user) :])
            if tokens is not None and (item := rules.after_user.find(tokens)) is not None:
                return item
        if rules.before_user is not None and address.endswith(user):
            tokens = tokens_before(address[: -len(user)])
            if tokens is not None:
                return rules.before_user.find(tokens)
        return None


def compile_patterns(items: Collection[str]) -> PatternRules:
    """items  of a pattern list; `${user}` may only be the first or the last characters of an item"""
    plain: list[tuple[list[str], str]] = []
    after: list[tuple[list[str], str]] = []
    before: list[tuple[list[str], str]] = []
    canonical: set[str] = set()
    for item in sorted(set(items)):
        head, token, rest = item.partition(USER_TOKEN)
        if not token:
            tokens = split_tokens(item)
            plain.append((tokens, item))
            canonical.add(normal_form(tokens))
            continue
        # Beside a user's name a separator counts that the normal form leaves out.
        canonical.add(item)
        if not head:
            if (words := tokens_after(rest)) is not None:
                after.append((words, item))
        elif not rest and (words := tokens_before(head)) is not None:
            before.append((words, item))
        # Anything else, `x${user}`, is no whole token and can never match.
    return PatternRules(
        canonical=tuple(sorted(canonical)),
        items=tuple(sorted(set(items))),
        tree=PatternTree(plain),
        after_user=PatternTree(after) if after else None,
        before_user=PatternTree(before) if before else None,
    )


def tokens_after(text: str) -> list[str] | None:
    """The tokens of what follows a user's name; None when the name was not a whole token."""
    text = text.replace("/", ".")
    if text and not text.startswith("."):
        return None
    if text.endswith("."):
        text = text[:-1]
    return text[1:].split(".") if text else []


def tokens_before(text: str) -> list[str] | None:
    """The tokens of what precedes a user's name; None when the name was not a whole token."""
    text = text.replace("/", ".")
    if text and not text.endswith("."):
        return None
    text = text.lstrip(".")
    return text[:-1].split(".") if text else []
