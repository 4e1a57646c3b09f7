"""A listener for routers lets peers in that prove no name.

Whoever joins the network is told of every address, and may say that the consumers of all of them are his. On
`inter-router` listeners no vhost policy stands behind the login. Write `authenticatePeer: yes` and `saslMechanisms`
without ANONYMOUS; best is EXTERNAL, with a certificate for each router. This concerns listeners on 127.0.0.1 as well:
every user of the machine reaches them.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText
from policy.lint.network_roles import demands_login, network_sections

ID = "PAL101"
TITLE = "routers need not authenticate"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in network_sections(policy, "listener"):
        if demands_login(section):
            continue
        if not section.is_on("authenticatePeer"):
            key, text = "authenticatePeer", "peers that leave SASL out join the network: authenticatePeer is off"
        elif not section.mechanisms:
            key, text = "saslMechanisms", "peers join the network by ANONYMOUS: there are no saslMechanisms"
        else:
            key, text = "saslMechanisms", "peers join the network by ANONYMOUS"
        instead = "authenticatePeer: yes, saslMechanisms: EXTERNAL"
        yield section.finding(ID, Level.ERROR, text, key, About(instead=instead))
