"""An item lets a user have what begins with the user's name and a separator, and the name of another user does.

Under `${user}.*` and `${user}/#` the user `bob` has all that begins with `bob.`, and with it the addresses of
`bob.smith`. Write `${user:escaped}`, in which `.` is `%2E` and `/` is `%2F`, or end the item with the name, as
`inbox.${user}` does, or give the users names without `.` and `/`. Where users are not listed it is a note.
"""

from collections.abc import Iterator

from policy.addressing.lists import ESCAPED_USER_TOKEN, USER_TOKEN
from policy.groups import ADDRESS_KEYS
from policy.lint.findings import About, Confidence, Family, Finding, GroupText, Level, PolicyText
from policy.vhosts import ANY_USER

ID = "PAL081"
TITLE = "users within each other's names"
FAMILY = Family.SECURITY
_SEPARATORS = (".", "/")
_INSTEAD = f"inbox.{USER_TOKEN}"


def check(policy: PolicyText) -> Iterator[Finding]:
    for vhost in policy.vhosts:
        names = {user for group in vhost.groups for user in group.items("users")} - {ANY_USER}
        reached: dict[str, list[str]] = {}  # by the shorter name
        for longer in sorted(names):
            for at, character in enumerate(longer):
                if character in _SEPARATORS and longer[:at] in names:
                    reached.setdefault(longer[:at], []).append(longer)
        open_groups = {group.name for group in vhost.open_groups}
        for group in vhost.groups:
            within = [user for user in group.items("users") if user in reached]
            if within:
                user = within[0]
                text = f"the user '{user}' also has the addresses of '{reached[user][0]}'"
                yield from _findings(group, text, Level.WARNING, Confidence.CERTAIN)
            elif group.name in open_groups or group.items("authenticatorGroups"):
                text = f"a user 'bob' also has the addresses of 'bob.smith': write '{ESCAPED_USER_TOKEN}', "
                text += f"or whole addresses such as '{_INSTEAD}', or see that no user's name has a '.' or '/'"
                yield from _findings(group, text, Level.NOTE, Confidence.POSSIBLE)


def _findings(group: GroupText, text: str, level: Level, confidence: Confidence) -> Iterator[Finding]:
    for key in ADDRESS_KEYS:
        for item in group.items(key):
            if _reaches_further(key, item):
                about = About(item=item, confidence=confidence)
                yield group.finding(ID, level, f"under '{item}' {text}", key, about)


def _reaches_further(key: str, item: str) -> bool:
    """Does it allow more words behind the user's name?"""
    _, token, rest = item.partition(USER_TOKEN)
    if not token or not rest.startswith(_SEPARATORS):
        return False
    return (
        rest.endswith("*") if not key.endswith("Pattern") else bool({"*", "#"} & set(rest.replace("/", ".").split(".")))
    )
