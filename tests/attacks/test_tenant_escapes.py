"""Attack: a tenant writes an address that means another one when it is read again: `orders/x:/orders/y:/$management`.

The tenant's prefix was put before a text that was parsed again when it was bound, and then left the tenant's space.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_process import Daemon, audit_events, eventually, start
from process_log import PATIENCE_S
from proton import Message
from proton.reactor import AtMostOnce
from proton.utils import BlockingConnection, LinkDetached, SendException

GROUP = {"users": "*", "remoteHosts": "*", "sources": "orders/*, public/*", "targets": "orders/*, public/*, t1/*"}
ESCAPES = [
    "orders/x:/orders/y:/$management",
    "public/x:/public/y:/t2/orders",
    "public/x://host/public/y://host/t2/orders",
    "public/x:/public/y:/_local/$management",
]
NESTED = "t1/inner"
BEYOND = "public/x:/public/y:/t2/orders/new"


@pytest.fixture
def router(tmp_path: Path) -> Iterator[Daemon]:
    (tmp_path / "policy").mkdir()
    vhosts = [
        ["vhost", {"hostname": name, "groups": {"g": {**GROUP, "allowAnonymousSender": True}}}]
        for name in ("t1", "t2", NESTED)
    ]
    (tmp_path / "policy" / "rules.json").write_text(json.dumps(vhosts))
    made = start(
        tmp_path,
        f"router {{\n id: QDR\n auditDir: {tmp_path / 'audit'}\n}}\n"
        f"policy {{\n enableVhostPolicy: yes\n policyDir: {tmp_path / 'policy'}\n}}\n"
        "listener {\n name: tenants\n host: 127.0.0.1\n port: 0\n authenticatePeer: no\n"
        " saslMechanisms: ANONYMOUS\n multiTenant: yes\n}\n",
    )
    yield made
    made.end()


def connected(router: Daemon, tenant: str) -> BlockingConnection:
    return BlockingConnection(
        f"127.0.0.1:{router.port('tenants')}", timeout=PATIENCE_S, virtual_host=tenant, allowed_mechs="ANONYMOUS"
    )


def refused(router: Daemon, stage: str, count: int) -> list[tuple[str, str, str]]:
    """What the audit log says of the refusals of a stage, once there are so many."""

    def found() -> list[tuple[str, str, str]]:
        events = [each for each in audit_events(router.folder / "audit") if each["stage"] == stage]
        return [(each["reason"], each["address"], each["vhost"]) for each in events]

    eventually(lambda: len(found()) >= count)
    return found()


@pytest.mark.parametrize("address", ESCAPES)
def test_no_link_leaves_the_tenant(router: Daemon, address: str) -> None:
    clerk = connected(router, "t1")
    with pytest.raises(LinkDetached) as detached:
        clerk.create_sender(address)
    assert detached.value.condition == "amqp:invalid-field"
    with pytest.raises(LinkDetached):
        clerk.create_receiver(address)
    clerk.close()
    assert refused(router, "attach", 2) == [("unclear_address", address, "t1")] * 2
    line = rf"POLICY \(info\) \[C\d+\] DENY AMQP Attach address '{re.escape(address)}'"
    assert eventually(lambda: len(router.log(line)) == 2)


@pytest.mark.parametrize("address", ESCAPES)
def test_no_message_leaves_the_tenant(router: Daemon, address: str) -> None:
    """What the neighbour receives is what its own tenant sent."""
    neighbour = connected(router, "t2")
    receiver = neighbour.create_receiver("orders/new", credit=10)
    clerk = connected(router, "t1")
    sender = clerk.create_sender(None)
    for to in (address, BEYOND):
        with pytest.raises(SendException):
            sender.send(Message(address=to, body="stolen"))
    neighbour.create_sender("orders/new", options=AtMostOnce()).send(Message(body="ours"))
    assert receiver.receive(PATIENCE_S).body == "ours"
    neighbour.close()
    clerk.close()
    assert refused(router, "transfer", 2) == [("unclear_address", to, "t1") for to in (address, BEYOND)]


def test_no_tenant_is_within_another(router: Daemon) -> None:
    """`inner/orders/new` of one would be `orders/new` of the other."""
    inner = connected(router, NESTED)
    with pytest.raises(LinkDetached) as detached:
        inner.create_receiver("orders/new")
    assert detached.value.condition == "amqp:invalid-field"
    with pytest.raises(SendException):
        inner.create_sender(None).send(Message(address="orders/new", body="lost"))
    inner.close()
    assert refused(router, "attach", 1) == [("unclear_address", "orders/new", NESTED)]
    assert refused(router, "transfer", 1) == [("unclear_address", "orders/new", NESTED)]
