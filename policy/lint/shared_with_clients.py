"""Clients can log in at a listener for routers.

A listener for clients of the same configuration takes the same credentials: certificates of the same `sslProfile`, or
passwords from the same place. A client that connects to the other port and speaks as a router is one: it is told of all
addresses, sends to all, and on an `inter-router` listener vhost policy does not look at it. With `${user}` in
`routerIds` it does so under its own name. Write whose each id is, `routerIds: b.example.com=B, c.example.com=C`, or
give routers an authority or authenticator of their own.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText, SectionText
from policy.lint.network_roles import ROLES, demands_login, names_users, network_sections, role_of

ID = "PAL104"
TITLE = "clients may join as routers"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in network_sections(policy, "listener"):
        if not demands_login(section) or names_users(section):
            continue
        if (other := client_listener_like(policy, section)) is not None:
            text = f"clients of the listener in line {other.source.line} can log in here, and join as routers"
            yield section.finding(ID, Level.ERROR, text, "role", About(instead="routerIds: USER=ID, ..."))


def client_listener_like(
    policy: PolicyText, section: SectionText, *, besides: tuple[str, ...] = ()
) -> SectionText | None:
    """A listener for clients that takes the credentials of this one.

    besides  roles of listeners that are not for clients either
    """
    for other in policy.sections("listener"):
        if role_of(other) not in (*ROLES, *besides) and _credentials(other) & _credentials(section):
            return other
    return None


def _credentials(section: SectionText) -> set[tuple[str, str]]:
    """Where the credentials come from that a listener takes."""
    mechanisms = set(section.mechanisms) - {"ANONYMOUS"}
    if plugin := section.text("saslPlugin"):
        return {("saslPlugin", plugin)}
    found = {("sslProfile", section.text("sslProfile"))} if "EXTERNAL" in mechanisms else set()
    if mechanisms - {"EXTERNAL"}:
        named = section.text("authenticators").split()
        found |= {("authenticators", each) for each in named or ("",)}
    return found
