"""Decides which routers may join the network over a listener or connector: `routerIds`, an extension.

A router gives its id in its Open, and makes all later claims under that id. The items of `routerIds` list the ids that
the peer's authenticated name permits. Pure. Source: docs/spec/network.md §18.1.
"""

from dataclasses import dataclass
from typing import Final

from policy.attributes import InvalidValue
from policy.decision import Decision, Reason, Rule

USER: Final = "${user}"
# The protocol's limit: docs/spec/network.md §1.
MAX_ROUTER_ID_CHARACTERS: Final = 127


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A text in which one `*` matches any characters.

    rest  the text after the `*`; None: there is no `*`
    """

    start: str
    rest: str | None = None

    @classmethod
    def parse(cls, text: str) -> "_Pattern":
        start, star, rest = text.partition("*")
        if "*" in rest:
            raise InvalidValue(f"'{text}' has more than one *")
        return cls(start, rest if star else None)

    def matches(self, text: str, user: str = USER) -> bool:
        start = self.start.replace(USER, user)
        if self.rest is None:
            return text == start
        rest = self.rest.replace(USER, user)
        return len(text) >= len(start) + len(rest) and text.startswith(start) and text.endswith(rest)


_EVERYTHING: Final = _Pattern("", "")


@dataclass(frozen=True, slots=True)
class _Item:
    """One item.

    user  None: every authenticated user
    """

    user: _Pattern | None
    router_id: _Pattern

    @property
    def is_of_everybody(self) -> bool:
        return self.user in (None, _EVERYTHING)


@dataclass(frozen=True, slots=True)
class RouterIds:
    """The items of one `routerIds`, and the text that they come from."""

    text: str
    items: tuple[_Item, ...]

    @classmethod
    def parse(cls, text: str) -> "RouterIds":
        """Parses `ID` or `USER=ID` items, separated by commas. Errors: InvalidValue, which names the right form."""
        return cls(text, tuple(_parse_item(item) for item in _items(text)))

    @property
    def is_for_everybody(self) -> bool:
        """Returns whether some item lets every authenticated peer join under any id."""
        return any(item.is_of_everybody and item.router_id == _EVERYTHING for item in self.items)

    @property
    def names_users(self) -> bool:
        """Returns whether every item has a user. If not, every peer that logs in may join, at least under a new id."""
        return not any(item.is_of_everybody for item in self.items)


def _items(text: str) -> list[str]:
    items = [stripped for item in text.split(",") if (stripped := item.strip())]
    if not items:
        raise InvalidValue(f"is empty: expected router ids, such as {USER}, or users and ids, such as b.example.com=B")
    return items


def _parse_item(text: str) -> _Item:
    # User names may have a `=`, as those of certificates without uidFormat do. Ids in this list have none.
    user, equals, router_id = (part.strip() for part in text.rpartition("="))
    if not router_id or (equals and not user):
        raise InvalidValue(f"'{text}' is no item: expected ID or USER=ID")
    if "${" in text.replace(USER, "") or USER in user:
        raise InvalidValue(f"'{text}': the only word to be replaced is {USER}, in an id")
    return _Item(_Pattern.parse(user) if equals else None, _Pattern.parse(router_id))


def decide_router(router_ids: RouterIds, user: str | None, router_id: str) -> Decision:
    """Decides whether a peer may join the network under this router id.

    user       name that the peer has proved; None: none, and then the peer may not join
    router_id  the container-id of its Open
    """
    rule = Rule(item=f"routerIds: {router_ids.text}")
    denied = Decision(is_allowed=False, reason=Reason.ROUTER_ID_NOT_ALLOWED, rule=rule)
    if not user or not _is_router_id(router_id):
        return denied
    for item in router_ids.items:
        if (item.user is None or item.user.matches(user)) and item.router_id.matches(router_id, user):
            return Decision(is_allowed=True, reason=Reason.ALLOWED, rule=rule)
    return denied


def _is_router_id(text: str) -> bool:
    """Returns whether the text can be a router id, which is a part of addresses, log lines and keys."""
    return 0 < len(text) <= MAX_ROUTER_ID_CHARACTERS and text.isprintable() and not set(text) & {" ", "/"}
