"""A setting is accepted and has no effect.

`workerThreads`: the router has one event loop. `allowRedirect` has no effect in qdrouterd 1.20 either, nor has a
`console` section: its console is served by http listeners. `trustedCertsFile` of a listener is for the certificates of
its clients, which it asks for where it has an sslProfile and EXTERNAL is among its `saslMechanisms`. Take the line out.

A connector with the role `edge` is how an edge router reaches the interior. That of an interior router connects, and no
message ever passes there: between interior routers the role is `inter-router`, at both ends.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText, SectionText
from policy.lint.fleet import FleetRouter, connectors_of, fleet

ID = "PAL088"
TITLE = "without effect"
FAMILY = Family.HYGIENE

_ATTRIBUTES = {
    "router": ("workerThreads", "debugDumpFile"),
    "connector": ("allowRedirect",),
}


def asks_for_certificates(listener: SectionText) -> bool:
    """Does it ask its clients for certificates?"""
    return bool(listener.text("sslProfile")) and "EXTERNAL" in listener.text("saslMechanisms")


def check(policy: PolicyText) -> Iterator[Finding]:
    for type_, keys in _ATTRIBUTES.items():
        for section in policy.sections(type_):
            for key in keys:
                if (written := section.written_name(key)) in section.attributes:
                    yield section.finding(ID, Level.NOTE, f"'{written}' has no effect", key)
    for section in policy.sections("listener"):
        written = section.written_name("trustedCertsFile")
        if written in section.attributes and not asks_for_certificates(section):
            yield section.finding(ID, Level.NOTE, f"'{written}' has no effect", "trustedCertsFile")
    for section in policy.sections("console"):
        yield section.finding(ID, Level.NOTE, "a console section has no effect, and neither have its attributes")
    for router in fleet(policy) or (FleetRouter(policy=policy, file=""),):
        if router.mode == "interior":
            for section in connectors_of(router, "edge"):
                text = "the role 'edge' of an interior router's connector has no effect: no message passes there"
                yield section.finding(ID, Level.WARNING, text, "role", About(instead="role: inter-router"))
