"""A rule, or the `policy` section, uses an extension.

qdrouterd 1.20 does not know it: it refuses networks in `remoteHosts`, and passes over unknown keys of a group with a
line in its log, so that the addresses of `denySources` and `denyTargets` are open there, and a group past its
`validUntil` goes on; with `management` every client that reaches `$management` may do everything. It does not start
with a `ban`, or with an attribute of a vhost or of a section that it does not know. Fine where only this router reads
the policy. `qdpolicy convert --form compatible` writes vhosts without, where that can be.
"""

from collections.abc import Iterator

from policy.addressing.lists import ESCAPED_USER_TOKEN
from policy.analysis.c_router import SECTION_EXTENSIONS, group_extensions, policy_extensions, vhost_extensions
from policy.groups import ADDRESS_KEYS
from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL055"
TITLE = "extension"
FAMILY = Family.COMPATIBILITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("policy"):
        for key in section.attributes:
            if key in policy_extensions():
                yield section.finding(ID, Level.NOTE, f"'{key}' is unknown to 1.20, which does not start with it", key)
    for vhost in policy.vhosts:
        for key in vhost.attributes:
            if key in vhost_extensions():
                yield vhost.finding(ID, Level.NOTE, f"'{key}' is unknown to 1.20, which does not start with it", key)
    for group in policy.groups:
        for item in group.items("remoteHosts"):
            if "/" in item:
                text = f"'{item}' is a network, which 1.20 refuses"
                yield group.finding(ID, Level.NOTE, text, "remoteHosts", About(item=item))
        for key in ADDRESS_KEYS:
            for item in group.items(key):
                if ESCAPED_USER_TOKEN in item:
                    text = f"'{ESCAPED_USER_TOKEN}' in '{item}' is plain text in 1.20, the same for all users"
                    yield group.finding(ID, Level.NOTE, text, key, About(item=item))
        for key in group.settings:
            if key in group_extensions():
                yield group.finding(ID, Level.NOTE, f"'{key}' is unknown to 1.20, which passes over it", key)
    for section in policy.sections(*SECTION_EXTENSIONS):
        for key in SECTION_EXTENSIONS[section.type]:
            if key in section.attributes:
                yield section.finding(ID, Level.NOTE, f"'{key}' is unknown to 1.20, which does not start with it", key)
    for section in policy.sections("ban"):
        yield section.finding(ID, Level.NOTE, "bans are unknown to 1.20, which does not start with one")
