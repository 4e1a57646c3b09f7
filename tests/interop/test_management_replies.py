"""Where the router will send management replies in its own name (docs/spec/management.md §7.2, deviation)."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Certificates
from harness import RunningRouter, running_router
from proton import Message, Timeout
from proton.utils import BlockingConnection

OPERATORS = """
vhost {
    hostname: ops
    groups: {
        operators: {
            users: anonymous
            remoteHosts: *
            targets: $management, also-mine
            sources: mine
        }
    }
}
"""


@pytest.fixture(scope="module")
def router(
    certificates: Certificates, router_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningRouter]:
    with running_router(
        tmp_path_factory.mktemp("router"), certificates, python=router_python, extra=OPERATORS
    ) as running:
        yield running


def connected(router: RunningRouter, vhost: str) -> BlockingConnection:
    url = f"127.0.0.1:{router.ports['clear']}"
    return BlockingConnection(url, timeout=10, virtual_host=vhost, allowed_mechs="ANONYMOUS")


def ask(connection: BlockingConnection, reply_to: str) -> None:
    properties = {"operation": "GET-TYPES", "type": "org.amqp.management", "name": "self"}
    connection.create_sender("$management").send(Message(reply_to=reply_to, properties=properties))


@pytest.mark.parametrize(("reply_to", "vhost"), [("mine", "ops")])
def test_a_requester_gets_replies_where_it_receives(router: RunningRouter, reply_to: str, vhost: str) -> None:
    connection = connected(router, vhost)
    receiver = connection.create_receiver(reply_to, credit=5)
    ask(connection, reply_to)
    properties = receiver.receive(timeout=10).properties
    assert properties is not None
    assert properties["statusCode"] == 200
    connection.close()


def test_a_requester_cannot_have_the_router_write_to_others(router: RunningRouter) -> None:
    """Attack: `guests.x` is no target of the operators; a reply-to must not get a message there all the same."""
    victim = connected(router, "localhost")
    receiver = victim.create_receiver("guests.x", credit=5)
    attacker = connected(router, "ops")
    ask(attacker, "guests.x")
    event = router.wait_for_audit(stage="management")
    assert (event["reason"], event["address"], event["vhost"]) == ("forbidden_operation", "guests.x", "ops")
    with pytest.raises(Timeout):
        receiver.receive(timeout=0.2)
    attacker.close()
    victim.close()
