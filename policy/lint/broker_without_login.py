"""A listener for brokers lets peers in that prove no name, and auto links or link routes lead there.

A peer chooses its container id itself. Whoever connects there and says the broker's gets the messages that clients send
to it, and gives receivers what it likes; vhost policy does not judge the links that the router attaches. Write
`authenticatePeer: yes` and `saslMechanisms` without ANONYMOUS; best is EXTERNAL, with a certificate for each broker. Or
let a connector make the connection. This concerns listeners on 127.0.0.1 as well: every user of the machine reaches
them.
"""

from collections.abc import Iterator

from policy.lint.container_ways import container_listeners
from policy.lint.findings import About, Family, Finding, Level, PolicyText
from policy.lint.network_roles import demands_login

ID = "PAL130"
TITLE = "anybody may be the broker"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for listener, section in container_listeners(policy):
        if not demands_login(listener):
            text = f"whoever connects may be the container of the {section.title} in line {section.source.line}"
            instead = "authenticatePeer: yes, saslMechanisms: EXTERNAL"
            yield listener.finding(ID, Level.ERROR, text, "role", About(instead=instead))
