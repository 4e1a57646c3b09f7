"""A rule, or the `policy` section, uses an extension.

qdrouterd 1.20 does not know it: it refuses networks in `remoteHosts`, and passes over unknown keys of a group with a
line in its log, so that what `denySources` and `denyTargets` deny is open there, and a group whose `validUntil` is over
goes on. It does not start with an attribute of the `policy` section that it does not know. Fine where only this router
reads the policy.
"""

from collections.abc import Iterator

from policy.groups import AUTHENTICATOR_KEY, DENY_KEYS
from policy.lint.findings import About, Family, Finding, Level, PolicyText
from policy.windows import WINDOW_KEYS

ID = "PAL055"
TITLE = "extension"
FAMILY = Family.COMPATIBILITY


SECTION_KEYS = ("onPolicyChange",)


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("policy"):
        for key in SECTION_KEYS:
            if key in section.attributes:
                text = f"'{key}' is unknown to 1.20, which does not start with it"
                yield section.finding(ID, Level.NOTE, text, key)
    for group in policy.groups:
        for item in group.items("remoteHosts"):
            if "/" in item:
                text = f"'{item}' is a network, which 1.20 refuses"
                yield group.finding(ID, Level.NOTE, text, "remoteHosts", About(item=item))
        for key in (*DENY_KEYS, AUTHENTICATOR_KEY, *WINDOW_KEYS):
            if key in group.settings:
                yield group.finding(ID, Level.NOTE, f"'{key}' is unknown to 1.20, which passes over it", key)
