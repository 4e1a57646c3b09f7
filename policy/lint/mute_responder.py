"""A group receives requests, and may not send replies.

Another group sends there, and may have dynamic addresses made, which is how a client asks for replies
(`allowDynamicSource`). Who receives the requests may send neither to such an address nor to the reply-to of a message:
the replies are refused. Write `allowReplies: true`. Where nobody replies, because the messages are no requests, ignore
this. See docs/policy.md, Request and reply.
"""

import re
from collections.abc import Collection, Iterator
from typing import Final

from policy.addressing.address import Address, resolve
from policy.addressing.lists import (
    AddressMatcher,
    AddressRules,
    Permission,
    compile_literals,
    compile_patterns,
    denied_items,
    with_user,
)
from policy.groups import DENIED_BY, REPLIES_KEY
from policy.lint.findings import SOME_USER, About, Confidence, Family, Finding, GroupText, Level, PolicyText
from policy.vhosts import CONNECTOR_GROUP

ID = "PAL074"
TITLE = "responder that may not reply"
FAMILY = Family.CORRECTNESS

_ASKER: Final = "asker"
_TARGETS: Final = ("targets", "targetPattern")
_SOURCES: Final = ("sources", "sourcePattern")
# As routers give them to clients, which write them as they got them: `Core.dynamic_address`.
_REPLY_ADDRESSES: Final = ("amqp:/_topo/0/{router}/temp.abcdefghijklmno", "amqp:/_edge/{router}/temp.abcdefghijklmno")
_SOME_ROUTER: Final = "router"
# The router that an item names.
_NAMED_ROUTER: Final = re.compile(r"(?:_topo/0|_edge)/([^/*#]+)/")


def check(policy: PolicyText) -> Iterator[Finding]:
    ids = {router.text("id") or _SOME_ROUTER for router in policy.sections("router")} or {_SOME_ROUTER}
    for vhost in policy.vhosts:
        askers = [
            group for group in vhost.groups if group.is_true("allowDynamicSource") and _is_narrow(group, _TARGETS)
        ]
        if not askers:
            continue
        mute = [group for group in vhost.groups if _is_narrow(group, _SOURCES) and not may_reply(group, ids)]
        if mute:
            yield from _unanswered(mute, askers)


def _is_narrow(group: GroupText, keys: tuple[str, str]) -> bool:
    """Are there addresses, and not all of them? Who may use all is an administrator or a recorder."""
    return any(group.items(key) for key in keys) and not group.is_unlimited(*keys)


def may_reply(group: GroupText, ids: Collection[str]) -> bool:
    """Is an address that a router makes for replies allowed, as the router decides it? ids  of routers"""
    # The peer of a connector is a broker, which takes messages for its queues.
    if group.is_true(REPLIES_KEY) or group.name == CONNECTOR_GROUP:
        return True
    denied = compile_literals(denied_items(group.items(DENIED_BY["targets"])))
    for key in _TARGETS:
        if not (items := group.items(key)):
            continue
        named = {*ids, *(found[1] for item in items if (found := _NAMED_ROUTER.search(item)) is not None)}
        allowed: AddressRules = compile_patterns(items) if key.endswith("Pattern") else compile_literals(items)
        permission = Permission(allowed, denied, SOME_USER)
        for written in _REPLY_ADDRESSES:
            for router in named:
                address = resolve(written.format(router=router), router_id=router)
                if isinstance(address, Address) and permission.judge(address).item is not None:
                    return True
    return False


class _Lists:
    """The lists of several groups as one, so that a thousand groups are not compared each with each."""

    def __init__(self, groups: list[GroupText], keys: tuple[str, ...], user: str) -> None:
        self.owners: dict[tuple[str, str], list[GroupText]] = {}
        for group in groups:
            for key in keys:
                for item in group.items(key):
                    self.owners.setdefault((key, item), []).append(group)
        self._matchers: list[tuple[str, AddressMatcher]] = []
        for key in keys:
            items = [item for each, item in self.owners if each == key]
            rules: AddressRules = compile_patterns(items) if key.endswith("Pattern") else compile_literals(items)
            self._matchers.append((key, rules.bind(user)))

    def matching(self, text: str) -> tuple[tuple[str, str], ...]:
        """The key and item of each list by which the text is allowed."""
        found = ((key, matcher.match(text)) for key, matcher in self._matchers)
        return tuple((key, item) for key, item in found if item is not None)


def _unanswered(mute: list[GroupText], askers: list[GroupText]) -> Iterator[Finding]:
    """A finding for each group that receives what another one may ask: the first item that shows it."""
    receiving, sending = _Lists(mute, _SOURCES, SOME_USER), _Lists(askers, _TARGETS, _ASKER)
    met: dict[str, tuple[str, str, str]] = {}  # name of the group -> key, item, name of the asker

    noted: dict[tuple[str, str], set[str]] = {}

    def note(place: tuple[str, str], asking: list[GroupText]) -> None:
        # Of two askers one is another group, so that two are enough for all who have the item.
        known = noted.setdefault(place, set())
        if len(known) > 1 or known >= {asker.name for asker in asking[:2]}:
            return
        known.update(asker.name for asker in asking[:2])
        for group in receiving.owners[place]:
            if other := [name for name in known if name != group.name]:
                met.setdefault(group.name, (*place, min(other)))

    for (_, item), asking in sending.owners.items():
        for place in receiving.matching(_sample(_ASKER, item)):
            note(place, asking)
    for place in receiving.owners:
        for asked in sending.matching(_sample(SOME_USER, place[1])):
            note(place, sending.owners[asked])
    for group in mute:
        if group.name in met:
            key, item, asker = met[group.name]
            text = f"members receive '{item}', where group '{asker}' may send requests, and may not reply"
            about = About(item=item, instead=f'"{REPLIES_KEY}": true', confidence=Confidence.POSSIBLE)
            yield group.finding(ID, Level.WARNING, text, key, about)


def _sample(user: str, item: str) -> str:
    """An address of the item; none for management, which the router itself answers."""
    return "" if "$management" in item else with_user(item, user).replace("*", "x").replace("#", "x")
