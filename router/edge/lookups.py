"""The edge's question whether an address that a client attaches to is a link route. Source: docs/spec/network.md §14.6.

In case of any error, the attach is treated as one of an ordinary address. No client waits longer than 3 s.
"""

from collections.abc import Iterator
from typing import Final

from router.edge.asking import Asking
from router.edge.effects import Decided, Effect
from router.edge.limits import Limits
from router.edge.messages import Message, lookup_request, read_lookup_reply

ANSWER_IN_S: Final = 3.0


class Lookups:
    def __init__(self, correlation_ids: Iterator[str], limits: Limits) -> None:
        self.asking = Asking(correlation_ids, answer_in_s=ANSWER_IN_S, limit=limits.waiting_lookups)

    def look_up(self, token: int, address: str, now: float, *, is_sender: bool) -> list[Effect]:
        """Looks an address up. Decides at once if the question cannot be sent."""
        asking = self.asking
        message = lookup_request(address, is_sender=is_sender)
        if not asking.is_ready or not asking.credit or not asking.ask(token, message, now):
            return [_local(token)]
        return [*asking.send()]

    def received(self, message: Message) -> list[Effect]:
        token = self.asking.answered(message)
        if token is None:
            return []
        reply = read_lookup_reply(message)
        if not reply.is_found or not reply.is_link_route:
            return [_local(token)]
        return [Decided(token=token, answer="forward" if reply.has_destinations else "no_route")]

    def lost(self) -> list[Effect]:
        return [_local(token) for token in self.asking.lost()]

    def tick(self, now: float) -> list[Effect]:
        return [_local(token) for token in self.asking.expired(now)]


def _local(token: int) -> Decided:
    return Decided(token=token, answer="local")
