"""A listener's `trustedCertsFile` is enforced here; qdrouterd 1.20 ignores it.

Clients' certificates must descend from an authority in it; `caCertFile` of the sslProfile does not count for them. 1.20
lets in those of `caCertFile` and, more than that, of the system's store. Clients are asked for a certificate where the
listener has an sslProfile and EXTERNAL is among its `saslMechanisms`; elsewhere the setting has no effect. To have both
routers do the same, name the authorities of clients, and no others, in `caCertFile`, and leave `trustedCertsFile` out.
"""

from collections.abc import Iterator

from policy.lint.findings import Family, Finding, Level, PolicyText

ID = "PAL090"
TITLE = "trusted certificates"
FAMILY = Family.COMPATIBILITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("listener"):
        if not section.text("trustedCertsFile"):
            continue
        if section.text("sslProfile") and "EXTERNAL" in section.text("saslMechanisms"):
            text = "is enforced here; qdrouterd 1.20 lets in clients of other authorities: those of caCertFile"
        else:
            text = "has no effect: no client is asked for a certificate without sslProfile and EXTERNAL"
        written = section.written_name("trustedCertsFile")
        yield section.finding(ID, Level.WARNING, f"'{written}' {text}", "trustedCertsFile")
