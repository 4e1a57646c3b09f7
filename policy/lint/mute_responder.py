"""A group receives requests, and may not send replies.

Another group sends there, and may have dynamic addresses made, which is how a client asks for replies
(`allowDynamicSource`). Who receives the requests may send neither to such an address nor to the reply-to of a message:
the replies are refused. Write `allowReplies: true`. Where nobody replies, because the messages are no requests, ignore
this. See docs/policy.md, Request and reply.
"""

from collections.abc import Iterator
from functools import partial
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
        sending = [
            (asker, items, _bound(asker, key, _ASKER))
            for asker in askers
            for key in _TARGETS
            if (items := asker.items(key))
        ]
        for group in vhost.groups if sending else ():
            if _is_narrow(group, _SOURCES) and not _may_reply(group):
                yield from _unanswered(group, sending)


def _is_narrow(group: GroupText, keys: tuple[str, str]) -> bool:
    """Are there addresses, and not all of them? Who may use all is an administrator or a recorder."""
    return any(group.items(key) for key in keys) and not group.is_unlimited(*keys)


def _may_reply(group: GroupText) -> bool:
    # The peer of a connector is a broker, which takes messages for its queues.
    if group.is_true(REPLIES_KEY) or group.name == CONNECTOR_GROUP:
        return True
    lists = (_bound(group, key, SOME_USER) for key in _TARGETS if group.items(key))
    return any(each.match(text) is not None for each in lists for text in _REPLY_ADDRESSES)


def _unanswered(
    group: GroupText, sending: list[tuple[GroupText, tuple[str, ...], AddressMatcher]]
) -> Iterator[Finding]:
    """The first item by which members receive what those send who may ask."""
    for key in _SOURCES:
        items = group.items(key)
        if not items:
            continue
        receiving = _bound(group, key, SOME_USER)
        for asker, sent, asking in sending:
            if asker.name == group.name:
                continue
            found = next(filter(None, map(receiving.match, map(partial(_sample, _ASKER), sent))), None)
            if found is None:
                found = next((item for item in items if asking.match(_sample(SOME_USER, item)) is not None), None)
            if found is not None:
                text = f"members receive '{found}', where group '{asker.name}' may send requests, and may not reply"
                about = About(item=found, instead=f'"{REPLIES_KEY}": true', confidence=Confidence.POSSIBLE)
                yield group.finding(ID, Level.WARNING, text, key, about)
                return


def _bound(group: GroupText, key: str, user: str) -> AddressMatcher:
    items = group.items(key)
    rules: AddressRules = compile_patterns(items) if key.endswith("Pattern") else compile_literals(items)
    return rules.bind(user)


def _sample(user: str, item: str) -> str:
    """An address of the item; none for management, which the router itself answers."""
    return "" if "$management" in item else item.replace(USER_TOKEN, user).replace("*", "x").replace("#", "x")
