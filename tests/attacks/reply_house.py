"""A router with a service that may reply, its client alice, and other users who want to have the answer.

The rights are minimal: alice may send requests and have a dynamic source, the service receives requests and may reply.
bob may receive from everything. mallory may send requests and may not write to `secret`.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from daemon_process import Daemon, audit_events, eventually, start, write_users
from proton import Condition, Delivery, Message, Sender, Timeout
from proton.reactor import AtMostOnce
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender, LinkDetached

TIMEOUT_S = 10
PASSWORD = "long enough"
ROUTER = "replies"
_names = (f"link-{number}" for number in count())  # no two links of a connection have one name
GROUPS: Mapping[str, Mapping[str, Any]] = {
    "askers": {
        "users": "alice",
        "targets": "requests, alice.replies",
        "sources": "alice.replies",
        "allowDynamicSource": True,
        "allowAnonymousSender": True,
    },
    "services": {
        "users": "service",
        "sources": "requests",
        "allowAnonymousSender": True,
        "allowReplies": True,
        "replyWindow": 300,
    },
    "readers": {"users": "bob", "sources": "*"},
    "guests": {"users": "mallory", "targets": "requests", "allowDynamicSource": True},
    "owners": {"users": "owner", "sources": "secret"},
}
CONFIGURATION = f"""
router {{
    id: {ROUTER}
    saslConfigDir: SASL
    auditDir: AUDIT
}}
policy {{
    enableVhostPolicy: yes
    policyDir: POLICY
    EXTRA
}}
listener {{
    name: plain
    host: 127.0.0.1
    port: 0
    authenticatePeer: yes
    saslMechanisms: PLAIN
}}
"""


class House:
    """A started router, and connections to it by the names of users."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self._open: list[BlockingConnection] = []

    def connect(self, user: str) -> BlockingConnection:
        url = f"amqp://127.0.0.1:{self.daemon.port()}"
        made = BlockingConnection(
            url, timeout=TIMEOUT_S, user=user, password=PASSWORD, allowed_mechs="PLAIN", allow_insecure_mechs=True
        )
        self._open.append(made)
        return made

    def close(self) -> None:
        for connection in self._open:
            connection.close()

    def event(self, **members: Any) -> dict[str, Any]:
        """The audit event with these members, which is waited for."""

        def find() -> dict[str, Any] | None:
            events = audit_events(self.daemon.folder / "audit")
            return next((each for each in events if all(each[key] == value for key, value in members.items())), None)

        found: dict[str, Any] | None = eventually(find)
        assert found is not None, members
        return found


@contextmanager
def house(folder: Path, groups: Mapping[str, Mapping[str, Any]] | None = None, extra: str = "") -> Iterator[House]:
    """groups  settings in place of those of GROUPS, by the group's name. extra  lines of the `policy` section"""
    merged = {name: {"remoteHosts": "*", **GROUPS[name], **(groups or {}).get(name, {})} for name in GROUPS}
    users = [str(settings["users"]) for settings in merged.values()]
    sasl = write_users(folder, dict.fromkeys(users, PASSWORD), "PLAIN")
    for name in ("policy", "audit"):
        (folder / name).mkdir()
    vhost = ["vhost", {"hostname": "$default", "groups": merged}]
    (folder / "policy" / "policy.json").write_text(json.dumps([vhost]))
    text = CONFIGURATION.replace("SASL", str(sasl)).replace("AUDIT", str(folder / "audit"))
    text = text.replace("POLICY", str(folder / "policy")).replace("EXTRA", extra)
    daemon = start(folder, text)
    try:
        daemon.wait_for_log(r"SERVER \(notice\) Operational")
        made = House(daemon)
        yield made
        made.close()
        assert daemon.log(r"Unexpected|Traceback") == []
    finally:
        daemon.end()


def dynamic_receiver(connection: BlockingConnection) -> tuple[BlockingReceiver, str]:
    receiver = connection.create_receiver(None, dynamic=True, credit=10)
    return receiver, str(receiver.link.remote_source.address)


def send(connection: BlockingConnection, address: str | None, message: Message) -> None:
    """Send it presettled, and wait until it is on the wire and not for who receives it."""
    put(connection, connection.create_sender(address, name=next(_names), options=AtMostOnce()), message)


def put(connection: BlockingConnection, sender: BlockingSender, message: Message) -> None:
    """Send it, and wait until it is on the wire and not for who receives it."""
    link = sender.link
    assert isinstance(link, Sender)
    connection.wait(lambda: link.credit > 0)
    link.send(message)
    assert connection.conn is not None
    transport = connection.conn.transport
    assert transport is not None
    connection.wait(lambda: link.queued == 0 and transport.pending() <= 0)


def ask(asker: BlockingConnection, service: BlockingReceiver, reply_to: str) -> None:
    """One request, which the service has received when this returns."""
    send(asker, "requests", Message(body="question", reply_to=reply_to))
    assert service.receive(TIMEOUT_S).reply_to == reply_to


def refusal(attach: Callable[[], object]) -> Condition:
    """The error with which a link is refused."""
    with pytest.raises(LinkDetached) as caught:
        attach()
    condition = caught.value.link.remote_condition
    assert condition is not None
    return condition


def rejection(connection: BlockingConnection, address: str, patience_s: float = TIMEOUT_S) -> Condition | None:
    """Send to it on an anonymous link: the error with which the message is rejected; None where nobody rejects it."""
    delivery = connection.create_sender(None, name=next(_names)).link.send(Message(body="answer", address=address))
    assert isinstance(delivery, Delivery)
    with suppress(Timeout):
        connection.wait(lambda: delivery.settled, timeout=patience_s)
    condition: Condition | None = delivery.remote.condition if delivery.remote_state == Delivery.REJECTED else None
    return condition


def arrives(connection: BlockingConnection, address: str, receiver: BlockingReceiver) -> bool:
    """Send to it on an anonymous link; is it received?"""
    send(connection, None, Message(body="answer", address=address))
    return bool(receiver.receive(TIMEOUT_S).body == "answer")
