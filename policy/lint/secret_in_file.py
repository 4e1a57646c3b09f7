"""A password stands in the configuration file.

Every reader of the file has it, and so has every copy of it. Write `file:PATH`, a file only the router can read, or
`env:NAME`. The password is not shown here.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL035"
TITLE = "password in the configuration"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("sslProfile", "connector", "ldapAuthenticator"):
        for key in ("password", "saslPassword", "bindPassword"):
            value = section.text(key)
            if value and not value.startswith(("env:", "file:")):
                about = About(instead=f"{key}: file:/etc/palisade/{key}")
                yield section.finding(ID, Level.WARNING, f"'{key}' is written into the file", key, about)
