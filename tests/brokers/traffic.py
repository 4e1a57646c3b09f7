"""Senders that go on whatever happens to the broker, and remember what they were told."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from proton import ConnectionException, Delivery, LinkException, Message, ProtonException, Timeout
from proton.utils import BlockingConnection, BlockingSender, SendException

PATIENCE_S = 30.0
AGAIN_S = 0.05


@dataclass(slots=True)
class Told:
    """What the senders of one address were told.

    accepted  bodies; times: when each was, monotonic
    """

    accepted: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def longest_wait_s(self, since: float) -> float:
        """The longest time without an outcome `accepted`, from `since` on."""
        after = [since, *(when for when in sorted(self.times) if when > since)]
        return max((later - earlier for earlier, later in pairwise(after)), default=float("inf"))


@contextlib.contextmanager
def sending(url: str, address: str, told: Told, *, threads: int = 3) -> Iterator[None]:
    """Durable messages, one after the other in each thread, until the end of the body."""
    over = threading.Event()
    running = [
        threading.Thread(target=_send, args=(url, address, f"{address}-{number}", told, over), daemon=True)
        for number in range(threads)
    ]
    for each in running:
        each.start()
    try:
        yield
    finally:
        over.set()
        for each in running:
            each.join(PATIENCE_S)
    assert told.wrong == []


def _send(url: str, address: str, name: str, told: Told, over: threading.Event) -> None:
    connection = BlockingConnection(url, timeout=PATIENCE_S)
    sender: BlockingSender | None = None
    number = attached = 0
    try:
        while not over.is_set():
            try:
                if sender is None:
                    # A name is in use until the client has answered the Detach, which proton does late.
                    attached += 1
                    sender = connection.create_sender(address, name=f"{name}-{attached}")
                number += 1
                body = f"{name}/{number}"
                delivery = sender.send(Message(body=body, durable=True), timeout=PATIENCE_S)
                if delivery.remote_state != Delivery.ACCEPTED:
                    continue  # modified, which proton does not raise
                told.accepted.append(body)
                told.times.append(time.monotonic())
            except SendException:
                time.sleep(AGAIN_S)  # released or modified: another follows
            except LinkException:
                sender = None  # a routed link ends with its broker
                time.sleep(AGAIN_S)
    except (ConnectionException, Timeout, ProtonException) as error:
        told.wrong.append(f"{name}: {type(error).__name__} {error}")
    finally:
        with contextlib.suppress(ProtonException):
            connection.close()


def taken(url: str, address: str, wanted: set[str]) -> set[str]:
    """Receives from the address until all that is wanted has come, or nothing comes for a while."""
    connection = BlockingConnection(url, timeout=PATIENCE_S)
    receiver = connection.create_receiver(address, credit=100)
    got: set[str] = set()
    with contextlib.suppress(Timeout):
        while not wanted <= got:
            got.add(str(receiver.receive(5.0).body))
            receiver.accept()
    connection.close()
    return got


def wait_until(claim: Callable[[], bool], what: str, limit_s: float = 120.0) -> None:
    deadline = time.monotonic() + limit_s
    while not claim():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
