"""A listener offers EXTERNAL, and its sslProfile has no `caCertFile`.

Client certificates are trusted only through `caCertFile`. Without it none is, and EXTERNAL can never succeed. Name
the file of the authority that signs your clients' certificates.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL040"
TITLE = "client certificates without an authority"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    profiles = {section.text("name"): section for section in policy.sections("sslProfile")}
    for section in policy.sections("listener"):
        profile = profiles.get(section.text("sslProfile"))
        if "EXTERNAL" not in section.mechanisms:
            continue
        if profile is None and not section.text("sslProfile"):
            text = "EXTERNAL needs TLS with client certificates: there is no sslProfile"
            yield section.finding(ID, Level.WARNING, text, "saslMechanisms", About(item="EXTERNAL"))
        elif profile is not None and not profile.text("caCertFile"):
            text = f"EXTERNAL can never succeed: sslProfile '{profile.text('name')}' has no caCertFile"
            yield section.finding(ID, Level.WARNING, text, "saslMechanisms", About(item="EXTERNAL"))
