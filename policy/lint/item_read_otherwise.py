"""An item is read otherwise than it is written.

A list of `users` is one text with commas to routers: `"a,b"` is two users, and `" bob "` is bob. Tabs beside the items
of a text are stripped; other blanks, such as the no-break space, belong to the item, and are hard to see. In the other
lists every character counts: `" orders"` is an address that begins with a blank, and a denial of it denies nothing
else. Write each item by itself, without blanks and tabs around it.
"""

from collections.abc import Iterator

from policy.attributes import BLANKS
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
            for item, text in _in_text("aliases", aliases):
                yield vhost.finding(ID, Level.WARNING, text, "aliases", about=About(item=item))
        for group in vhost.groups:
            for key in (_NAMES, "remoteHosts", AUTHENTICATOR_KEY, *ADDRESS_KEYS, *DENY_KEYS):
                yield from _of_list(group, key, group.settings.get(key))


def _of_list(group: GroupText, key: str, value: object) -> Iterator[Finding]:
    if isinstance(value, str):
        for item, text in _in_text(key, value):
            yield group.finding(ID, Level.WARNING, text, key, About(item=item))
        return
    for item in value if isinstance(value, list) else ():
        names = [name for part in item.split(",") if (name := part.strip(BLANKS))]
        if key == _NAMES and names and names != [item]:
            text = f"'{item}' in the list of users is {' and '.join(map(repr, names))}: write each name by itself"
            yield group.finding(ID, Level.WARNING, text, key, About(item=item, instead='", "'.join(names)))
        elif item.strip() and item != item.strip():
            text = f"'{item}' in '{key}' has a blank or a tab at its edge, which counts in a list"
            yield group.finding(ID, Level.WARNING, text, key, About(item=item, instead=item.strip()))


def _in_text(key: str, text: str) -> Iterator[tuple[str, str]]:
    """The items with a tab, or another blank than the space, around them, each with what is wrong."""
    for part in text.split(","):
        item = part.strip(BLANKS)
        if item != item.strip():
            yield item, f"{item!r} in '{key}' has a blank at its edge that is not stripped: remove it"
        elif item and item != part.strip(" "):
            yield item, f"the tab beside '{item}' in '{key}' is stripped: remove it"
