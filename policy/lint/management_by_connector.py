"""The peer of a connector may reach `$management`.

The operator of the server that the router connects to, or an attacker who has taken it, or its name, may then manage
the router: with all rights but those to files, where the connector has no `policyVhost`. Leave `allowManagement` out.
Where it is wanted, give the connector a `policyVhost` with `management` rights in its group `$connector`.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL071"
TITLE = "management by the peer of a connector"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("connector"):
        if section.is_on("allowManagement"):
            text = "whoever is at the other end may manage the router"
            if not section.text("policyVhost"):
                text += ", and nothing says what: there is no policyVhost"
            yield section.finding(ID, Level.WARNING, text, "allowManagement", About(instead="allowManagement: no"))
