"""A port is the name of a service, which the host has to know.

`amqp` and `amqps` are known everywhere. Any other name is looked up in the host's list of services, and the router does
not start where it is not there: a typing mistake in a number looks like this. `qdrouterd --check` looks it up.
"""

from collections.abc import Iterator

from policy.configuration.references import WELL_KNOWN_SERVICES
from policy.lint.findings import About, Confidence, Family, Finding, Level, PolicyText

ID = "PAL152"
TITLE = "port by the name of a service"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("listener", "connector"):
        port = section.text("port")
        if port and not port[0].isdigit() and port not in WELL_KNOWN_SERVICES:
            text = f"'{port}' is no number: the router starts where the host has a service of that name"
            about = About(item=port, confidence=Confidence.POSSIBLE)
            yield section.finding(ID, Level.WARNING, text, "port", about)
