"""Extensions of policy through the daemon, with clients of python-qpid-proton: rates, groups valid for a time."""

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from harness import RunningRouter, running_router
from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import AtLeastOnce, AtMostOnce, Container
from proton.utils import BlockingConnection, ConnectionClosed

RATE = 200
COUNT = 500
TIMEOUT_S = 20
VHOSTS = f"""
vhost {{
    hostname: slow
    maxMessageRate: {RATE}
    groups: {{
        all: {{
            users: anonymous
            remoteHosts: *
            targets: rates.*
            sources: rates.*
        }}
    }}
}}
vhost {{
    hostname: open
    groups: {{
        all: {{
            users: anonymous
            remoteHosts: *
            targets: *
            sources: *
            allowDynamicSource: true
        }}
    }}
}}
vhost {{
    hostname: over
    groups: {{
        temps: {{
            users: anonymous
            remoteHosts: *
            validFrom: 2020-01-01T00:00:00+01:00
            validUntil: 2021-01-01T00:00:00+01:00
        }}
        all: {{
            users: *
            remoteHosts: *
        }}
    }}
}}
"""


@pytest.fixture
def router(certificates: Certificates, router_python: Path, tmp_path: Path) -> Iterator[RunningRouter]:
    with running_router(tmp_path, certificates, python=router_python, extra=VHOSTS) as running:
        yield running


class Exchange(MessagingHandler):
    """Sends COUNT messages over two links of one connection as fast as there is credit; another connection receives."""

    def __init__(self, router: RunningRouter, *, is_settled: bool) -> None:
        super().__init__()
        self.url = f"amqp://127.0.0.1:{router.ports['clear']}"
        self.options = AtMostOnce() if is_settled else AtLeastOnce()
        self.sent = self.accepted = 0
        self.received: list[int] = []
        self.began = self.took_s = 0.0
        self.held_back = 0
        self.is_timed_out = False

    def on_start(self, event: Any) -> None:
        container = event.container
        self.timer = container.schedule(TIMEOUT_S, self)
        terms = {"allowed_mechs": "ANONYMOUS", "reconnect": False}
        self.sending = container.connect(self.url, virtual_host="slow", **terms)
        self.receiving = container.connect(self.url, virtual_host="open", **terms)
        container.create_receiver(self.receiving, "rates.a")
        for name in ("one", "other"):
            container.create_sender(self.sending, "rates.a", name=name, options=self.options)
        self.replies = container.create_receiver(self.receiving, None, dynamic=True)
        self.requests = container.create_sender(self.receiving, "$management")

    def on_sendable(self, event: Any) -> None:
        if event.link == self.requests:
            return
        self.began = self.began or time.monotonic()
        while event.sender.credit and self.sent < COUNT:
            event.sender.send(Message(body=self.sent))
            self.sent += 1

    def on_accepted(self, event: Any) -> None:
        if event.link != self.requests:
            self.accepted += 1

    def on_message(self, event: Any) -> None:
        if event.link == self.replies:
            body = event.message.body
            at = body["attributeNames"].index("heldBackCount")
            self.held_back = max(row[at] for row in body["results"])
            self._end()
            return
        self.received.append(event.message.body)
        if len(self.received) == COUNT:
            self.took_s = time.monotonic() - self.began
            self._ask()

    def _ask(self) -> None:
        properties = {"operation": "QUERY", "type": "org.amqp.management", "name": "self"}
        properties["entityType"] = "org.apache.qpid.dispatch.connection"
        reply_to = self.replies.remote_source.address
        self.requests.send(Message(reply_to=reply_to, correlation_id=1, properties=properties, body={}))

    def _end(self) -> None:
        self.timer.cancel()
        self.sending.close()
        self.receiving.close()

    def on_timer_task(self, event: Any) -> None:
        self.is_timed_out = True
        event.container.stop()


@pytest.mark.parametrize("is_settled", [False, True])
def test_a_real_client_is_held_back_and_loses_nothing(router: RunningRouter, is_settled: bool) -> None:
    exchange = Exchange(router, is_settled=is_settled)
    Container(exchange).run()
    assert not exchange.is_timed_out, f"{len(exchange.received)} of {COUNT} received"
    assert sorted(exchange.received) == list(range(COUNT))
    assert exchange.took_s >= (COUNT - RATE) / RATE - 0.01
    assert exchange.took_s <= 3 * COUNT / RATE
    assert exchange.held_back >= 1


def test_a_group_whose_time_is_over_is_refused_and_recorded(router: RunningRouter) -> None:
    url = f"amqp://127.0.0.1:{router.ports['clear']}"
    with pytest.raises(ConnectionClosed, match="disallowed by local policy"):
        BlockingConnection(url, timeout=TIMEOUT_S, virtual_host="over", allowed_mechs="ANONYMOUS")
    event = router.wait_for_audit(reason="group_not_valid")
    assert (event["vhost"], event["group"], event["stage"]) == ("over", "temps", "open")
    assert event["rule"]["item"] == "validUntil: 2020-12-31T23:00:00Z"
    assert abs(time.time() - datetime.fromisoformat(event["time"]).timestamp()) < TIMEOUT_S
