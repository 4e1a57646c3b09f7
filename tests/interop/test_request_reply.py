"""Request and reply between clients of different groups, each with the least of rights: proton and rhea."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from harness import USERS, RunningRouter
from proton import Message, SSLDomain
from proton.handlers import MessagingHandler
from proton.reactor import Container
from proton.utils import BlockingConnection, SyncRequestResponse

HERE = Path(__file__).parent
COUNT = 20
INSTALL = "rhea is not installed: npm ci --prefix tests/interop (`make test` does it)"


def tls(router: RunningRouter) -> SSLDomain:
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(router.certificates.ca))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER)
    return domain


class Service(MessagingHandler):
    """Answers requests: through one sender without a target, or through one for each reply-to."""

    def __init__(self, router: RunningRouter, address: str, *, is_anonymous: bool) -> None:
        super().__init__()
        self.router, self.address, self.is_anonymous = router, address, is_anonymous
        self.senders: dict[str | None, Any] = {}
        self.errors: list[str] = []

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.connection = event.container.connect(
            f"amqps://localhost:{self.router.ports['password']}", ssl_domain=tls(self.router), reconnect=False,
            user="service", password=USERS["service"], allowed_mechs="PLAIN",
        )  # fmt: skip
        event.container.create_receiver(self.connection, self.address)

    def on_message(self, event: Any) -> None:
        request = event.message
        if request.body == "stop":
            self.connection.close()
            return
        key = None if self.is_anonymous else request.reply_to
        if key not in self.senders:
            self.senders[key] = self.container.create_sender(self.connection, key)
        reply = Message(address=request.reply_to, correlation_id=request.correlation_id, body=f"{request.body}!")
        self.senders[key].send(reply)

    def on_link_error(self, event: Any) -> None:
        self.errors.append(str(event.link.remote_condition))

    def on_rejected(self, event: Any) -> None:
        self.errors.append(str(event.delivery.remote.condition))


@contextmanager
def serving(router: RunningRouter, address: str, *, is_anonymous: bool) -> Iterator[Service]:
    service = Service(router, address, is_anonymous=is_anonymous)
    thread = Thread(target=Container(service).run)
    thread.start()
    yield service
    asker = connected(router)
    asker.create_sender(address).send(Message(body="stop"))
    asker.close()
    thread.join(20)
    assert not thread.is_alive()


def connected(router: RunningRouter) -> BlockingConnection:
    return BlockingConnection(
        f"amqps://localhost:{router.ports['password']}", timeout=10, ssl_domain=tls(router),
        user="asker", password=USERS["asker"], allowed_mechs="PLAIN",
    )  # fmt: skip


@pytest.mark.parametrize("is_anonymous", [False, True])
def test_protons_request_and_response(is_anonymous: bool, router: RunningRouter) -> None:
    with serving(router, "requests.proton", is_anonymous=is_anonymous) as service:
        connection = connected(router)
        client = SyncRequestResponse(connection, "requests.proton")
        assert client.reply_to.startswith("amqp:/_topo/0/interop/temp.")
        answers = [client.call(Message(body=f"{number}")).body for number in range(COUNT)]
        assert answers == [f"{number}!" for number in range(COUNT)]
        connection.close()
    assert service.errors == []


@pytest.mark.parametrize("is_anonymous", [False, True])
def test_rheas_request_and_response(
    is_anonymous: bool, router: RunningRouter, require_tool: Callable[[str, str], Path]
) -> None:
    node = require_tool("node", "nodejs")
    if not (HERE / "node_modules" / "rhea").is_dir():
        pytest.fail(INSTALL)
    task = {
        "port": router.ports["password"],
        "ca": str(router.certificates.ca),
        "hostname": "localhost",
        "asker": {"user": "asker", "password": USERS["asker"]},
        "service": {"user": "service", "password": USERS["service"]},
        "address": "requests.rhea",
        "count": COUNT,
        "is_anonymous": is_anonymous,
    }
    command = [node, HERE / "rhea_replies.js"]
    ran = subprocess.run(command, input=json.dumps(task), capture_output=True, text=True, timeout=40, check=False)
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert (result["ended"], result["errors"]) == ("done", [])
    assert result["replies"] == [f"question {number}!" for number in range(COUNT)]
