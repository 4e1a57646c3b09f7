"""A listener's or connector's `policyVhost` names a vhost that is not defined, or that has no group for connectors.

The default vhost governs in its place, if there is one, and else every connection is closed. A connector needs the
group `$connector` in it.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText
from policy.vhosts import CONNECTOR_GROUP

ID = "PAL039"
TITLE = "policyVhost that does not exist"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    if not policy.is_enforced or any(section.is_on("enableVhostNamePatterns") for section in policy.sections("policy")):
        return
    for section in policy.sections("listener", "connector"):
        name = section.text("policyVhost")
        if not name:
            continue
        if name not in policy.vhost_names:
            text = f"there is no vhost '{name}'"
            yield section.finding(ID, Level.WARNING, text, "policyVhost", About(item=name))
        elif section.type == "connector" and not _has_group(policy, name):
            text = f"vhost '{name}' has no group '{CONNECTOR_GROUP}': the connection is closed"
            yield section.finding(ID, Level.ERROR, text, "policyVhost", About(item=name))


def _has_group(policy: PolicyText, name: str) -> bool:
    vhosts = [vhost for vhost in policy.vhosts if name in (vhost.hostname, *vhost.aliases)]
    return any(group.name == CONNECTOR_GROUP for vhost in vhosts for group in vhost.groups)
