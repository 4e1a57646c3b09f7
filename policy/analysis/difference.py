"""The exact difference between two rulesets, as sets of permitted requests.

Sets are compared, never samples: hosts as ranges, addresses as automata, time as the intervals in which no group starts
or stops being valid. Vhost names and users are compared as classes that the rules can distinguish. Every difference has
a witness, which the router's own decisions must confirm.
Addresses are compared by their plain texts, so that the reachable addresses are compared exactly. Other spellings
(`amqp:/a`, `a/`) are compared only if they are in a list. Spellings that only a wildcard allows reach nothing that is
not allowed by its plain text too. maxFrameSize and maxSessionWindow permit nothing by themselves and are left out.
Pure. Source: docs/spec/policy-and-auth.md §1.3, §2, §3.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import Final

from policy.addressing.address import Address, resolve_named
from policy.addressing.lists import (
    Permission,
    compile_literals,
    compile_patterns,
    has_user_token,
    reached_item,
    with_user,
)
from policy.analysis.automata import Automaton, address_automaton, denial_automaton, find_word, unclear_automaton
from policy.analysis.changes import NAMELESS, OTHERS, Change, UnconfirmedError, Witness
from policy.analysis.confirmation import confirms
from policy.analysis.effort import Effort
from policy.analysis.grants import NUMBERS, SWITCHES, AddressList, Grant, grant_of
from policy.analysis.host_sets import Hosts, first_host, intersect, shown_hosts, subtract
from policy.analysis.request_classes import (
    FRESH_USER,
    READABLE_USERS,
    denied_names,
    group_combinations,
    user_classes,
    user_shapes,
    vhost_classes,
)
from policy.decision import Rule
from policy.groups import REPLIES_KEY, REPLY_WINDOW_KEY
from policy.rights import MANAGEMENT_KEY, shown_difference, some_difference
from policy.ruleset import Ruleset
from policy.vhosts import CONNECTOR_GROUP, Vhost
from policy.windows import Window, joined, shown_instant, stretches_of

# The measured cost of a user, and of an item of a list; see effort.py.
_USER_STEPS: Final = 1500
_ITEM_STEPS: Final = 1000

VhostPair = tuple[str, Vhost | None, Vhost | None]
_Found = tuple[str, tuple[str, ...], str]  # addresses, exceptions, an example


def diff_rulesets(
    old: Ruleset,
    new: Ruleset,
    at: float | None = None,
    *,
    router_id: str = "",
    watch: Callable[[Iterable[VhostPair]], Iterable[VhostPair]] = iter,
) -> tuple[Change, ...]:
    """Returns the requests that the rulesets decide differently, in a stable order.

    at         compare only at this instant, seconds since 1970 UTC; None: at all times
    router_id  as for addressing.address.resolve
    watch      passes the pairs of vhosts on, one by one
    Errors     TooComplexError, UnconfirmedError
    """
    changes: list[Change] = []
    effort = Effort()
    _only_in.cache_clear()
    for requested, before, after in watch(vhost_classes(old, new, effort)):
        if _is_same(old, new, before, after):
            continue
        effort.allow(_size_of(before) + _size_of(after))
        for groups in group_combinations(before, after):
            for user, label in user_classes(before, after, groups, effort):
                with effort.naming((requested,)):
                    effort.spend(_USER_STEPS)
                shown = f"{label} in {' and '.join(groups)}" if groups else label
                windows = (
                    group.window
                    for vhost in (before, after)
                    if vhost is not None and (group := vhost.group_of(user, groups)) is not None
                )
                compare = partial(_confirmed, old, new, router_id, effort, requested, user, groups, shown)
                changes += _over_time(windows, at, compare)
        changes += _connector_changes(old, new, router_id, effort, requested, at)
    if old.max_connections != new.max_connections:
        changes.append(_total_change(old, new))
    return tuple(_merged(changes))


def _size_of(vhost: Vhost | None) -> int:
    """Returns the steps for comparing an ordinary vhost of this size, without patterns written to be hard."""
    if vhost is None:
        return 0
    items = sum(len(group.sources.items) + len(group.targets.items) for group in vhost.groups.values())
    return _USER_STEPS * (10 + len(vhost.user_groups)) + _ITEM_STEPS * items


def _is_same(old: Ruleset, new: Ruleset, before: Vhost | None, after: Vhost | None) -> bool:
    if before is None or after is None:
        return before is after and old.is_enabled == new.is_enabled
    return (
        before.digest == after.digest
        and old.is_enabled == new.is_enabled
        and old.max_message_size == new.max_message_size
    )


def _over_time(
    windows: Iterable[Window], at: float | None, compare: Callable[[float | None], Iterable[Change]]
) -> Iterator[Change]:
    """Yields the findings of `compare` at all instants that can differ. Each finding comes once, with all its times."""
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
    old: Ruleset,
    new: Ruleset,
    router_id: str,
    effort: Effort,
    requested: str,
    user: str,
    groups: tuple[str, ...],
    label: str,
    at: float | None,
) -> Iterator[Change]:
    """Yields the changes of a user at an instant, with a readable user name, each confirmed by the decisions."""
    before, after = (grant_of(ruleset, requested, user, groups, at=at) for ruleset in (old, new))
    vhost = after.vhost or before.vhost or requested
    shown_at = shown_instant(at) if at is not None else None
    for change in _grant_changes(before, after, user, router_id, effort):
        witness = replace(change.witness, vhost=requested, user=user or None, groups=groups, at=shown_at)
        yield _with_readable_user(old, new, router_id, replace(change, witness=witness, vhost=vhost, users=(label,)))


def _with_readable_user(old: Ruleset, new: Ruleset, router_id: str, change: Change) -> Change:
    for name in (*READABLE_USERS, FRESH_USER):
        witness = change.witness
        if witness.user is not None:
            address = witness.address
            witness = replace(
                witness,
                user=witness.user.replace(FRESH_USER, name),
                address=address.replace(FRESH_USER, name) if address is not None else None,
            )
        found = replace(change, witness=witness)
        if confirms(old, new, found, router_id=router_id):
            return found
    raise UnconfirmedError(f"{change.subject} of {change.users} in vhost '{change.vhost}': please report this")


def _grant_changes(before: Grant, after: Grant, user: str, router_id: str, effort: Effort) -> Iterator[Change]:
    for is_widening, less, more in ((True, before, after), (False, after, before)):
        gained = subtract(more.hosts, less.hosts)
        if gained:
            rules = (before.host_rule, after.host_rule)
            yield _change(is_widening, "connect", gained, rules)
    both = intersect(before.hosts, after.hosts)
    if not both:
        return
    for direction in ("send", "receive"):
        yield from _address_changes(before, after, direction, user, both, router_id, effort)
    for key in SWITCHES:
        if before.switches[key] != after.switches[key]:
            words = {True: "true", False: "false"}
            yield replace(
                _change(after.switches[key], key, both, (before.rule(key), after.rule(key))),
                before=words[before.switches[key]],
                after=words[after.switches[key]],
            )
    for key in NUMBERS:
        if key == REPLY_WINDOW_KEY and not (before.switches[REPLIES_KEY] and after.switches[REPLIES_KEY]):
            continue  # the switch reports it
        one, other = before.numbers.get(key), after.numbers.get(key)
        if one != other:
            is_widening = other is None or (one is not None and other > one)
            yield replace(
                _change(is_widening, key, both, (before.rule(key), after.rule(key))),
                before=_shown_number(one),
                after=_shown_number(other),
            )
    yield from _management_changes(before, after, both)


def _management_changes(before: Grant, after: Grant, hosts: Hosts) -> Iterator[Change]:
    rules = (before.rule(MANAGEMENT_KEY), after.rule(MANAGEMENT_KEY))
    for is_widening, less, more in ((True, before, after), (False, after, before)):
        rights = shown_difference(more.management, less.management)
        if rights:
            change = _change(is_widening, MANAGEMENT_KEY, hosts, rules)
            right = some_difference(more.management, less.management)
            yield replace(change, witness=replace(change.witness, right=right), rights=rights)


def _address_changes(
    before: Grant, after: Grant, direction: str, user: str, hosts: Hosts, router_id: str, effort: Effort
) -> Iterator[Change]:
    one, other = before.addresses(direction), after.addresses(direction)
    if one.is_same(other):
        return
    # Items in both lists give no change if the same addresses are denied. They are the most of two long lists.
    is_denied_alike = one.key == other.key and one.denied == other.denied
    common = frozenset(one.items).intersection(other.items) if is_denied_alike else frozenset()
    for is_widening, less, more in ((True, one, other), (False, other, one)):
        for item in more.items:
            if item in common:
                continue
            with effort.naming(less.items):
                effort.spend(_ITEM_STEPS + 2 * len(less.items))
            has_user = any(map(has_user_token, (item, *less.items)))
            for addresses, exceptions, word in _only_in(item, more, less, user if has_user else "", router_id, effort):
                change = _change(is_widening, direction, hosts, (one.rule, other.rule))
                witness = replace(change.witness, direction="send" if direction == "send" else "receive", address=word)
                yield replace(change, witness=witness, addresses=addresses, exceptions=exceptions)


@lru_cache(maxsize=65536)
def _only_in(
    item: str, more: AddressList, less: AddressList, user: str, router_id: str, effort: Effort
) -> tuple[_Found, ...]:
    """Returns the addresses that `item` of `more` allows and `less` does not.

    Each set is (addresses, exceptions, an example). Covers all addresses by their plain texts, and other texts if the
    item itself is one, such as `amqp:/orders.*`.
    """
    found = []
    own, unclear = address_automaton(more.key, (item,), user, effort), unclear_automaton()
    denied_here = denial_automaton(more.denied, router_id, effort)
    other = address_automaton(less.key, less.items, user, effort)
    word = find_word((own, unclear, denied_here, other), lambda is_in: is_in == (True, False, False, False), effort)
    word = _alias_only_in(item, more, less, user, router_id, effort) if word is None else word
    if word is not None:
        exceptions = [each for each in (*less.items, *more.denied) if _meets(own, less, each, user, effort)]
        found.append((item, tuple(exceptions), word))
    for denied in less.denied:
        there = denial_automaton((denied,), router_id, effort)
        word = find_word(
            (own, unclear, denied_here, other, there), lambda is_in: is_in == (True, False, False, True, True), effort
        )
        if word is not None:
            shown = item if item == denied else f"{item}' as far as it is '{denied}"
            found.append((shown, more.denied, word))
    return tuple(found)


def _alias_only_in(
    item: str, more: AddressList, less: AddressList, user: str, router_id: str, effort: Effort
) -> str | None:
    """Returns a text that an item such as `amqp:/orders.*` literally allows, and `less` does not."""
    reached = reached_item(more.key, item)
    if reached == item or not reached:
        return None
    if not more.key.endswith("Pattern") and not item.endswith("*"):
        text = with_user(item, user)
        address = resolve_named(text, router_id=router_id)
        is_in = [isinstance(address, Address) and _is_allowed(each, address, user) for each in (more, less)]
        return text if is_in == [True, False] else None
    # If the item leaves the host open, one host represents all.
    head = with_user(item[: len(item) - len(reached)], user).replace("*", FRESH_USER).replace("#", FRESH_USER)
    _, is_host_named, host = head.partition("://")
    if is_host_named and "/" not in host:
        # A prefix that ends inside the host, such as `amqp://*`: the address begins after the host.
        head = f"{head}{FRESH_USER}/"
    behind = partial(_behind, head, effort)
    pairs = [
        (behind(less.key, (each,), user), address_automaton(less.key, (plain,), user, effort))
        for each in less.items
        if (plain := reached_item(less.key, each)) != each and plain
    ]
    own = (address_automaton(more.key, (reached,), user, effort), behind(more.key, (item,), user))
    denied_here = denial_automaton(more.denied, router_id, effort)
    unwanted = (unclear_automaton(), denied_here, behind("sources", more.denied, ""))
    denied_there = (denial_automaton(less.denied, router_id, effort), behind("sources", less.denied, ""))
    there = (behind(less.key, less.items, user), address_automaton(less.key, less.items, user, effort))
    count = len(own) + len(unwanted)

    def is_wanted(is_in: tuple[bool, ...]) -> bool:
        if not (is_in[0] and is_in[1]) or any(is_in[len(own) : count]):
            return False
        if any(is_in[count : count + 2]):
            return True
        allowed = is_in[count + 2 :]
        return not any(written and plain for written, plain in zip(allowed[::2], allowed[1::2], strict=True))

    word = find_word(
        (*own, *unwanted, *denied_there, *there, *(each for pair in pairs for each in pair)), is_wanted, effort
    )
    return None if word is None else head + word


def _behind(head: str, effort: Effort, key: str, items: tuple[str, ...], user: str) -> Automaton:
    """Returns an automaton of the texts that follow `head` in a list."""
    return address_automaton(key, items, user, effort).behind(head)


def _is_allowed(addresses: AddressList, address: Address, user: str) -> bool:
    compiled = compile_patterns if addresses.key.endswith("Pattern") else compile_literals
    permission = Permission(compiled(addresses.items), compile_literals(addresses.denied), user)
    return permission.judge(address).item is not None


def _meets(own: Automaton, less: AddressList, item: str, user: str, effort: Effort) -> bool:
    key = less.key if item in less.items else "sources"
    return find_word((own, address_automaton(key, (item,), user, effort)), all, effort) is not None


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


def _merged(changes: Iterable[Change]) -> Iterator[Change]:
    """Merges changes that differ only in the user."""
    found: dict[object, Change] = {}
    for change in changes:
        key = replace(change, users=(), witness=Witness(vhost="", user=None, host=""))
        if (first := found.get(key)) is None:
            found[key] = change
        elif OTHERS not in first.users and not set(change.users) <= set(first.users):
            found[key] = replace(first, users=tuple(dict.fromkeys((*first.users, *change.users))))
    yield from found.values()


# Connections that the router makes


def _connector_changes(
    old: Ruleset, new: Ruleset, router_id: str, effort: Effort, requested: str, at: float | None
) -> Iterator[Change]:
    """Yields the changes for peers of connectors with the policyVhost `requested`."""
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
    names = sorted(denied_names(vhosts, effort))
    for user in ("", *names, *user_shapes([(key, rules.items) for key, rules in lists])):
        compare = partial(_confirmed_connector, old, new, router_id, effort, requested, user)
        yield from _over_time((group.window for group in groups), at, compare)


def _confirmed_connector(
    old: Ruleset, new: Ruleset, router_id: str, effort: Effort, requested: str, user: str, at: float | None
) -> Iterator[Change]:
    before, after = (grant_of(ruleset, requested, user, at=at, is_connector=True) for ruleset in (old, new))
    shown_at = shown_instant(at) if at is not None else None
    for change in _grant_changes(before, after, user, router_id, effort):
        witness = replace(change.witness, vhost=requested, user=user or None, at=shown_at)
        label = f"peers of connectors, {OTHERS if user else NAMELESS}"
        named = replace(change, witness=witness, vhost=after.vhost or before.vhost or requested, users=(label,))
        yield _with_readable_user(old, new, router_id, replace(named, subject=f"connector {change.subject}"))
