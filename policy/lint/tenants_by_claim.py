"""A listener is `multiTenant`, and vhost policy is off.

The tenant is then whatever hostname the client writes into its Open: every client can be in every tenant's place. With
`enableVhostPolicy: yes` it is the vhost the client was admitted to.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL041"
TITLE = "tenants that choose themselves"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("listener"):
        if section.is_on("multiTenant") and not policy.is_enforced:
            text = "clients choose their tenant themselves, because enableVhostPolicy is off"
            yield section.finding(ID, Level.WARNING, text, "multiTenant", About(instead="enableVhostPolicy: yes"))
