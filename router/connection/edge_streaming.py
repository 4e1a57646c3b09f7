"""Large messages between an edge and its interior, seen from either: on links without an address, messages name theirs.

Source: docs/spec/network.md §10.6, §14.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from router.amqp.engine import CannotBegin, Engine, LinkOwner, OutgoingWire, Session, SessionOwner
from router.amqp.terminus import Terminus
from router.connection.lanes import SPARE, Lanes
from router.core.attachments import Attachment
from router.core.core import Core
from router.core.out_links import OutLink
from router.core.streaming_links import LargeOutLink, StreamingLinks

_TERMINUS: Final = Terminus(expiry_policy="link-detach")


class Owner(SessionOwner, LinkOwner, Protocol):
    """The peer, which hears of the end of sessions and links that the router began."""


class Lending(Protocol):
    """The links of the connection (router.connection.peer_links)."""

    @property
    def core(self) -> Core: ...
    @property
    def engine(self) -> Engine: ...
    @property
    def attachment(self) -> Attachment: ...
    def begin_own(self, owner: SessionOwner, /) -> Session: ...
    def limit_out(self, link: OutLink, /) -> None: ...
    def close_own(self, link: OutLink, /) -> None: ...
    def log_attached(self, wire: OutgoingWire, /) -> None: ...


class EdgeStreaming:
    """streaming  the links, by which large messages pass those that they would go on"""

    def __init__(self, links: Lending, owner: Owner, compose: Callable[[OutLink], None]) -> None:
        """compose  sets how messages leave on a link"""
        self.streaming: StreamingLinks[LargeOutLink] = StreamingLinks()
        self.streaming.attach = self._attach
        self.streaming.close = links.close_own
        self._links = links
        self._owner = owner
        self._compose = compose
        self._lanes = Lanes(links.engine, lambda: links.begin_own(owner), lambda: None)
        self._is_refused = False

    def begin(self) -> None:
        """Begin some sessions. A message that comes before one is answered goes where small ones do."""
        with suppress(CannotBegin):
            self._lanes.begin(SPARE)

    def _attach(self) -> LargeOutLink | None:
        links = self._links
        core = links.core
        try:
            session = self._lanes.lease_now() if not self._is_refused else None
            if session is None:
                return None
            name = f"qdlink.large.{core.random_name()}"
            wire = session.attach_sender(name, self._owner, source=_TERMINUS, target=_TERMINUS)
        except CannotBegin:
            return None
        # The message waits in the link's queue for the credit that comes with the peer's answer.
        link = LargeOutLink(core.next_identity(), wire, links.attachment, core.work, self.streaming)
        core.adopt(link, links.attachment)
        self._compose(link)
        links.limit_out(link)
        wire.on_answer = lambda: self._on_answer(wire)
        return link

    def _on_answer(self, wire: OutgoingWire) -> None:
        if wire.target is None:
            self._is_refused = True  # the links that there are take what comes from now on
        else:
            self._links.log_attached(wire)

    def forget(self, session: Session) -> None:
        """A session of the connection has ended, perhaps one of these."""
        self._lanes.forget(session)

    def end(self) -> None:
        """The connection is going."""
        self._is_refused = True
        self.streaming.clear()
