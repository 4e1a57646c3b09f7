"""The interior's side: sends its edges information, answers their requests, and gives up silent edges. See the package.

`now` is in monotonic seconds. The owner of a connection says whether the peer is an edge. A service refuses the links
of all other peers, without an error condition (network §15.1).
"""

from collections import Counter
from typing import Final

from router.edge.answering import Find, answer, nothing_found
from router.edge.effects import Effect, RejectMessage
from router.edge.heartbeat import Listening
from router.edge.limits import MAX_SHOWN_CHARACTERS, Limits
from router.edge.messages import HEARTBEAT_ADDRESS, LOOKUP_ADDRESS, TRACKING_ADDRESS, LookupRequest, Message
from router.edge.tracking import Tracking
from router.effects import Log

SERVICES: Final = (TRACKING_ADDRESS, LOOKUP_ADDRESS, HEARTBEAT_ADDRESS)
_SERVERS: Final = {LOOKUP_ADDRESS: "address lookup server", HEARTBEAT_ADDRESS: "heartbeat server"}


class InteriorMachine:
    def __init__(self, find: Find = nothing_found, limits: Limits | None = None) -> None:
        """Starts without edges.

        find  returns this router's information about link routes
        """
        self._limits = limits = limits or Limits()
        self._find = find
        self.tracking = Tracking(limits)
        self.heartbeats = Listening(limits.heartbeat_links_per_connection)
        self._complaints: Counter[int] = Counter()

    def admits(self, connection: int, address: str, *, is_sender: bool) -> bool:
        """Returns True if an edge may attach a link to one of SERVICES.

        is_sender  True if the edge sends
        """
        if address == TRACKING_ADDRESS:
            return not is_sender
        return is_sender and (address != HEARTBEAT_ADDRESS or self.heartbeats.may_attach(connection))

    def look_up(self, connection: int, message: Message) -> tuple[LookupRequest, Message] | list[Effect]:
        """Returns the reply to a request, or the effects of refusing it."""
        answered = answer(message, self._find)
        if not isinstance(answered, RejectMessage):
            return answered
        return [*self._complain(connection, f"[C{connection}] {answered.description}"), answered]

    def tick(self, now: float) -> list[Effect]:
        """Runs the regular checks. Must be called once a second."""
        self._complaints.clear()
        return self.heartbeats.tick(now)

    def _complain(self, connection: int, text: str) -> list[Effect]:
        self._complaints[connection] += 1
        if self._complaints[connection] > self._limits.complaints_per_connection_and_tick:
            return []
        return [Log(module="ROUTER_CORE", level="error", text=text)]


def refused_lines(address: str, container: str) -> tuple[Log, ...]:
    """Returns the log lines about a refused link to a service.

    container  the peer's own name
    """
    if (server := _SERVERS.get(address)) is None:
        return ()
    text = f"Attempt to attach to {server} rejected (container={container[:MAX_SHOWN_CHARACTERS]})"
    return (Log(module="ROUTER_CORE", level="error", text=text),)
