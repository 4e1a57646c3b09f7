"""Clients can log in at a listener for brokers, where auto links or link routes lead.

A listener for clients of the same configuration takes the same credentials. A client that connects to the other port
and says the broker's container id gets the messages that others send to the broker, whatever its vhost allows. Give
brokers an authority or authenticator of their own, or let a connector make the connection.
"""

from collections.abc import Iterator

from policy.lint.container_ways import CONTAINER_ROLE, container_listeners
from policy.lint.findings import About, Family, Finding, Level, PolicyText
from policy.lint.network_roles import demands_login
from policy.lint.shared_with_clients import client_listener_like

ID = "PAL131"
TITLE = "clients may be the broker"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for listener, section in container_listeners(policy):
        if not demands_login(listener):
            continue
        other = client_listener_like(policy, listener, besides=(CONTAINER_ROLE,))
        if other is not None:
            text = (
                f"clients of the listener in line {other.source.line} can log in here, "
                f"and be the container of the {section.title} in line {section.source.line}"
            )
            yield listener.finding(ID, Level.ERROR, text, "role", About(instead="authenticators: BROKERS"))
