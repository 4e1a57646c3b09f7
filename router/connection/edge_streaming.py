"""Large messages between an edge and its interior, on either side.

They use links without an address; each message names its own. Source: docs/spec/network.md §10.6, §14.
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
    """The peer. It is informed when sessions and links end that the router began."""


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
    """Extra links of one connection for large messages.

    streaming  the links, on which large messages overtake the links that they would otherwise use
    """

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
        """Begins some sessions. A message that comes before a session is answered uses the links of small messages."""
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
        # The message waits in the link's queue for the credit that follows the peer's answer.
        link = LargeOutLink(core.next_identity(), wire, links.attachment, core.work, self.streaming)
        core.adopt(link, links.attachment)
        self._compose(link)
        links.limit_out(link)
        wire.on_answer = lambda: self._on_answer(wire)
        return link

    def _on_answer(self, wire: OutgoingWire) -> None:
        if wire.target is None:
            self._is_refused = True  # from now on the existing links take the messages
        else:
            self._links.log_attached(wire)

    def forget(self, session: Session) -> None:
        """Forgets a session of the connection that has ended; it may be one of these sessions."""
        self._lanes.forget(session)

    def end(self) -> None:
        """Ends the use of these links because the connection is closing."""
        self._is_refused = True
        self.streaming.clear()
