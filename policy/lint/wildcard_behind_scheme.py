"""A `*` stands directly behind a scheme, as in `amqp:*`.

An address with a scheme reaches the address behind it: `amqp:/secret` reaches `secret`. In qdrouterd 1.20 a user with
`amqp:*` reaches every address that way. Here the reached address must be allowed too, so that the item allows nothing
the other items do not. List the addresses as they are without scheme and host.
"""

import re
from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL063"
TITLE = "wildcard behind a scheme"
FAMILY = Family.COMPATIBILITY

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\*")


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        for key in ("sources", "targets"):
            for item in group.items(key):
                if _SCHEME.fullmatch(item):
                    text = f"'{item}' allows only what is listed without the scheme as well; in 1.20, everything"
                    yield group.finding(ID, Level.NOTE, text, key, About(item=item))
