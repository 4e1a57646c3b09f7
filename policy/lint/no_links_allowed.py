"""maxSenders or maxReceivers is 0, while the group lists addresses for such links.

0 means none. qdrouterd 1.20 took it for no limit at all, whatever its documentation said, so a policy that comes from
there may rely on it. Remove the attribute for no limit, or the addresses for no links.
"""

from collections.abc import Iterator

from policy.lint.findings import Family, Finding, Level, PolicyText

ID = "PAL011"
TITLE = "0 links, but addresses"
FAMILY = Family.COMPATIBILITY

_USES = {
    "maxSenders": ("targets", "targetPattern", "allowAnonymousSender"),
    "maxReceivers": ("sources", "sourcePattern", "allowDynamicSource"),
}


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        for key, (literal, pattern, switch) in _USES.items():
            is_used = group.items(literal) or group.items(pattern) or group.is_true(switch)
            if is_used and str(group.settings.get(key)).strip() == "0":
                text = f"'{key}' 0 allows no links, though their addresses are listed; 1.20 took it for unlimited"
                yield group.finding(ID, Level.WARNING, text, key)
