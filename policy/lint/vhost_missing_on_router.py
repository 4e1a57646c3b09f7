"""A vhost is on one router of a fleet and not on the others.

Each router judges its own clients. One that connects to a router without the vhost gets `defaultVhost`, or is refused;
so its rights depend on the router that it reaches. Give all routers the same policyDir. Routers that enforce no policy,
and those with no listener for clients or edges, are left out. Needs `--fleet`.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Confidence, Family, Finding, Level, PolicyText
from policy.lint.fleet import FleetRouter, fleet
from policy.lint.network_roles import ROLES, role_of

ID = "PAL112"
TITLE = "vhost not on every router"
FAMILY = Family.CORRECTNESS
_LIKELY = About(confidence=Confidence.LIKELY)


def check(policy: PolicyText) -> Iterator[Finding]:
    routers = [router for router in fleet(policy) if router.policy.is_enforced and judges_clients(router)]
    for router in routers:
        for vhost in router.policy.vhosts:
            names = {vhost.hostname, *vhost.aliases}
            lacking = [other for other in routers if not names & other.policy.vhost_names]
            if lacking:
                listed = ", ".join(other.title for other in lacking[:3])
                more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
                yield vhost.finding(ID, Level.WARNING, f"it is not on router {listed}{more}", about=_LIKELY)


def judges_clients(router: FleetRouter) -> bool:
    """Has it a listener whose peers vhost policy is asked about?"""
    return any(role_of(section) != ROLES[0] for section in router.policy.sections("listener"))
