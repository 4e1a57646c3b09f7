"""`defaultVhost` names a vhost that is not defined.

Connections that ask for no known vhost are refused then. If that is meant, write an empty `defaultVhost`: it says so.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL020"
TITLE = "default vhost that does not exist"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("policy"):
        name = section.text("defaultVhost")
        if policy.is_enforced and name and name not in {vhost.hostname for vhost in policy.vhosts}:
            text = f"there is no vhost '{name}', so connections to unknown vhosts are refused"
            yield section.finding(ID, Level.WARNING, text, "defaultVhost", About(item=name))
