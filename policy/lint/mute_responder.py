"""A group receives requests, and may not send replies.

Another group sends there, and may have dynamic addresses made, which is how a client asks for replies
(`allowDynamicSource`). Who receives the requests may send neither to such an address nor to the reply-to of a message:
the replies are refused. Write `allowReplies: true`. Where nobody replies, because the messages are no requests, ignore
this. See docs/policy.md, Request and reply.
"""

from collections.abc import Iterator
from typing import Final

from policy.addressing.lists import USER_TOKEN, AddressMatcher, AddressRules, compile_literals, compile_patterns
from policy.groups import REPLIES_KEY
from policy.lint.findings import SOME_USER, About, Confidence, Family, Finding, GroupText, Level, PolicyText
from policy.vhosts import CONNECTOR_GROUP

ID = "PAL074"
TITLE = "responder that may not reply"
FAMILY = Family.CORRECTNESS

_ASKER: Final = "asker"
_TARGETS: Final = ("targets", "targetPattern")
_SOURCES: Final = ("sources", "sourcePattern")
_REPLY_ADDRESSES: Final = (
    "_topo/0/router/temp.abcdefghijklmno",
    "_edge/router/temp.abcdefghijklmno",
    "_local/temp.abcdefghijklmno",
    "_$temp.abcdefghijklmno",
)


def check(policy: PolicyText) -> Iterator[Finding]:
    for vhost in policy.vhosts:
        askers = [
            group for group in vhost.groups if group.is_true("allowDynamicSource") and _is_narrow(group, _TARGETS)
        ]
        if not askers:
            continue
        mute = [group for group in vhost.groups if _is_narrow(group, _SOURCES) and not _may_reply(group)]
        if mute:
            yield from _unanswered(mute, askers)


def _is_narrow(group: GroupText, keys: tuple[str, str]) -> bool:
    """Are there addresses, and not all of them? Who may use all is an administrator or a recorder."""
    return any(group.items(key) for key in keys) and not group.is_unlimited(*keys)


def _may_reply(group: GroupText) -> bool:
    # The peer of a connector is a broker, which takes messages for its queues.
    if group.is_true(REPLIES_KEY) or group.name == CONNECTOR_GROUP:
        return True
    lists = (_Lists([group], (key,), SOME_USER) for key in _TARGETS if group.items(key))
    return any(each.matching(text) for each in lists for text in _REPLY_ADDRESSES)


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
    return "" if "$management" in item else item.replace(USER_TOKEN, user).replace("*", "x").replace("#", "x")
