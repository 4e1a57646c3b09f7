"""A wildcard or `${user}` stands where it means nothing.

In `sources`, `targets`, `denySources` and `denyTargets` a `*` counts only as the last character, and `#` never does: a
denial of `orders.*.secret` denies only an address that is written so. In patterns `*` and `#` count only as whole
words, `orders.*` but not `ord*`, and so does `${user}`: `x${user}` can never match anything. Nor can a pattern of
separators alone, such as `/`.
"""

from collections.abc import Iterator

from policy.addressing.lists import ESCAPED_USER_TOKEN, USER_TOKEN, has_user_token
from policy.addressing.patterns import ANY_NUMBER, ONE, split_tokens
from policy.groups import DENY_KEYS
from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL015"
TITLE = "wildcard without effect"
_WORDS = (ONE, ANY_NUMBER, USER_TOKEN, ESCAPED_USER_TOKEN)
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        for key in ("sources", "targets", *DENY_KEYS):
            for item in group.items(key):
                if ONE in item[:-1] or (ANY_NUMBER in item and ANY_NUMBER in split_tokens(item)):
                    more = "" if key in DENY_KEYS else f"; '{key[:-1]}Pattern' knows more"
                    text = f"'{item}': only a '*' at the very end is a wildcard here{more}"
                    yield group.finding(ID, Level.WARNING, text, key, About(item=item))
        for key in ("sourcePattern", "targetPattern"):
            for item in group.items(key):
                if not split_tokens(item):
                    text = f"'{item}' in '{key}' has no words: it matches no address"
                    yield group.finding(ID, Level.WARNING, text, key, About(item=item))
                if ONE not in item and ANY_NUMBER not in item and not has_user_token(item):
                    continue
                for word in split_tokens(item):
                    if word not in _WORDS and any(token in word for token in _WORDS):
                        text = f"'{item}': '{word}' is taken literally, wildcards and {USER_TOKEN} must be whole words"
                        yield group.finding(ID, Level.WARNING, text, key, About(item=item))
