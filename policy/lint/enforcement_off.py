"""The configuration has vhosts, and `enableVhostPolicy` is off.

No rule of the vhosts is enforced: every client that can connect may send and receive everywhere and change the router.
Write `enableVhostPolicy: yes` into the `policy` section.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL028"
TITLE = "vhosts, but vhost policy is off"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    if not policy.is_configuration or not policy.vhosts or policy.is_enforced:
        return
    text = "vhosts are defined, but nothing of them is enforced"
    about = About(instead="enableVhostPolicy: yes")
    for section in policy.sections("policy"):
        yield section.finding(ID, Level.WARNING, text, "enableVhostPolicy", about)
        return
    yield policy.vhosts[0].finding(ID, Level.WARNING, f"{text}: there is no 'policy' section", about=about)
