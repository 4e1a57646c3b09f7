"""The addresses that a group may use: literal lists (`sources`, `targets`) and pattern lists (`sourcePattern`, ...).

A list is compiled once per ruleset and bound to a user once per connection. The user's name is always taken literally:
a `*`, `#` or separator in it permits nothing more. Lists are compared with texts. `Permission` applies them to an
address, which may be written in many ways.
Source: docs/spec/policy-and-auth.md §2.5, §2.6.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

from policy.addressing.address import Address
from policy.addressing.patterns import PatternTree, normal_form, split_tokens
from policy.addressing.text import RANDOM_NAME, normalise, without_authority

USER_TOKEN = "${user}"  # noqa: S105 - a token of the grammar, not a secret
DEPRECATED_USER_TOKEN = "{user}"  # noqa: S105
# An extension: the user's name as one word, whatever characters it has.
ESCAPED_USER_TOKEN = "${user:escaped}"  # noqa: S105
# `${user:escaped}` writes these characters as %XX: separators of words and of schemes, wildcards, and % itself.
ESCAPES: Final = {character: f"%{ord(character):02X}" for character in "%./*#:"}
_ESCAPED: Final = str.maketrans(ESCAPES)


# Addresses that begin with one of these words and a separator belong to routers.
_ROUTERS: Final = ("_local", "_topo", "_edge")
_ROUTERS_SIGNS: Final = ("$", "_$")
# A dynamic address as clients see it, and the common beginning of all of them: with `${user}.*` a user named `temp`
# would get them.
_DYNAMIC_NAME: Final = re.compile(rf"temp(?:\.(?:{RANDOM_NAME})?)?")


def is_reserved(name: str) -> bool:
    """Returns whether an address that is or begins with a user's name would have a special meaning to the router.

    Attack: a user called `$management`, if every user may use the addresses `${user}` and `${user}/#`.
    """
    return any(_is_routers(text) for text in (name, normalise(name)))


def _is_routers(text: str) -> bool:
    if text.startswith(_ROUTERS_SIGNS) or _DYNAMIC_NAME.fullmatch(text) is not None:
        return True
    return bool(text) and any(text.startswith(f"{each}/") or f"{each}/".startswith(text) for each in _ROUTERS)


def may_stand_for_user(head: str, name: str) -> bool:
    """Returns whether a user's name may follow `head` in an item of a list. Items write router addresses in full."""
    if is_reserved(name):
        return False
    if head.startswith((*_ROUTERS_SIGNS, *(f"{each}/" for each in _ROUTERS))):
        return "/" not in name
    return not head or not _is_routers(head + name)


def escaped(name: str) -> str:
    """Returns a name without separators, unique for each name: `bob.smith` becomes `bob%2Esmith`."""
    return name.translate(_ESCAPED)


def has_user_token(item: str) -> bool:
    return USER_TOKEN in item or ESCAPED_USER_TOKEN in item


def split_at_user(item: str) -> tuple[str, str, str]:
    """Returns the text before the token of the user's name, the token, and the text after it."""
    return item.partition(ESCAPED_USER_TOKEN if ESCAPED_USER_TOKEN in item else USER_TOKEN)


def name_for(token: str, user: str) -> str:
    """Returns the text that replaces a token."""
    return escaped(user) if token == ESCAPED_USER_TOKEN else user


def with_user(item: str, user: str) -> str:
    """Returns the item with the user's name inserted."""
    head, token, rest = split_at_user(item)
    return f"{head}{name_for(token, user)}{rest}" if token else item


class AddressMatcher(Protocol):
    """An address list, bound to the user of one connection."""

    def match(self, text: str) -> str | None:
        """Returns the item that allows exactly this text, None if no item does."""
        ...


class AddressRules(Protocol):
    """A compiled address list."""

    @property
    def canonical(self) -> tuple[str, ...]:
        """Returns the items, sorted. Lists with the same meaning have equal results."""
        ...

    @property
    def items(self) -> tuple[str, ...]:
        """Returns the items, sorted, as they are written except for the deprecated user token."""
        ...

    @property
    def aliases(self) -> "tuple[Alias, ...]":
        """Returns the items written as another name of the addresses they reach, except whole addresses."""
        ...

    def bind(self, user: str) -> AddressMatcher: ...


@dataclass(frozen=True, slots=True)
class Alias:
    """An item such as `amqp:/orders.*`, and the list of what it reaches, `orders.*`."""

    item: str
    written: AddressRules
    reached: AddressRules


class Verdict(NamedTuple):
    """A decision on an address.

    item       the item that allows the address; None: it is not allowed
    denied_by  the item that denies it
    text       the text that decided: the address as written, or as the router understands it
    """

    item: str | None
    denied_by: str | None
    text: str


