"""Requests to a service of the interior, and their answers: one link for requests, one for answers.

Each request uses one credit, has its own name and a deadline. A message from the interior with another name is ignored.
Source: docs/spec/network.md §14.6, §14.7.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from router.edge.effects import SendMessage
from router.edge.messages import Message


def correlation_ids(started_at: int) -> Iterator[str]:
    """Iterates over names: `client-`, the router's start time as 16 hexadecimal digits, and a counter as 8."""
    count = 0
    while True:
        yield f"client-{started_at & (2**64 - 1):016x}{count & 0xFFFFFFFF:08x}"
        count += 1


class Asking:
    """Requests, identified by tokens of their owner. Each is in `_waiting` or `_sent` until it is answered or given up.

    is_ready  True if both links are attached
    """

    __slots__ = ("_answer_in_s", "_correlation_ids", "_limit", "_link", "_reply_to", "_sent", "_waiting", "credit")

    def __init__(self, correlation_ids: Iterator[str], *, answer_in_s: float, limit: int) -> None:
        """Starts without links.

        answer_in_s  how long a request waits, from when it is made
        limit        of the requests that wait at one time
        """
        self._correlation_ids = correlation_ids
        self._answer_in_s = answer_in_s
        self._limit = limit
        self._link: int | None = None
        self._reply_to: str | None = None
        self.credit = 0
        self._waiting: deque[tuple[int, Message, float]] = deque()  # token, message, deadline
        self._sent: dict[str, tuple[int, float]] = {}  # correlation-id -> token, deadline; the oldest first

    @property
    def is_ready(self) -> bool:
        return self._link is not None and self._reply_to is not None

    def link_up(self, link: int) -> None:
        self._link = link

    def replies_up(self, address: str) -> None:
        self._reply_to = address

    def lost(self) -> list[int]:
        """Ends both links, because one is gone and the other has no use. Returns the tokens that get no answer."""
        tokens = [token for token, _ in self._sent.values()] + [token for token, _, _ in self._waiting]
        self._sent.clear()
        self._waiting.clear()
        self._link = self._reply_to = None
        self.credit = 0
        return tokens

    def ask(self, token: int, message: Message, now: float) -> bool:
        """Adds a request. Returns True if it was accepted. `send` returns the messages to send now."""
        if len(self._waiting) + len(self._sent) >= self._limit:
            return False
        self._waiting.append((token, message, now + self._answer_in_s))
        return True

    def send(self) -> list[SendMessage]:
        """Returns the waiting messages for which there is credit."""
        effects: list[SendMessage] = []
        link, reply_to = self._link, self._reply_to
        if link is None or reply_to is None:
            return effects
        while self._waiting and self.credit:
            token, message, deadline = self._waiting.popleft()
            self.credit -= 1
            correlation_id = next(self._correlation_ids)
            self._sent[correlation_id] = (token, deadline)
            effects.append(
                SendMessage(link=link, message=replace(message, reply_to=reply_to, correlation_id=correlation_id))
            )
        return effects

    def answered(self, message: Message) -> int | None:
        """Returns the token of the request that a message answers; None: no request, or one that was given up."""
        correlation_id = message.correlation_id
        sent = self._sent.pop(correlation_id, None) if isinstance(correlation_id, str) else None
        return sent[0] if sent is not None else None

    def expired(self, now: float) -> list[int]:
        """Removes and returns the tokens of requests that have waited too long."""
        tokens = []
        while self._waiting and self._waiting[0][2] <= now:
            tokens.append(self._waiting.popleft()[0])
        for correlation_id, (token, deadline) in list(self._sent.items()):
            if deadline > now:
                break
            del self._sent[correlation_id]
            tokens.append(token)
        return tokens

    def deadline(self) -> float | None:
        """Returns when the first request will have waited too long."""
        deadlines = [self._waiting[0][2]] if self._waiting else []
        if self._sent:
            deadlines.append(next(iter(self._sent.values()))[1])
        return min(deadlines, default=None)
