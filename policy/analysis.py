"""The exact difference of what two rulesets permit, and which items of a list add nothing to the others.

Sets are compared, never samples: hosts as ranges, addresses as automata, vhost names and users as the classes the rules
can tell apart, time as the stretches in which no group becomes valid or ceases to be. Every difference has a witness,
which the same decisions the router makes must confirm.
Left out is what permits nothing by itself: maxFrameSize and maxSessionWindow.
Pure. Source: docs/spec/policy-and-auth.md §1.3, §2, §3.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, partial
from itertools import chain, combinations
from typing import Final, Literal

from policy.addresses import USER_TOKEN
from policy.automata import MAX_VISITED, Automaton, TooComplexError, address_automaton, find_word
from policy.decide import decide_connection, decide_connector, decide_link, decide_session
from policy.decision import Reason, Rule
from policy.facts import ConnectionFacts, LinkFacts, Usage
from policy.grants import NUMBERS, SWITCHES, AddressList, Grant, grant_of
from policy.host_sets import Hosts, first_host, intersect, shown_hosts, subtract
from policy.patterns import PatternTree, split_tokens
from policy.ruleset import Ruleset
from policy.vhosts import CONNECTOR_GROUP, Vhost
from policy.windows import Window, joined, shown_instant, stretches_of

# A character no rule has, in place of the name of a user nobody has named.
_FRESH_USER: Final = "\ue010"
_READABLE_USERS: Final = ("someone", "unnamed", "another")
# Names of users that consist of several words are told apart by patterns that count words: up to here all are tried.
MAX_USER_SHAPE: Final = 11
OTHERS: Final = "every other user"
NAMELESS: Final = "peers without a name"

Direction = Literal["send", "receive"]
_Found = tuple[str, tuple[str, ...], str]  # addresses, exceptions, one of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """One request that the two rulesets decide differently.

    vhost    what the client asks for
    user     None: a peer without a name
    groups   what the authenticator says of the user
    address  None where the connection itself, a switch or a limit differs
    at       when, in RFC 3339 and UTC; None: whenever
    """

    vhost: str
    user: str | None
    host: str
    groups: tuple[str, ...] = ()
    direction: Direction | None = None
    address: str | None = None
    at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A set of requests that only one of two rulesets permits.

    is_widening  the new one permits them
    subject      "connect", "send", "receive", or the attribute that differs, such as "maxSessions"
    vhost        the vhost that governs: the new one's name, or the old one's where there is no new one
    users        names, and OTHERS or NAMELESS
    hosts        as `remoteHosts` items
    addresses    items, of which `exceptions` are not meant; empty unless subject is send or receive
    times        when, such as "until 2026-12-31T17:00:00Z"; empty: at all times, or at the one that was asked about
    before/after the two values of an attribute
    rules        where both are written: old, new
    """

    is_widening: bool
    subject: str
    vhost: str
    users: tuple[str, ...]
    hosts: tuple[str, ...]
    witness: Witness
    addresses: str | None = None
    exceptions: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    before: str | None = None
    after: str | None = None
    rules: tuple[Rule | None, Rule | None] = (None, None)


class UnconfirmedError(Exception):
    """A difference was found that the decisions do not show: a mistake in this module, never to be kept quiet."""


def diff_rulesets(old: Ruleset, new: Ruleset, at: float | None = None) -> tuple[Change, ...]:
    """What the rulesets decide differently, in a stable order. Raises TooComplexError, UnconfirmedError.

    at  look at this instant only, seconds since 1970 UTC; None: at all of time
    """
    changes: list[Change] = []
    _only_in.cache_clear()
    for requested, before, after in _vhost_classes(old, new):
        if _is_same(old, new, before, after):
            continue
        for groups in _group_combinations(before, after):
            for user, label in _users(before, after, groups):
                shown = f"{label} in {' and '.join(groups)}" if groups else label
                windows = (
                    group.window
                    for vhost in (before, after)
                    if vhost is not None and (group := vhost.group_of(user, groups)) is not None
                )
                compare = partial(_confirmed, old, new, requested, user, groups, shown)
                changes += _over_time(windows, at, compare)
        changes += _connector_changes(old, new, requested, at)
    if old.max_connections != new.max_connections:
        changes.append(_total_change(old, new))
    return tuple(_merged(changes))


