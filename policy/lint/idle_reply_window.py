"""replyWindow without allowReplies.

It says for how long a member may send to the reply-to of a message that he has received, and he may not. Write
`allowReplies: true` beside it, or leave it out.
"""

from collections.abc import Iterator

from policy.groups import REPLIES_KEY, REPLY_WINDOW_KEY
from policy.lint.findings import Family, Finding, Level, PolicyText

ID = "PAL069"
TITLE = "time to reply for who may not"
FAMILY = Family.REACHABILITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        if REPLY_WINDOW_KEY in group.settings and not group.is_true(REPLIES_KEY):
            text = f"'{REPLY_WINDOW_KEY}' has no effect without '{REPLIES_KEY}'"
            yield group.finding(ID, Level.WARNING, text, REPLY_WINDOW_KEY)
