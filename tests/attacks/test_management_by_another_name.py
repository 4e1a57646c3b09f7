"""Attack: policy has `denyTargets: $management`, and a client reaches the agent by another of its names."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_process import LISTENER, Daemon, audit_events, eventually, start
from process_log import PATIENCE_S
from proton import Message
from proton.utils import BlockingConnection, LinkDetached, SendException

GROUP = {
    **{"users": "*", "remoteHosts": "*", "sources": "*", "targets": "*"},
    **{"allowAnonymousSender": True, "allowDynamicSource": True},
}
PLAIN = [
    "$management",
    "_local/$management",
    "_local/$_management_internal",
    "_topo/0/QDR/$management",
    "_topo/all/QDR/$management",
    "_topo/0/QDR/$_management_internal",
    "_topo/all/QDR/$_management_internal",
    "_edge/QDR/$management",
    "_edge/QDR/$_management_internal",
]
SPELLINGS = [f"{before}{name}{after}" for name in PLAIN for before, after in (("", ""), ("amqp:/", ""), ("/", "/"))]
SPELLINGS += ["amqp://elsewhere:5672/$management", "x:/$management", "$management.", "//host/_local/$management"]


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder: Path = tmp_path_factory.mktemp("router")
    (folder / "policy").mkdir()
    denied = {"denied": "$management", "denied-local": "_local/$management", "denied-topo": "_topo/0/QDR/$management"}
    vhosts = [
        ["vhost", {"hostname": name, "groups": {"g": {**GROUP, "denyTargets": item}}}] for name, item in denied.items()
    ]
    (folder / "policy" / "rules.json").write_text(json.dumps(vhosts))
    made = start(
        folder,
        f"router {{\n id: QDR\n auditDir: {folder / 'audit'}\n}}\n"
        f"policy {{\n enableVhostPolicy: yes\n policyDir: {folder / 'policy'}\n}}\n{LISTENER}",
    )
    yield made
    made.end()


def connected(router: Daemon, vhost: str) -> BlockingConnection:
    url = f"127.0.0.1:{router.port()}"
    return BlockingConnection(url, timeout=PATIENCE_S, virtual_host=vhost, allowed_mechs="ANONYMOUS")


@pytest.mark.parametrize("vhost", ["denied", "denied-local", "denied-topo"])
def test_management_is_denied_by_every_name(router: Daemon, vhost: str) -> None:
    client = connected(router, vhost)
    reached = []
    for address in SPELLINGS:
        try:
            client.create_sender(address)
            reached.append(address)
        except LinkDetached:
            pass
    assert reached == []
    client.close()


def test_no_message_reaches_the_agent(router: Daemon) -> None:
    """On an anonymous link, with a reply-to that the client may have."""
    client = connected(router, "denied")
    replies = client.create_receiver(None, dynamic=True, credit=len(SPELLINGS))
    sender = client.create_sender(None)
    query = {"operation": "GET-TYPES", "type": "org.amqp.management", "name": "self"}
    for address in SPELLINGS:
        with pytest.raises(SendException):
            sender.send(Message(address=address, reply_to=replies.remote_source.address, properties=query, body={}))
    assert replies.fetcher is not None
    assert replies.fetcher.has_message == 0
    client.close()


def test_every_refusal_names_the_denial(router: Daemon) -> None:
    client = connected(router, "denied")
    for address in PLAIN:
        with pytest.raises(LinkDetached):
            client.create_sender(address)
    client.close()

    def found() -> set[str]:
        events = audit_events(router.folder / "audit")
        rules = [each for each in events if each["rule"] and each["rule"]["item"] == "denyTargets: $management"]
        return {each["address"] for each in rules if each["stage"] == "attach"}

    assert eventually(lambda: set(PLAIN) <= found())
