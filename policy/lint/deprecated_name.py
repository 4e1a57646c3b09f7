"""An old name is used.

Routers still understand it, with a warning in the log. `id` and, where there is no hostname, `name` are `hostname`
today, `maxConnectionsPerRemoteHost` is `maxConnectionsPerHost`, and the token `{user}` is `${user}`.
"""

from collections.abc import Iterator

from policy.addresses import DEPRECATED_USER_TOKEN, USER_TOKEN
from policy.groups import ADDRESS_KEYS
from policy.lint.findings import Finding, Level, PolicyText
from policy.vhosts import DEPRECATED_ATTRIBUTES

ID = "PAL005"
TITLE = "old name"


def check(policy: PolicyText) -> Iterator[Finding]:
    for vhost in policy.vhosts:
        for old, new in DEPRECATED_ATTRIBUTES.items():
            if old in vhost.attributes:
                yield vhost.finding(ID, Level.WARNING, f"'{old}' is the old name of '{new}'", old)
        if "hostname" not in vhost.attributes and "id" not in vhost.attributes:
            yield vhost.finding(ID, Level.WARNING, "'name' stands for the missing 'hostname': write 'hostname'", "name")
    for group in policy.groups:
        for key in ADDRESS_KEYS:
            for item in group.items(key):
                if DEPRECATED_USER_TOKEN in item.replace(USER_TOKEN, ""):
                    text = f"'{item}': write '{USER_TOKEN}' for '{DEPRECATED_USER_TOKEN}'"
                    yield group.finding(ID, Level.WARNING, text, key)
