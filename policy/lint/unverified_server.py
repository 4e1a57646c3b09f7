"""A connector, LDAP authenticator or authServicePlugin does not compare the server's certificate with its name.

With `verifyHostname: no` every certificate of the same authority is good enough, also one of another owner. With
`hostnameMatch: compatible` a certificate for another host passes where its common name is this one; so does one for
`*.com`.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL036"
TITLE = "server name is not verified"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("connector", "ldapAuthenticator", "authServicePlugin"):
        has_tls = section.type == "ldapAuthenticator" or section.text("sslProfile")
        if section.is_off("verifyHostname") and has_tls:
            text = "the name in the server's certificate is not verified"
            yield section.finding(ID, Level.WARNING, text, "verifyHostname", About(instead="verifyHostname: yes"))
        elif section.text("hostnameMatch") == "compatible" and has_tls:
            text = "the name in the server's certificate is compared as leniently as by 1.20"
            yield section.finding(ID, Level.WARNING, text, "hostnameMatch", About(instead="hostnameMatch: strict"))
