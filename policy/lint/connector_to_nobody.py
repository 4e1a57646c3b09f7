"""A connector to another router leads to none of the fleet.

No configuration that was given has a listener of its role with its host and port. Perhaps one was left out, or the port
is wrong; or several routers listen at that port on every address, and which of them has the host name cannot be told
from the files: then the name should be the router's id, or begin with it. Needs `--fleet`.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Confidence, Family, Finding, Level, PolicyText
from policy.lint.fleet import fleet, target_of
from policy.lint.network_roles import network_sections, role_of

ID = "PAL114"
TITLE = "connector leads to no router"
FAMILY = Family.CORRECTNESS
_POSSIBLE = About(confidence=Confidence.POSSIBLE)


def check(policy: PolicyText) -> Iterator[Finding]:
    routers = fleet(policy)
    for router in routers:
        for connector in network_sections(router.policy, "connector"):
            if target_of(connector, router, routers) is None:
                role, place = role_of(connector), f"{connector.text('host')}:{connector.text('port')}"
                text = f"no router given has a listener of role {role} for {place}, or it cannot be told which"
                yield connector.finding(ID, Level.NOTE, text, "host", _POSSIBLE)
