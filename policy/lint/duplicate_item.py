"""The same item stands twice in one list.

The second one has no effect. Often one of the two was meant to be something else.
"""

from collections.abc import Iterator

from policy.attributes import InvalidValue, split_items, split_names
from policy.groups import ADDRESS_KEYS, AUTHENTICATOR_KEY, DENY_KEYS
from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL018"
TITLE = "item twice in a list"
FAMILY = Family.HYGIENE


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        for key in ("users", "remoteHosts", AUTHENTICATOR_KEY, *ADDRESS_KEYS, *DENY_KEYS):
            if key not in group.settings:
                continue
            written = _written(key, group.settings[key])
            if len(set(written)) == len(written):
                continue
            for item in dict.fromkeys(written):
                if item and written.count(item) > 1:
                    text = f"'{item}' stands in '{key}' {written.count(item)} times: once is enough"
                    yield group.finding(ID, Level.NOTE, text, key, About(item=item))


def _written(key: str, value: object) -> list[str]:
    try:
        return split_names(value) if key == "users" else split_items(value)
    except InvalidValue:
        return []