def _is_same(old: Ruleset, new: Ruleset, before: Vhost | None, after: Vhost | None) -> bool:
    if before is None or after is None:
        return before is after and old.is_enabled == new.is_enabled
    return (
        before.digest == after.digest
        and old.is_enabled == new.is_enabled
        and old.max_message_size == new.max_message_size
    )


# Vhosts


def _vhost_classes(old: Ruleset, new: Ruleset) -> Iterator[tuple[str, Vhost | None, Vhost | None]]:
    """Each pair of vhosts that govern some name in both rulesets, with such a name."""
    seen: set[tuple[str | None, str | None]] = set()
    for requested in _requested_names(old, new):
        before, after = old.select_vhost(requested), new.select_vhost(requested)
        pair = (before.name if before else None, after.name if after else None)
        if pair not in seen:
            seen.add(pair)
            yield requested, before, after


def _requested_names(old: Ruleset, new: Ruleset) -> Iterator[str]:
    names = dict.fromkeys((*old.vhosts, *new.vhosts, *old.owners, *new.owners))
    yield from names
    trees = tuple(ruleset.tree for ruleset in (old, new) if ruleset.tree is not None)
    if trees:
        for words in _words_of_trees(trees):
            # One of these is no name that is compared as it stands.
            yield from (".".join(words), "/".join(words), "." + ".".join(words), "/" + "/".join(words))
    yield ""
    yield next(name for name in ("any-other", *(f"any-other-{n}" for n in range(len(names) + 1))) if name not in names)


def _words_of_trees(trees: Sequence[PatternTree]) -> Iterator[tuple[str, ...]]:
    """For every combination of best matches a name that has it."""
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
        told = set().union(*(tree.words(each) for tree, each in zip(trees, places, strict=True)))  # type: ignore[arg-type]
        fresh = next(word for word in ("any", *(f"any{n}" for n in range(len(told) + 1))) if word not in told)
        for word in (fresh, *sorted(told)):
            moved = tuple(tree.moved(each, word) for tree, each in zip(trees, places, strict=True))  # type: ignore[arg-type]
            if moved not in visited:
                if len(visited) > MAX_VISITED:
                    raise TooComplexError("these vhost patterns cannot be compared within reasonable time")
                visited.add(moved)
                queue.append((moved, (*words, word)))


# Users


def _group_combinations(before: Vhost | None, after: Vhost | None) -> Iterator[tuple[str, ...]]:
    """Groups of the authenticator a user may be in. One decides in each ruleset, so two at a time show everything."""
    names = sorted({name for vhost in (before, after) if vhost is not None for name in vhost.joined_groups})
    yield ()
    yield from ((name,) for name in names)
    yield from combinations(names, 2)


