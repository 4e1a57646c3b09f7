"""A listener or connector between routers allows too few sessions.

Two routers have eleven sessions on their connection: one for the routing protocol and one for each of the ten
priorities. Streamed messages and routed links take further ones. With `maxSessions` below 13 the connection stands and
messages do not pass.
"""

from collections.abc import Iterator

from policy.lint.findings import Family, Finding, Level, PolicyText
from policy.lint.network_roles import network_sections, role_of

ID = "PAL105"
TITLE = "too few sessions between routers"
FAMILY = Family.CORRECTNESS
NEEDED = 13


def check(policy: PolicyText) -> Iterator[Finding]:
    for type_ in ("listener", "connector"):
        for section in network_sections(policy, type_):
            written = section.text("maxSessions")
            if role_of(section) == "inter-router" and written.isdecimal() and 0 < int(written) < NEEDED:
                text = f"two routers need {NEEDED} sessions on their connection, and maxSessions is {written}"
                yield section.finding(ID, Level.ERROR, text, "maxSessions")
