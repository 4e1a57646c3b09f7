"""A sender's updates of its own messages after it has sent them: it settles, or gives a state.

Sources: docs/spec/routing.md §9.1.
"""

from collections import deque
from collections.abc import Callable, Iterable

from router.core.in_links import InLink
from router.core.links import Queued
from router.core.out_links import OutLink
from router.values import Handle


class Updates:
    """The updates of one incoming link.

    receivers  returns the links that may hold its messages
    updated    deliveries whose sender gave a state (False), or settled (True), and which are not yet passed on. Some
               may be settled to the sender meanwhile: the engine may have released them
    """

    __slots__ = ("link", "receivers", "updated")

    def __init__(self, link: InLink, receivers: Callable[[], Iterable[OutLink]]) -> None:
        self.link = link
        self.receivers = receivers
        self.updated: dict[Handle, bool] = {}

    def on_updated(self, source: Handle) -> None:
        """Records that the sender settled first, answered a three-way receiver, or gave a state of its own."""
        link = self.link
        is_settled = link.is_settled(source)
        # No state is passed on for a settled delivery. For a routed link that state may be older than the Discharge.
        if not (is_settled and link.relays_states) and link.is_foreign(source) and not is_settled:
            return
        if not self.updated:
            link.engine.afterwards.append(self._carry)
        self.updated[source] = is_settled

    def _carry(self) -> None:
        """Passes the sender's dispositions on to the copies of its messages.

        This searches the messages in flight to the link's receivers, once per read and only for senders that update.
        Storing the way from each message to its copies would slow down every message. A multicast that waits only for
        its sender knows its copies.
        """
        link = self.link
        updated, self.updated = self.updated, {}
        if not link.is_open:
            return
        settled = {source for source, is_settled in updated.items() if is_settled}
        found: set[Handle] = set()  # settled deliveries whose copies are now settled
        queued: set[Handle] = set()  # the part of `found` whose credit returns when the copy is written
        for source in settled:
            copies = link.merging.get(source)
            if copies is not None and not copies.undecided:
                copies.on_sender_settled()
                found.add(source)
        if len(found) < len(updated):
            self._search(updated.keys() - found, settled - found, found, queued)
        for source in found:
            link.settle(source)
            if source not in queued:
                link.owe()
        link.work.touched.add(link.engine)

    def _search(self, updated: set[Handle], settled: set[Handle], found: set[Handle], queued: set[Handle]) -> None:
        """Finds the copies of updated deliveries, and updates them.

        INVARIANT: a handle means the same message only on the same link. Handles of links that are gone are reused.
        """
        link = self.link
        for out in self.receivers():
            for outgoing, (origin, source, since_s) in list(out.unsettled.items()):
                if source not in updated or origin.sender is not link:
                    continue
                if source in settled:
                    origin.forgo(out.wire.remote_state(outgoing), since_s)
                    out.settle_early(outgoing)
                    found.add(source)
                elif state := link.wire.remote_state(source):
                    out.wire.relay_state(outgoing, source, state)
                    link.work.touched.add(out.engine)
            if out.queue:
                if settled:
                    out.queue = deque(self._as_settled(item, settled, found, queued) for item in out.queue)
                if len(settled) < len(updated):
                    out.queue = deque(self._with_state(item, updated) for item in out.queue)

    def _with_state(self, item: Queued, updated: set[Handle]) -> Queued:
        """Returns the queued copy, marked to take the sender's state when it leaves."""
        if item.is_settled or item.leg is not None or item.origin is None or item.source not in updated:
            return item
        return item._replace(has_state=True) if item.origin.sender is self.link else item

    def _as_settled(self, item: Queued, settled: set[Handle], found: set[Handle], queued: set[Handle]) -> Queued:
        """Returns the queued copy, made presettled if its sender has settled."""
        origin, source = item.origin, item.source
        if (
            item.is_settled
            or origin is None
            or source is None
            or source not in settled
            or origin.sender is not self.link
        ):
            return item
        found.add(source)
        if item.leg is not None:
            item.leg.forgo_outcome()
            return item._replace(is_settled=True)
        origin.forgo(0, item.since_s)
        payer = None if source in queued else self.link
        queued.add(source)
        return Queued(payer, None, item.since_s, item.payload, True, item.charge)
