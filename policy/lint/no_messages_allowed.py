"""maxMessageRate or maxByteRate is 0, while addresses are listed to send to.

0 means none: senders may attach, and never get credit. Remove the attribute for no limit. Where nobody is to send,
remove the addresses instead; then the attempt is refused, and recorded.
"""

from collections.abc import Iterator

from policy.groups import RATE_KEYS
from policy.lint.findings import Family, Finding, Level, PolicyText

ID = "PAL058"
TITLE = "no messages, but targets"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    for vhost in policy.vhosts:
        for group in vhost.groups:
            is_sending = group.items("targets") or group.items("targetPattern") or group.is_true("allowAnonymousSender")
            for key in RATE_KEYS if is_sending else ():
                text = f"'{key}' 0 lets no message through, though there are addresses to send to"
                if key in group.settings:
                    if str(group.settings[key]).strip() == "0":
                        yield group.finding(ID, Level.WARNING, text, key)
                elif str(vhost.attributes.get(key)).strip() == "0":
                    yield vhost.finding(ID, Level.WARNING, f"group '{group.name}': {text}", key)