class Permission:
    """The addresses that one connection may use in one direction: its user's list without the denied addresses.

    An address must be allowed both as written and as the router understands it. `public/x:/secret` means `secret`, so
    `public/*` does not allow it. An item that is itself such a name does: `amqp:/orders.*` allows what it says. A
    denial of an address applies to all its names.
    """

    __slots__ = ("_aliases", "_allowed", "_denied", "_user")

    def __init__(self, allowed: AddressRules, denied: "LiteralRules", user: str) -> None:
        self._allowed = allowed.bind(user)
        self._aliases = allowed.aliases
        # A connection without denials has no cost for them.
        self._denied = denied.bind("") if denied.items else None
        self._user = user

    def judge(self, address: Address, *, is_message: bool = False) -> Verdict:
        """Returns whether the address is allowed.

        is_message  for a message on an anonymous link: lists are compared with the tenant's form (policy §3.9)
        """
        if is_message:
            written, plain = address.full, address.name
        else:
            written, plain = address.written, address.plain
        if self._denied is not None:
            for text in (written, *address.names):
                if (denied_by := self._denied.match(text)) is not None:
                    return Verdict(None, denied_by, written)
        item = self._allowed.match(written)
        if item is None:
            return Verdict(None, None, written)
        # An item that equals the text allows it as well.
        if written in (plain, item) or self._allowed.match(plain) is not None:
            return Verdict(item, None, written)
        for alias in self._aliases:
            if (
                alias.written.bind(self._user).match(written) is not None
                and alias.reached.bind(self._user).match(plain) is not None
            ):
                return Verdict(alias.item, None, written)
        return Verdict(None, None, plain)


@dataclass(frozen=True, slots=True)
class _UserItem:
    head: str
    token: str
    rest: str  # without the trailing `*`
    is_prefix: bool
    item: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteralRules:
    """A compiled `sources` or `targets` list.

    exact     whole addresses
    prefixes  (length, texts of that length), shortest first: the items `text*` without their `*`
    """

    canonical: tuple[str, ...]
    is_any: bool
    exact: frozenset[str]
    prefixes: tuple[tuple[int, frozenset[str]], ...]
    user_items: tuple[_UserItem, ...]
    aliases: tuple[Alias, ...] = ()

    @property
    def items(self) -> tuple[str, ...]:
        return self.canonical

    def bind(self, user: str) -> AddressMatcher:
        exact: dict[str, str] = {}
        prefixes: list[tuple[str, str]] = []
        for rule in self.user_items:
            name = name_for(rule.token, user)
            if not may_stand_for_user(rule.head, name):
                continue
            if not rule.is_prefix:
                exact[f"{rule.head}{name}{rule.rest}"] = rule.item
            # Otherwise `${user}*` would allow a peer without a name everything, and `inbox.${user}*` every inbox.
            elif user or rule.rest:
                prefixes.append((f"{rule.head}{name}{rule.rest}", rule.item))
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
    """Compiles a list.

    items  of a `sources` or `targets` list, each with `${user}` at most once
    """
    canonical = tuple(sorted(set(items)))
    if not canonical:
        return _NO_LITERALS
    rules = _literals(canonical)
    # Whole addresses are compared literally.
    open_items = (item for item in canonical if item.endswith("*") or has_user_token(item))
    aliases = _aliases(open_items, reached_literal, _literals)
    return replace(rules, aliases=aliases) if aliases else rules


def _literals(canonical: Collection[str]) -> LiteralRules:
    canonical = tuple(canonical)
    exact: set[str] = set()
    prefixes: dict[int, set[str]] = {}
    user_items: list[_UserItem] = []
    for item in canonical:
        head, token, rest = split_at_user(item)
        if token:
            is_prefix = rest.endswith("*")
            user_items.append(_UserItem(head, token, rest.removesuffix("*"), is_prefix, item))
        elif item.endswith("*"):
            prefixes.setdefault(len(item) - 1, set()).add(item[:-1])
        else:
            exact.add(item)
    return LiteralRules(
        canonical=canonical,
        is_any="*" in canonical,
        exact=frozenset(exact),
        prefixes=tuple((length, frozenset(texts)) for length, texts in sorted(prefixes.items())),
        user_items=tuple(user_items),
    )


def _aliases(
    items: Iterable[str], reached: Callable[[str], str], compiled: Callable[[tuple[str, ...]], AddressRules]
) -> tuple[Alias, ...]:
    found = ((item, reached(item)) for item in items)
    return tuple(Alias(item, compiled((item,)), compiled((plain,))) for item, plain in found if plain and plain != item)


def reached_literal(item: str) -> str:
    """Returns the plain form of an item's addresses: for `amqp:/x*` everything that begins with `x`.

    `amqp:/*` names every address.
    """
    return f"{without_authority(item[:-1])}*" if item.endswith("*") else normalise(item)