def _users(before: Vhost | None, after: Vhost | None, groups: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(a user, what to call the set he stands for): those that are named, then the kinds of those that are not."""
    vhosts = [vhost for vhost in (before, after) if vhost is not None]
    named = dict.fromkeys(chain.from_iterable(vhost.user_groups for vhost in vhosts))
    for user in named:
        # Who is named in both rulesets is where he is named, whatever groups he is in.
        if not groups or any(user not in vhost.user_groups for vhost in vhosts):
            yield user, user
    others = [group for vhost in vhosts if (group := vhost.group_of(_FRESH_USER, groups)) is not None]
    lists = [
        each for group in others for each in ((group.source_key, group.sources), (group.target_key, group.targets))
    ]
    yield "", NAMELESS
    for name in sorted(_denied_names(vhosts) - named.keys()):
        yield name, f"users with names like '{name.replace(_FRESH_USER, _READABLE_USERS[0])}'"
    for shape in user_shapes([(key, rules.items) for key, rules in lists]):
        if shape not in named:
            example = shape.replace(_FRESH_USER, _READABLE_USERS[0])
            yield shape, OTHERS if shape == _FRESH_USER else f"users with names like '{example}'"


def _denied_names(vhosts: Iterable[Vhost]) -> set[str]:
    """Names that, put into an item with `${user}`, may give an address somebody has denied."""
    found: set[str] = set()
    for group in (group for vhost in vhosts for group in vhost.groups.values()):
        for rules, denied in ((group.sources, group.denied_sources), (group.targets, group.denied_targets)):
            if not any(USER_TOKEN in item for item in rules.items):
                continue
            for item in denied.items:
                text = item.removesuffix("*")
                heads = (each.partition(USER_TOKEN)[0] for each in rules.items)
                begins = {len(head) for head in heads if text.startswith(head)}
                begins |= {at + 1 for at, letter in enumerate(text) if letter in "./"}
                found |= {text[begin:end] for begin in begins for end in range(begin + 1, len(text) + 1)}
                if item.endswith("*"):
                    found |= {text[begin:] + _FRESH_USER for begin in begins}
    return found - {_FRESH_USER}


def user_shapes(lists: Iterable[tuple[str, tuple[str, ...]]]) -> tuple[str, ...]:
    """Names that stand for all users no rule names, as far as these lists can tell users apart.

    A name nobody wrote down behaves like a new character, unless patterns count its words: `${user}` may then be one
    word or many. Names of up to MAX_USER_SHAPE characters are made of new words and separators in every way.
    """
    shapes = [_FRESH_USER]
    lists = list(lists)
    with_user = any(USER_TOKEN in item for _, items in lists for item in items)
    counting = [item for key, items in lists if key.endswith("Pattern") for item in items]
    if with_user and counting:
        longest = min(2 * max(len(split_tokens(item)) for item in counting) + 2, MAX_USER_SHAPE)
        layer = ["", _FRESH_USER]
        shapes = []
        for _ in range(longest):
            shapes += [shape for shape in layer if shape]
            layer = [
                shape + letter
                for shape in layer
                for letter in (".", _FRESH_USER)
                if len(shape) > 0 or letter == "."
                if not (shape.endswith(_FRESH_USER) and letter == _FRESH_USER)
            ]
        shapes = sorted(set(shapes), key=lambda shape: (len(shape), shape != _FRESH_USER, shape))
    return tuple(shapes)


# Comparing


def _over_time(
    windows: Iterable[Window], at: float | None, compare: Callable[[float | None], Iterable[Change]]
) -> Iterator[Change]:
    """What `compare` finds at the instants that can differ, each difference once with all the times it holds at."""
    stretches = stretches_of(windows) if at is None else (Window(begin_s=at),)
    found: dict[object, tuple[Change, list[Window]]] = {}
    for stretch in stretches:
        for change in compare(stretch.some_instant):
            key = replace(change, witness=replace(change.witness, at=None))
            found.setdefault(key, (change, []))[1].append(stretch)
    for change, held in found.values():
        is_always = len(held) == len(stretches)
        yield change if is_always else replace(change, times=tuple(map(str, joined(held))))


def _confirmed(
    old: Ruleset, new: Ruleset, requested: str, user: str, groups: tuple[str, ...], label: str, at: float | None
) -> Iterator[Change]:
    """The changes of a user at an instant, his name a readable one, each confirmed by the decisions."""
    before, after = (grant_of(ruleset, requested, user, groups, at=at) for ruleset in (old, new))
    vhost = after.vhost or before.vhost or requested
    shown_at = shown_instant(at) if at is not None else None
    for change in _grant_changes(before, after, user):
        witness = replace(change.witness, vhost=requested, user=user or None, groups=groups, at=shown_at)
        yield _with_readable_user(old, new, replace(change, witness=witness, vhost=vhost, users=(label,)))


def _with_readable_user(old: Ruleset, new: Ruleset, change: Change) -> Change:
    for name in (*_READABLE_USERS, _FRESH_USER):
        witness = change.witness
        if witness.user is not None:
            address = witness.address
            witness = replace(
                witness,
                user=witness.user.replace(_FRESH_USER, name),
                address=address.replace(_FRESH_USER, name) if address is not None else None,
            )
        found = replace(change, witness=witness)
        if confirms(old, new, found):
            return found
    raise UnconfirmedError(f"{change.subject} of {change.users} in vhost '{change.vhost}': please report this")


def _grant_changes(before: Grant, after: Grant, user: str) -> Iterator[Change]:
    for is_widening, less, more in ((True, before, after), (False, after, before)):
        gained = subtract(more.hosts, less.hosts)
        if gained:
            rules = (before.host_rule, after.host_rule)
            yield _change(is_widening, "connect", gained, rules)
    both = intersect(before.hosts, after.hosts)
    if not both:
        return
    for direction in ("send", "receive"):
        yield from _address_changes(before, after, direction, user, both)
    for key in SWITCHES:
        if before.switches[key] != after.switches[key]:
            words = {True: "true", False: "false"}
            yield replace(
                _change(after.switches[key], key, both, (before.rule(key), after.rule(key))),
                before=words[before.switches[key]],
                after=words[after.switches[key]],
            )
    for key in NUMBERS:
        one, other = before.numbers[key], after.numbers[key]
        if one != other:
            is_widening = other is None or (one is not None and other > one)
            yield replace(
                _change(is_widening, key, both, (before.rule(key), after.rule(key))),
                before=_shown_number(one),
                after=_shown_number(other),
            )


def _address_changes(before: Grant, after: Grant, direction: str, user: str, hosts: Hosts) -> Iterator[Change]:
    one, other = before.addresses(direction), after.addresses(direction)
    if one.is_same(other):
        return
    for is_widening, less, more in ((True, one, other), (False, other, one)):
        for item in more.items:
            has_user = any(USER_TOKEN in each for each in (item, *less.items))
            for addresses, exceptions, word in _only_in(item, more, less, user if has_user else ""):
                change = _change(is_widening, direction, hosts, (one.rule, other.rule))
                witness = replace(change.witness, direction="send" if direction == "send" else "receive", address=word)
                yield replace(change, witness=witness, addresses=addresses, exceptions=exceptions)


@lru_cache(maxsize=65536)
def _only_in(item: str, more: AddressList, less: AddressList, user: str) -> tuple[_Found, ...]:
    """What `item` of `more` allows and `less` does not: sets as (item, exceptions), each with an address in it."""
    found = []
    own, denied_here = address_automaton(more.key, (item,), user), more.denied_automaton()
    other = address_automaton(less.key, less.items, user)
    word = find_word((own, denied_here, other), lambda is_in: is_in == (True, False, False))
    if word is not None:
        exceptions = [each for each in (*less.items, *more.denied) if _meets(own, less, each, user)]
        found.append((item, tuple(exceptions), word))
    for denied in less.denied:
        there = address_automaton("sources", (denied,), "")
        word = find_word((own, denied_here, other, there), lambda is_in: is_in == (True, False, True, True))
        if word is not None:
            shown = item if item == denied else f"{item}' as far as it is '{denied}"
            found.append((shown, more.denied, word))
    return tuple(found)


def _meets(own: Automaton, less: AddressList, item: str, user: str) -> bool:
    key = less.key if item in less.items else "sources"
    return find_word((own, address_automaton(key, (item,), user)), all) is not None


def _change(is_widening: bool, subject: str, hosts: Hosts, rules: tuple[Rule | None, Rule | None]) -> Change:
    witness = Witness(vhost="", user=None, host=first_host(hosts))
    return Change(
        is_widening=is_widening,
        subject=subject,
        vhost="",
        users=(),
        hosts=shown_hosts(hosts),
        witness=witness,
        rules=rules,
    )


def _shown_number(number: int | None) -> str:
    return "no limit" if number is None else str(number)


def _total_change(old: Ruleset, new: Ruleset) -> Change:
    return Change(
        is_widening=new.max_connections > old.max_connections,
        subject="policy maxConnections",
        vhost="",
        users=(),
        hosts=("*",),
        witness=Witness(vhost="", user=None, host="127.0.0.1"),
        before=str(old.max_connections),
        after=str(new.max_connections),
    )


# Connections the router makes


def _connector_changes(old: Ruleset, new: Ruleset, requested: str, at: float | None) -> Iterator[Change]:
    """What peers may ask for on connectors whose policyVhost is `requested`."""
    groups = [
        group
        for ruleset in (old, new)
        if (vhost := ruleset.select_vhost(requested)) is not None
        and (group := vhost.groups.get(CONNECTOR_GROUP)) is not None
    ]
    lists = [
        each for group in groups for each in ((group.source_key, group.sources), (group.target_key, group.targets))
    ]
    if not groups:
        return
    vhosts = [vhost for ruleset in (old, new) if (vhost := ruleset.select_vhost(requested)) is not None]
    names = sorted(_denied_names(vhosts))
    for user in ("", *names, *user_shapes([(key, rules.items) for key, rules in lists])):
        compare = partial(_confirmed_connector, old, new, requested, user)
        yield from _over_time((group.window for group in groups), at, compare)


def _confirmed_connector(
    old: Ruleset, new: Ruleset, requested: str, user: str, at: float | None
) -> Iterator[Change]:
    before, after = (grant_of(ruleset, requested, user, at=at, is_connector=True) for ruleset in (old, new))
    shown_at = shown_instant(at) if at is not None else None
    for change in _grant_changes(before, after, user):
        witness = replace(change.witness, vhost=requested, user=user or None, at=shown_at)
        label = f"peers of connectors, {OTHERS if user else NAMELESS}"
        named = replace(change, witness=witness, vhost=after.vhost or before.vhost or requested, users=(label,))
        yield _with_readable_user(old, new, replace(named, subject=f"connector {change.subject}"))


# Confirming


def confirms(old: Ruleset, new: Ruleset, change: Change) -> bool:
    """Do the decisions the router makes differ at the witness, in the direction the change says?"""
    if change.subject == "policy maxConnections":
        return change.is_widening == (new.max_connections > old.max_connections)
    was, is_ = (_value(ruleset, change) for ruleset in (old, new))
    return is_ > was if change.is_widening else is_ < was


def _value(ruleset: Ruleset, change: Change) -> float:
    """How much a ruleset permits at the witness: 0 or 1, or a number where there is no decision to ask."""
    witness = change.witness
    is_connector = change.subject.startswith("connector ")
    subject = change.subject.removeprefix("connector ")
    counts = [int(text) for text in (change.before, change.after) if text is not None and text.isdigit()]
    least = min((count for count in counts if count or subject != "maxSessions"), default=0)
    usage = Usage(
        total=least if subject == "maxConnections" else 0,
        of_user=least if subject == "maxConnectionsPerUser" else 0,
        of_host=least if subject == "maxConnectionsPerHost" else 0,
    )
    now = datetime.fromisoformat(witness.at).timestamp() if witness.at is not None else None
    if is_connector:
        judged = decide_connector(ruleset, witness.vhost, witness.user, now)
    else:
        facts = ConnectionFacts(
            user=witness.user,
            remote_host=witness.host,
            requested_vhost=witness.vhost,
            connection_name="witness",
            groups=witness.groups,
            now=now,
        )
        judged = decide_connection(ruleset, facts, usage)
    is_allowed, settings = judged.decision.is_allowed, judged.settings
    if not is_allowed or subject in ("connect", "maxConnections", "maxConnectionsPerUser", "maxConnectionsPerHost"):
        return float(is_allowed)
    if settings is None:
        return float("inf") if change.before is not None and change.after not in ("true", "false") else 1.0
    match subject:
        case "send" | "receive":
            link = LinkFacts(direction=witness.direction or "send", address=witness.address)
            return float(decide_link(settings, link).is_allowed)
        case "allowDynamicSource":
            return float(
                decide_link(settings, LinkFacts(direction="receive", address=None, is_dynamic=True)).is_allowed
            )
        case "allowAnonymousSender":
            return float(decide_link(settings, LinkFacts(direction="send", address=None)).is_allowed)
        case "maxSessions":
            return float(decide_session(settings, least).is_allowed)
        case "maxSenders" | "maxReceivers":
            direction: Direction = "send" if subject == "maxSenders" else "receive"
            decision = decide_link(settings, LinkFacts(direction=direction, address=None, open_links=least))
            return float(decision.reason not in (Reason.SENDER_LIMIT, Reason.RECEIVER_LIMIT))
        case "maxMessageSize":
            return settings.max_message_size or float("inf")
        case _:
            return float({key: getattr(settings, name) for key, name in SWITCHES.items()}[subject])


def _merged(changes: Iterable[Change]) -> Iterator[Change]:
    """Changes that differ only in the user are one."""
    found: dict[object, Change] = {}
    for change in changes:
        key = replace(change, users=(), witness=Witness(vhost="", user=None, host=""))
        if (first := found.get(key)) is None:
            found[key] = change
        elif OTHERS not in first.users and not set(change.users) <= set(first.users):
            found[key] = replace(first, users=tuple(dict.fromkeys((*first.users, *change.users))))
    yield from found.values()


# Items that add nothing


def superfluous_items(key: str, items: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The items that allow nothing the others do not, each with those it has something in common with.

    Of several that cover each other one is kept. For every user: exactly for lists that do not count the words of a
    name, else for names of up to MAX_USER_SHAPE characters. Raises TooComplexError.
    """
    removed: set[str] = set()
    for item in _candidates(key, items):
        covering = covering_items(key, item, [other for other in items if other != item and other not in removed])
        if covering is not None:
            removed.add(item)
            yield item, covering


def _candidates(key: str, items: Sequence[str]) -> Iterator[str]:
    """The items that may be superfluous: most are not, as can be seen at a glance."""
    if not key.endswith("Pattern"):
        prefixes = [item for item in items if item.endswith("*")]
        if prefixes:
            # One text is covered by a prefix, and endlessly many by nothing else.
            yield from (item for item in items if any(item != each and item.startswith(each[:-1]) for each in prefixes))
        return
    endless = [item for item in items if _is_endless(item)]
    single = {item: tuple(split_tokens(item)) for item in items if item not in set(endless)}
    times = Counter(single.values())
    tree = PatternTree((split_tokens(item), item) for item in endless if USER_TOKEN not in item)
    has_user = any(USER_TOKEN in item for item in endless)
    for item in items:
        if (words := single.get(item)) is not None:
            if has_user or times[words] > 1 or (endless and tree.find(words) is not None):
                yield item
        elif any(other != item and _may_meet(item, other) for other in endless):
            yield item


def covering_items(key: str, item: str, others: Sequence[str]) -> tuple[str, ...] | None:
    """The items among `others` that have something in common with `item`, if together they allow all that it allows.

    Returns  None when `item` adds something
    """
    if key.endswith("Pattern"):
        candidates = tuple(other for other in others if _may_meet(item, other))
        if _is_endless(item) and not any(_is_endless(other) for other in candidates):
            return None
    else:
        # What is endless cannot be covered by several that are not; one item has to do it alone.
        candidates = tuple(other for other in others if other.endswith("*") and item.startswith(other[:-1]))
    if not candidates:
        return None
    for user in ("", *user_shapes([(key, (item, *candidates))])):
        one = address_automaton(key, (item,), user)
        if find_word((one, address_automaton(key, candidates, user)), lambda is_in: is_in[0] and not is_in[1]):
            return None
    return candidates


def _is_endless(pattern: str) -> bool:
    if "*" not in pattern and "#" not in pattern:
        return USER_TOKEN in pattern
    return USER_TOKEN in pattern or not {"*", "#"}.isdisjoint(split_tokens(pattern))


def _may_meet(item: str, other: str) -> bool:
    """False only when no address matches both patterns."""
    if USER_TOKEN in item or USER_TOKEN in other:
        return True
    one, another = split_tokens(item), split_tokens(other)
    for mine, its in zip(one, another, strict=False):
        if "#" in (mine, its):
            return True
        if mine != its and "*" not in (mine, its):
            return False
    return len(one) == len(another) or "#" in one or "#" in another
