"""A limit per user or per host is not below the limit of the whole vhost.

The vhost's `maxConnections` is reached first, by anybody, so this limit keeps no one from using up all of it. Set
it lower, or leave it out.
"""

from collections.abc import Iterator

from policy.attributes import InvalidValue, read_integer
from policy.lint.findings import Family, Finding, Level, PolicyText

ID = "PAL021"
TITLE = "limit that is never reached"
FAMILY = Family.HYGIENE


def check(policy: PolicyText) -> Iterator[Finding]:
    for vhost in policy.vhosts:
        total = _number(vhost.attributes.get("maxConnections"))
        if not total:
            continue
        for key in ("maxConnectionsPerUser", "maxConnectionsPerHost"):
            text = f"'{key}' is not below 'maxConnections' {total}, which is reached first"
            if (limit := _number(vhost.attributes.get(key))) is not None and limit >= total:
                yield vhost.finding(ID, Level.WARNING, text, key)
            for group in vhost.groups:
                if (limit := _number(group.settings.get(key))) is not None and limit >= total:
                    yield group.finding(ID, Level.WARNING, text, key)


def _number(value: object) -> int | None:
    try:
        return read_integer(value)
    except InvalidValue:
        return None
