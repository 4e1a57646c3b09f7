"""A well-behaved client that exchanges messages all the time, beside whatever a test does to the router."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness import RunningRouter, eventually
from proton import Delivery, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

# Often enough to notice a router that is held up, seldom enough not to be the load itself.
PERIOD_S = 0.005


class Complainer(MessagingHandler):
    """A client that notes what it is refused. `errors` is whatever went wrong, in words; empty when all is well."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.errors: list[str] = []

    def on_transport_error(self, event: Any) -> None:
        self.errors.append(f"transport: {event.transport.condition}")

    def on_connection_error(self, event: Any) -> None:
        self.errors.append(f"connection: {event.connection.remote_condition}")

    def on_link_error(self, event: Any) -> None:
        self.errors.append(f"link: {event.link.remote_condition}")


class Companion(Complainer):
    """Sends itself one message after another through the router.

    accepted       messages received back and accepted so far
    longest_gap_s  the longest that one message took, or that nothing happened
    """

    def __init__(self, url: str, address: str) -> None:
        super().__init__()
        self.url, self.address = url, address
        self.accepted = 0
        self.longest_gap_s = 0.0
        self.is_stopping = self.has_begun = False
        self.last_at = time.monotonic()

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self.url, reconnect=False, allowed_mechs="ANONYMOUS", heartbeat=1)
        event.container.create_receiver(connection, self.address)
        self.sender = event.container.create_sender(connection, self.address)
        self.container = event.container

    def on_sendable(self, event: Any) -> None:
        if self.accepted == 0 and not self.has_begun:
            self.has_begun = True
            self.send_next()

    def send_next(self) -> None:
        self.sender.send(Message(id=self.accepted, body="well behaved"))

    def on_message(self, event: Any) -> None:
        if event.message.id != self.accepted:
            self.errors.append(f"expected message {self.accepted}, got {event.message.id}")

    def on_settled(self, event: Any) -> None:
        if event.delivery.remote_state != Delivery.ACCEPTED:
            self.errors.append(f"message {self.accepted} was {event.delivery.remote_state}")
        now = time.monotonic()
        self.longest_gap_s = max(self.longest_gap_s, now - self.last_at)
        self.last_at = now
        self.accepted += 1
        if self.is_stopping:
            event.connection.close()
        else:
            self.container.schedule(PERIOD_S, self)

    def on_timer_task(self, event: Any) -> None:
        self.send_next()

    def on_disconnected(self, event: Any) -> None:
        if not self.is_stopping:
            self.errors.append("disconnected")

    def assert_undisturbed(self, at_most_s: float = 10.0) -> None:
        """It still gets messages through, twenty more from now on, and nothing ever went wrong."""
        so_far = self.accepted
        eventually(lambda: self.errors or self.accepted >= so_far + 20, at_most_s)
        assert self.errors == []
        assert self.accepted >= so_far + 20, f"{self.accepted - so_far} messages in {at_most_s:g} s"


@contextmanager
def companion_of(router: RunningRouter) -> Iterator[Companion]:
    """A companion that has begun, until the end of the body; fails when it does not end by itself."""
    companion = Companion(f"amqp://127.0.0.1:{router.ports['clear']}", "guests.companion")
    thread = threading.Thread(target=Container(companion).run, daemon=True)
    thread.start()
    try:
        companion.assert_undisturbed()
        yield companion
    finally:
        companion.is_stopping = True
        thread.join(20)
    assert not thread.is_alive(), "the companion's messages stopped coming back"
    assert companion.errors == []
