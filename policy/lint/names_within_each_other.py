"""An item lets a user have what begins, or ends, with the user's name at a separator, as the name of another does.

Under `${user}.*` and `${user}/#` the user `bob` has all that begins with `bob.`, and with it the addresses of
`bob.smith`; under the pattern `#.${user}` all that ends with `.bob`, and with it those of `smith.bob`. Write
`${user:escaped}`, in which `.` is `%2E` and `/` is `%2F`, or whole addresses, as `inbox.${user}` is, or give the users
names without `.` and `/`. Where users are not listed it is a note.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from policy.addressing.lists import ESCAPED_USER_TOKEN, USER_TOKEN
from policy.groups import ADDRESS_KEYS
from policy.lint.findings import About, Confidence, Family, Finding, GroupText, Level, PolicyText
from policy.vhosts import ANY_USER

ID = "PAL081"
TITLE = "users within each other's names"
FAMILY = Family.SECURITY
_SEPARATORS = (".", "/")
_INSTEAD = f"inbox.{USER_TOKEN}"


class _End(NamedTuple):
    """An end of a name, at which an item allows more words.

    shorter  (name, index of a separator) → what stands at this end
    reaches  (attribute, item) → does the item allow more words there?
    example  a name that has `bob` at this end
    """

    shorter: Callable[[str, int], str]
    reaches: Callable[[str, str], bool]
    example: str


def _more_behind(key: str, item: str) -> bool:
    """Does it allow more words behind the user's name?"""
    _, token, rest = item.partition(USER_TOKEN)
    if not token or not rest.startswith(_SEPARATORS):
        return False
    return _has_wildcard(rest) if key.endswith("Pattern") else rest.endswith("*")


def _more_before(key: str, item: str) -> bool:
    """The same before it. A list has its wildcard at the end."""
    head, token, _ = item.partition(USER_TOKEN)
    return bool(token) and head.endswith(_SEPARATORS) and key.endswith("Pattern") and _has_wildcard(head)


def _has_wildcard(words: str) -> bool:
    return bool({"*", "#"} & set(words.replace("/", ".").split(".")))


_ENDS = (
    _End(lambda name, at: name[:at], _more_behind, "bob.smith"),
    _End(lambda name, at: name[at + 1 :], _more_before, "smith.bob"),
)


def check(policy: PolicyText) -> Iterator[Finding]:
    for vhost in policy.vhosts:
        names = {user for group in vhost.groups for user in group.items("users")} - {ANY_USER}
        open_groups = {group.name for group in vhost.open_groups}
        for end in _ENDS:
            reached = _reached(names, end)
            for group in vhost.groups:
                within = [user for user in group.items("users") if user in reached]
                if within:
                    text = f"the user '{within[0]}' also has the addresses of '{reached[within[0]]}'"
                    yield from _findings(group, end, text, Level.WARNING, Confidence.CERTAIN)
                elif group.name in open_groups or group.items("authenticatorGroups"):
                    text = f"a user 'bob' also has the addresses of '{end.example}': write '{ESCAPED_USER_TOKEN}', "
                    text += f"or whole addresses such as '{_INSTEAD}', or see that no user's name has a '.' or '/'"
                    yield from _findings(group, end, text, Level.NOTE, Confidence.POSSIBLE)


def _reached(names: Iterable[str], end: _End) -> dict[str, str]:
    """Returns each name that stands at this end of another, with the first of those."""
    known, reached = set(names), dict[str, str]()
    for longer in sorted(known):
        for at, character in enumerate(longer):
            if character in _SEPARATORS and (shorter := end.shorter(longer, at)) in known:
                reached.setdefault(shorter, longer)
    return reached


def _findings(group: GroupText, end: _End, text: str, level: Level, confidence: Confidence) -> Iterator[Finding]:
    for key in ADDRESS_KEYS:
        for item in group.items(key):
            if end.reaches(key, item):
                about = About(item=item, confidence=confidence)
                yield group.finding(ID, level, f"under '{item}' {text}", key, about)
