"""An item is read otherwise than it is written.

A list of `users` is one text with commas to routers: `"a,b"` is two users, and `" bob "` is bob. Tabs beside the items
of a text are stripped. In the other lists every character counts: `" orders"` is an address that begins with a blank,
and a denial of it denies nothing else. Write each item by itself, without blanks and tabs around it.
"""

from collections.abc import Iterator, Sequence

from policy.groups import ADDRESS_KEYS, AUTHENTICATOR_KEY, DENY_KEYS
from policy.lint.findings import About, Family, Finding, GroupText, Level, PolicyText

ID = "PAL080"
TITLE = "item read otherwise than written"
FAMILY = Family.CORRECTNESS

_NAMES = "users"


def check(policy: PolicyText) -> Iterator[Finding]:
    for vhost in policy.vhosts:
        aliases = vhost.attributes.get("aliases")
        if isinstance(aliases, str):
            for item in _beside_tabs(aliases):
                yield vhost.finding(ID, Level.WARNING, _stripped("aliases", item), "aliases", about=About(item=item))
        for group in vhost.groups:
            for key in (_NAMES, "remoteHosts", AUTHENTICATOR_KEY, *ADDRESS_KEYS, *DENY_KEYS):
                yield from _of_list(group, key, group.settings.get(key))


def _of_list(group: GroupText, key: str, value: object) -> Iterator[Finding]:
    if isinstance(value, str):
        for item in _beside_tabs(value):
            yield group.finding(ID, Level.WARNING, _stripped(key, item), key, About(item=item))
        return
    for item in value if isinstance(value, list) else ():
        names = [name for part in item.split(",") if (name := part.strip())]
        if key == _NAMES and names and names != [item]:
            text = f"'{item}' in the list of users is {' and '.join(map(repr, names))}: write each name by itself"
            yield group.finding(ID, Level.WARNING, text, key, About(item=item, instead='", "'.join(names)))
        elif key != _NAMES and item.strip() and item != item.strip():
            text = f"'{item}' in '{key}' has a blank or a tab at its edge, which counts in a list"
            yield group.finding(ID, Level.WARNING, text, key, About(item=item, instead=item.strip()))


def _beside_tabs(text: str) -> Sequence[str]:
    """The items with a tab, or another blank than the space, around them."""
    return [item.strip() for item in text.split(",") if item.strip() and item.strip() != item.strip(" ")]


def _stripped(key: str, item: str) -> str:
    return f"the tab beside '{item}' in '{key}' is stripped: remove it"
