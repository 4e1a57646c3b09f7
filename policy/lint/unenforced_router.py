"""Vhost policy is enforced on some routers of a fleet and off on one that takes clients.

Each router judges its own clients, and none those of another: messages that came in where nothing is enforced reach
every consumer of the network. Write `enableVhostPolicy: yes` there too. Needs `--fleet`.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText
from policy.lint.fleet import fleet
from policy.lint.vhost_missing_on_router import judges_clients

ID = "PAL113"
TITLE = "one router enforces nothing"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    routers = fleet(policy)
    if not any(router.policy.is_enforced for router in routers):
        return
    for router in routers:
        if not router.policy.is_enforced and judges_clients(router):
            text = "vhost policy is off here and enforced on others: its clients reach all addresses of the network"
            yield router.anchor.finding(ID, Level.ERROR, text, about=About(instead="enableVhostPolicy: yes"))
