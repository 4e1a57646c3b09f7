"""A vhost's name has a `/`, and a listener is `multiTenant`.

The name stands before the addresses of the tenant, with a `/` between them: the space of `t/inner` would be a part of
that of `t`. So on such a listener every address in that vhost is refused, but for those that are in no tenant's space:
those that begin with `_local/`, `_topo/` or `_edge/`, and dynamic ones.
"""

from collections.abc import Iterator

from policy.addressing.address import SEPARATOR
from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL072"
TITLE = "tenant within another's space"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    if not any(section.is_on("multiTenant") for section in policy.sections("listener")):
        return
    for vhost in policy.vhosts:
        if SEPARATOR in vhost.hostname:
            text = f"clients of a multiTenant listener can use no address in it: its name has a '{SEPARATOR}'"
            instead = vhost.hostname.replace(SEPARATOR, "-")
            yield vhost.finding(ID, Level.ERROR, text, "hostname", about=About(item=vhost.hostname, instead=instead))
