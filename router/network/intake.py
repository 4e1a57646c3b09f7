"""Control messages that have to wait: long ones, read in slices between which messages pass, and what comes after them.

Those of one neighbour keep their order. While changes are being carried out each neighbour has one update of addresses
read at most: what has come and has no effect yet is held, and charged to the neighbour that sent it.
Source: docs/spec/network.md §9.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from router.core.budget import RECORD_BYTES, Account
from router.core.work import Work
from router.network.envelope import Unreadable, read_content, read_content_in_steps

# A longer control message is read in steps. All but updates of many addresses are shorter.
READ_AT_ONCE_BYTES: Final = 4096
# What the values take that one step has read.
STEP_BYTES: Final = 8192


@dataclass(frozen=True, slots=True)
class Arrived:
    """A control message for this router.

    tag    of the connection that it came by
    key    the internal address
    trace  nodes
    """

    tag: int
    payload: bytes
    key: str
    trace: tuple[str, ...]


class Listener(Protocol):
    """Who the messages are for (router.network.host)."""

    @property
    def is_busy(self) -> bool:
        """Are changes being carried out? `Intake.go_on` says when they are done."""
        ...

    def hear(self, arrived: Arrived, properties: Any, body: Any, /) -> None: ...
    def complain(self, tag: int, why: str, /) -> None: ...


class _Queue:
    """What waits of one connection."""

    __slots__ = ("account", "is_being_read", "is_gone", "messages")

    def __init__(self, account: Account) -> None:
        self.account = account
        self.messages: deque[Arrived] = deque()
        self.is_being_read = False
        self.is_gone = False


class Intake:
    def __init__(self, listener: Listener, work: Work, max_values: int) -> None:
        """max_values  in the body of one message"""
        self._listener = listener
        self._work = work
        self._max_values = max_values
        self._queues: dict[int, _Queue] = {}  # by tag

    def take(self, arrived: Arrived, account: Account) -> None:
        """Hear a message now if it is short, none waits before it, and it is no update of addresses while others are
        being carried out. A HELLO waits for nothing.

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
        """Nothing that came by a connection counts any more."""
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
        """One message, and others as long as nothing is being carried out.

        Attack: updates that are sent faster than they can be carried out. They pile up with their sender, who pays, and
        between two of them each other neighbour has one read.
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
