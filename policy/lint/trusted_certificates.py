"""A listener's `trustedCertsFile` is enforced here; qdrouterd 1.20 ignores it.

Clients' certificates must descend from an authority in it; `caCertFile` of the sslProfile does not count for them. 1.20
lets in those of `caCertFile` and, more than that, of the system's store. To have both routers do the same, name the
authorities of clients, and no others, in `caCertFile`, and leave `trustedCertsFile` out.
"""

from collections.abc import Iterator

from policy.lint.findings import Family, Finding, Level, PolicyText
from policy.lint.without_effect import asks_for_certificates

ID = "PAL090"
TITLE = "trusted certificates"
FAMILY = Family.COMPATIBILITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("listener"):
        if section.text("trustedCertsFile") and asks_for_certificates(section):
            written = section.written_name("trustedCertsFile")
            text = f"'{written}' is enforced here; qdrouterd 1.20 ignores it, and lets in those of caCertFile"
            yield section.finding(ID, Level.WARNING, text, "trustedCertsFile")
