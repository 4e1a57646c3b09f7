"""An item lets a user have what begins with the user's name and a separator, and the name of another user does.

Under `${user}.*` and `${user}/#` the user `bob` has all that begins with `bob.`, and with it the addresses of
`bob.smith`. Give the users names without `.` and `/`, or write the addresses of the one with the shorter name out.
"""

from collections.abc import Iterator

from policy.addressing.lists import USER_TOKEN
from policy.groups import ADDRESS_KEYS
from policy.lint.findings import About, Family, Finding, Level, PolicyText
from policy.vhosts import ANY_USER

ID = "PAL081"
TITLE = "users within each other's names"
FAMILY = Family.SECURITY
_SEPARATORS = (".", "/")


def check(policy: PolicyText) -> Iterator[Finding]:
    for vhost in policy.vhosts:
        names = {user for group in vhost.groups for user in group.items("users")} - {ANY_USER}
        reached: dict[str, list[str]] = {}  # by the shorter name
        for longer in sorted(names):
            for at, character in enumerate(longer):
                if character in _SEPARATORS and longer[:at] in names:
                    reached.setdefault(longer[:at], []).append(longer)
        for group in vhost.groups:
            within = [user for user in group.items("users") if user in reached]
            for key in ADDRESS_KEYS if within else ():
                for item in group.items(key):
                    if _reaches_further(key, item):
                        user = within[0]
                        text = f"under '{item}' the user '{user}' also has the addresses of '{reached[user][0]}'"
                        yield group.finding(ID, Level.WARNING, text, key, About(item=item))


def _reaches_further(key: str, item: str) -> bool:
    """Does it allow more words behind the user's name?"""
    _, token, rest = item.partition(USER_TOKEN)
    if not token or not rest.startswith(_SEPARATORS):
        return False
    return (
        rest.endswith("*") if not key.endswith("Pattern") else bool({"*", "#"} & set(rest.replace("/", ".").split(".")))
    )
