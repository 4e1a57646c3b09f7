"""A connector to another router trusts certificates of authorities that are not its own.

Its `sslProfile` has no `caCertFile`: the certificates that the system trusts are good enough, which anybody gets for a
name of his own. Whoever can answer in the place of the other router has the messages of this one's clients. Name
the file of the authority that signs your routers' certificates. For `verifyHostname: no` there is PAL036, for no TLS
PAL100.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText
from policy.lint.network_roles import network_sections

ID = "PAL102"
TITLE = "router is verified by public authorities"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    profiles = {section.text("name"): section for section in policy.sections("sslProfile")}
    for section in network_sections(policy, "connector"):
        profile = profiles.get(section.text("sslProfile"))
        if profile is not None and not profile.text("caCertFile"):
            text = f"sslProfile '{profile.text('name')}' has no caCertFile: every public certificate is trusted"
            yield section.finding(ID, Level.WARNING, text, "sslProfile", About(instead="caCertFile: FILE"))