def reached_pattern(item: str) -> str:
    """Returns the plain form of a pattern, as reached_literal does. Separators around a pattern have no meaning."""
    plain = without_authority(item)
    if plain == item:
        return item
    return item if split_tokens(plain) == split_tokens(item) else plain


def reached_item(key: str, item: str) -> str:
    """Returns the plain form of an item's addresses. Returns the item itself if it is plain already.

    key  of its list: "sources", "targetPattern" ...
    """
    return reached_pattern(item) if key.endswith("Pattern") else reached_literal(item)


def denied_items(items: Iterable[str]) -> tuple[str, ...]:
    """Returns a list of denials, extended by the plain forms of items that are other names of an address."""
    found = set(items)
    found |= {reached for item in tuple(found) if (reached := reached_literal(item))}
    return tuple(sorted(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternRules:
    """A compiled `sourcePattern` or `targetPattern` list.

    after_user   token -> what may follow the user's name, of the items `${user}` and `${user}/...`
    before_user  token -> what may precede it, of the items `.../${user}`
    """

    canonical: tuple[str, ...]
    items: tuple[str, ...]
    tree: PatternTree
    after_user: Mapping[str, PatternTree]
    before_user: Mapping[str, PatternTree]
    aliases: tuple[Alias, ...] = ()

    def bind(self, user: str) -> AddressMatcher:
        after, before = (
            tuple(
                (name, tree)
                for token, tree in trees.items()
                # An empty name is not a token.
                if (name := name_for(token, user)) and may_stand_for_user("", name)
            )
            for trees in (self.after_user, self.before_user)
        )
        return _BoundPatterns(self, after, before)


@dataclass(frozen=True, slots=True)
class _BoundPatterns:
    rules: PatternRules
    after_name: tuple[tuple[str, PatternTree], ...]
    before_name: tuple[tuple[str, PatternTree], ...]

    def match(self, address: str) -> str | None:
        if not address:
            return None
        if (item := self.rules.tree.find(split_tokens(address))) is not None:
            return item
        # The name is one unit, whatever characters it has.
        for name, tree in self.after_name:
            if address.startswith(name):
                tokens = tokens_after(address[len(name) :])
                if tokens is not None and (item := tree.find(tokens)) is not None:
                    return item
        for name, tree in self.before_name:
            if address.endswith(name) and may_stand_for_user(address[: -len(name)], name):
                tokens = tokens_before(address[: -len(name)])
                if tokens is not None and (item := tree.find(tokens)) is not None:
                    return item
        return None


def compile_patterns(items: Collection[str]) -> PatternRules:
    """Compiles a list.

    items  of a pattern list; `${user}` may only be at the beginning or end of an item
    """
    rules = _patterns(items)
    aliases = _aliases(rules.items, reached_pattern, _patterns)
    return replace(rules, aliases=aliases) if aliases else rules


def _patterns(items: Collection[str]) -> PatternRules:
    plain: list[tuple[list[str], str]] = []
    after: dict[str, list[tuple[list[str], str]]] = {}
    before: dict[str, list[tuple[list[str], str]]] = {}
    canonical: set[str] = set()
    for item in sorted(set(items)):
        head, token, rest = split_at_user(item)
        if not token:
            tokens = split_tokens(item)
            if tokens:  # a pattern of separators only matches no address
                plain.append((tokens, item))
            canonical.add(normal_form(tokens))
            continue
        # Next to a user's name, a separator that the normal form drops is significant.
        canonical.add(item)
        if not head:
            if (words := tokens_after(rest)) is not None:
                after.setdefault(token, []).append((words, item))
        elif not rest and (words := tokens_before(head)) is not None:
            before.setdefault(token, []).append((words, item))
        # Any other item, such as `x${user}`, has no whole token and never matches.
    return PatternRules(
        canonical=tuple(sorted(canonical)),
        items=tuple(sorted(set(items))),
        tree=PatternTree(plain),
        after_user={token: PatternTree(found) for token, found in after.items()},
        before_user={token: PatternTree(found) for token, found in before.items()},
    )


def tokens_after(text: str) -> list[str] | None:
    """Returns the tokens of the text after a user's name. None if the name was not a whole token."""
    text = text.replace("/", ".")
    if text and not text.startswith("."):
        return None
    if text.endswith("."):
        text = text[:-1]
    return text[1:].split(".") if text else []


def tokens_before(text: str) -> list[str] | None:
    """Returns the tokens of the text before a user's name. None if the name was not a whole token."""
    text = text.replace("/", ".")
    if text and not text.endswith("."):
        return None
    text = text.lstrip(".")
    return text[:-1].split(".") if text else []
