"""Whoever is not named may use every address.

The group with the user `*`, or the group `$default` with allowUnknownUser, holds for users nobody has thought of:
everyone with a password or a certificate, and `anonymous` where a listener offers ANONYMOUS. List the addresses such
users need; all others stay closed.
"""

from collections.abc import Iterator

from policy.lint.findings import Family, Finding, Level, PolicyText

ID = "PAL006"
TITLE = "every address for unnamed users"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for vhost in policy.vhosts:
        for group in vhost.open_groups:
            for verb, keys in (
                ("receive from", ("sources", "sourcePattern")),
                ("send to", ("targets", "targetPattern")),
            ):
                if group.is_unlimited(*keys):
                    key = next(key for key in keys if key in group.settings)
                    text = f"users who are not named may {verb} every address: list those they need"
                    yield group.finding(ID, Level.WARNING, text, key)
