"""Two routers of a fleet have the same id.

Interior routers with the same id never become neighbours, and to the others the two look like one router that restarts
all the time: messages for it go to the one, then to the other. Two edges with one id share what is sent to either. Give
each router an id of its own. Needs `--fleet`.
"""

from collections.abc import Iterator

from policy.lint.findings import Family, Finding, Level, PolicyText
from policy.lint.fleet import FleetRouter, fleet

ID = "PAL110"
TITLE = "two routers with one id"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    seen: dict[str, FleetRouter] = {}
    for router in fleet(policy):
        if not router.id:
            continue
        first = seen.setdefault(router.id, router)
        if first is not router:
            yield router.anchor.finding(ID, Level.ERROR, f"the id '{router.id}' is also that of {first.file}", "id")
