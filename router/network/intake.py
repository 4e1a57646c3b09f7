"""Control messages that have to wait: long ones, read in slices between which messages pass, and those after them.

The messages of one neighbour keep their order. While changes are being carried out, at most one update of addresses is
read for each neighbour. Messages that have arrived and have no effect yet are held, and charged to the neighbour that
sent them. Source: docs/spec/network.md §9.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from router.core.budget import RECORD_BYTES, Account
from router.core.work import Work
from router.network.envelope import Unreadable, read_content, read_content_in_steps

# A longer control message is read in steps. Only updates of many addresses are longer.
READ_AT_ONCE_BYTES: Final = 4096
# The memory of the values that one step has read.
STEP_BYTES: Final = 8192


@dataclass(frozen=True, slots=True)
class Arrived:
    """A control message for this router.

    tag    of the connection that it arrived on
    key    the internal address
    trace  nodes
    """

    tag: int
    payload: bytes
    key: str
    trace: tuple[str, ...]


class Listener(Protocol):
    """The receiver of the messages (router.network.host)."""

    @property
    def is_busy(self) -> bool:
        """True while changes are being carried out. The listener calls `Intake.go_on` when they are done."""
        ...

    def hear(self, arrived: Arrived, properties: Any, body: Any, /) -> None: ...
    def complain(self, tag: int, why: str, /) -> None: ...


class _Queue:
    """The waiting messages of one connection."""

    __slots__ = ("account", "is_being_read", "is_gone", "messages")

    def __init__(self, account: Account) -> None:
        self.account = account
        self.messages: deque[Arrived] = deque()
        self.is_being_read = False
        self.is_gone = False


class Intake:
    def __init__(self, listener: Listener, work: Work, max_values: int) -> None:
        """Starts without waiting messages.

        max_values  in the body of one message
        """
        self._listener = listener
        self._work = work
        self._max_values = max_values
        self._queues: dict[int, _Queue] = {}  # by tag

    def take(self, arrived: Arrived, account: Account) -> None:
        """Passes a message on now if it is short and need not wait, else queues it.

        It waits if an earlier message of the connection waits. An update of addresses also waits while changes are
        being carried out. A short HELLO never waits.

        account  of the neighbour
        Errors   Unreadable
        """
        queue = self._queues.get(arrived.tag)
        waits = queue is not None or (arrived.key.endswith(".ma") and self._listener.is_busy)
        if len(arrived.payload) <= READ_AT_ONCE_BYTES and (not waits or arrived.key == "Lqdhello"):
            self._listener.hear(arrived, *read_content(arrived.payload))
            return
        if queue is None:
            queue = self._queues[arrived.tag] = _Queue(account)
        queue.messages.append(arrived)
        account.charge(_held(arrived))
        self._read(arrived.tag, queue)

    def disconnected(self, tag: int) -> None:
        """Drops everything that arrived on a connection."""
        queue = self._queues.pop(tag, None)
        if queue is not None:
            queue.is_gone = True
            queue.account.charge(-sum(map(_held, queue.messages)))
            queue.messages.clear()

    def go_on(self) -> None:
        for tag, queue in list(self._queues.items()):
            self._read(tag, queue)

    def _read(self, tag: int, queue: _Queue) -> None:
        if not queue.is_being_read and not self._listener.is_busy:
            queue.is_being_read = True
            self._work.later(self._reading(tag, queue))

    def _reading(self, tag: int, queue: _Queue) -> Iterator[None]:
        """Reads one message, and further ones while no changes are being carried out.

        Attack: updates that are sent faster than they can be carried out. They wait at the cost of their sender, and
        between two of them one update of each other neighbour is read.
        """
        try:
            while queue.messages:
                yield from self._reading_one(queue, queue.messages.popleft())
                yield
                if self._listener.is_busy:
                    return
        finally:
            queue.is_being_read = False
            if not queue.messages and self._queues.get(tag) is queue:
                del self._queues[tag]

    def _reading_one(self, queue: _Queue, arrived: Arrived) -> Iterator[None]:
        held = _held(arrived)
        steps = read_content_in_steps(arrived.payload, self._max_values)
        try:
            while not queue.is_gone:
                next(steps)
                queue.account.charge(STEP_BYTES)
                held += STEP_BYTES
                yield
        except StopIteration as end:
            self._listener.hear(arrived, *end.value)
        except Unreadable as error:
            self._listener.complain(arrived.tag, str(error))
        finally:
            queue.account.charge(-held)


def _held(arrived: Arrived) -> int:
    return len(arrived.payload) + RECORD_BYTES
