"""The links between two routers for messages that have not arrived completely, and the users of these links.

If a distant receiver does not take a message, the message stays on the link and blocks later messages. So each sender
has its own link, with its own session if there are enough, and each user has a share of the links.

Attack: large messages to receivers that take nothing. All other large messages between the routers waited for them.
"""

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import Final, Generic, TypeVar

from router.core.budget import Account
from router.core.in_links import InLink
from router.core.links import Connection, Growing
from router.core.out_links import OutLink
from router.core.ports import OutgoingWire
from router.core.work import Work
from router.values import Handle

# The links that one user's senders may have at a time. The user's further messages wait for the earlier ones.
MOST_OF_USER: Final = 16
# The same limit for a connection to another router, which has its own users. Attack: a user on many edges, or routers.
MOST_OF_NEIGHBOUR: Final = 3 * MOST_OF_USER
# The limit of one connection. Attack: clients that begin messages and do not end them, so that each takes a link.
MAX_STREAMING_LINKS: Final = 1024
# The number of idle links to check for one that no user has.
_LOOKED_AT: Final = 8


L = TypeVar("L", bound=OutLink)


class StreamingLinks(Generic[L]):
    """The links for streamed messages of one connection.

    idle    links that no message occupies: first those whose senders are gone, then the oldest
    attach  attaches one more link; None: impossible now
    close   closes a link
    """

    def __init__(self) -> None:
        self.idle: OrderedDict[L, None] = OrderedDict()
        self.attach: Callable[[], L | None] = lambda: None
        self.close: Callable[[L], None] = lambda _link: None
        self._all: set[L] = set()
        self._users: dict[L, str | Account] = {}
        self._of_user: dict[str | Account, dict[L, None]] = {}
        self._senders: dict[L, InLink] = {}  # only senders that still exist
        self._of_sender: dict[InLink, L] = {}
        self._untold: set[L] = set()  # links whose latest message will get no outcome

    def take(self, sender: InLink | None) -> L | None:
        """Returns a link for a message that has not arrived completely, so that it does not delay others, or None.

        sender  None: the message is this router's own
        """
        if sender is None:
            return self._any()
        own = self._of_sender.get(sender)
        if own is not None and own in self.idle and self._is_alone(own):
            del self.idle[own]
            return own
        account = sender.attachment.account
        is_neighbour = sender.attachment.is_neighbour
        # By the user's name, which is the same after a reconnect. Attack: a user who reconnects and gets a further
        # share each time.
        user = account.user.name if account.user is not None and not is_neighbour else account
        link = self._share_of(user, MOST_OF_NEIGHBOUR if is_neighbour else MOST_OF_USER)
        if link is not None:
            self.idle.pop(link, None)
            self._disown(link)
        elif (link := self._any()) is None:
            return None
        self._users[link] = user
        self._of_user.setdefault(user, {})[link] = None
        if own is not None:
            self._senders.pop(own, None)
        self._senders[link] = sender
        self._of_sender[sender] = link
        return link

    def _share_of(self, user: str | Account, most: int) -> L | None:
        """Returns an own link of a user who has the maximum: an idle one, or the user's first one."""
        of_user = self._of_user.get(user, {})
        if len(of_user) < most:
            return None
        return next((link for link in of_user if link in self.idle), None) or next(iter(of_user))

    def _any(self) -> L | None:
        """Returns a link that no user has and whose session is idle, or a new one, or the oldest idle one."""
        idle = self.idle
        found: L | None = None
        for link in list(islice(idle, _LOOKED_AT)):
            if link in self._users and link not in self._senders:
                self._close_if_untold(link)
            if link in idle and self._is_free(link):
                found = link
                break
            if link in idle:
                idle.move_to_end(link)  # check other links next time
        if found is None:
            found = self._attached() or next(iter(idle), None)
        if found is not None:
            idle.pop(found, None)
            self._disown(found)
        return found

    def _attached(self) -> L | None:
        link = self.attach() if len(self._all) < MAX_STREAMING_LINKS else None
        if link is not None:
            self._all.add(link)
        return link

    def _is_free(self, link: L) -> bool:
        is_nobodys = link not in self._senders and not link.unsettled
        return is_nobodys and self._is_alone(link) and not link.wire.backlog_bytes

    def _is_alone(self, link: L) -> bool:
        """Returns True if every other link of its session is idle."""
        return all(core is link or core in self.idle for core in link.wire.session_cores())

    def _disown(self, link: L) -> None:
        """Removes the current user and sender of the link."""
        sender = self._senders.pop(link, None)
        if sender is not None and self._of_sender.get(sender) is link:
            del self._of_sender[sender]
        user = self._users.pop(link, None)
        if user is not None:
            of_user = self._of_user[user]
            del of_user[link]
            if not of_user:
                del self._of_user[user]

    def rest(self, link: L) -> None:
        """Marks the link as idle if its message is over and no other message waits."""
        if not link.is_open or link.leg is not None or link.queue:
            return
        self.idle[link] = None
        (self._untold.discard if link.unsettled else self._untold.add)(link)
        if link in self._users and link not in self._senders:
            self._close_if_untold(link)

    def sender_gone(self, sender: InLink) -> None:
        """Makes the link of a sender that is gone available to other senders.

        Attack: presettled messages to a receiver that takes nothing, each from a sender that disconnects. The next
        sender on the link would wait for these messages. So the link is closed when everything has left.
        """
        link = self._of_sender.pop(sender, None)
        if link is None:
            return
        self._senders.pop(link, None)
        self._close_if_untold(link)
        if link in self.idle:
            self.idle.move_to_end(link, last=False)

    def _close_if_untold(self, link: L) -> None:
        """Closes an idle link whose last message gets no outcome, but only after all its bytes have left.

        Bytes that have not left would stay in the session after the link is gone, and count forever. Attack: presettled
        messages a little larger than the window, from senders that disconnect. When half a MiB of them stayed, the
        session was blocked. With all sessions blocked, no large message could pass.
        """
        if link in self.idle and link in self._untold and not link.wire.backlog_bytes:
            self.close(link)

    def forget(self, link: L) -> None:
        """Removes a link that is gone."""
        self._all.discard(link)
        self.idle.pop(link, None)
        self._untold.discard(link)
        self._disown(link)

    def surplus(self, spare: int, at_once: int) -> list[L]:
        """Returns idle links above `spare` that may be closed, at most `at_once`.

        Leaves out links whose messages have no outcome yet: they would get an outcome that no receiver gave. Also
        leaves out links with bytes to send.
        """
        over = max(len(self.idle) - spare, 0)
        done = (link for link in self.idle if not (link.unsettled or link.wire.backlog_bytes))
        return list(islice(done, min(over, at_once)))

    def clear(self) -> None:
        """Removes the references of a connection that is gone, so that no cycle waits for the garbage collector."""
        self.attach, self.close = lambda: None, lambda _link: None
        for each in (self._all, self.idle, self._users, self._of_user, self._senders, self._of_sender, self._untold):
            each.clear()


class LargeOutLink(OutLink):
    """A link between an edge and its interior.

    It is bound to no address, because each message names its own address.
    """

    __slots__ = ("home",)

    def __init__(
        self,
        identity: int,
        wire: OutgoingWire,
        attachment: Connection,
        work: Work,
        home: "StreamingLinks[LargeOutLink]",
    ) -> None:
        super().__init__(identity, wire, attachment, work)
        self.home = home

    def abort(self, outgoing: Handle) -> None:
        """Closes the link, because the message under way stays incomplete.

        An aborted Transfer would wait for the window, which the message may have filled itself, and the next message
        would wait for the Transfer. A Detach does not wait.
        """
        self.home.close(self)

    def vacate(self) -> None:
        super().vacate()
        self.home.rest(self)

    def withdraw(self, leg: Growing) -> None:
        super().withdraw(leg)
        self.home.rest(self)

    def release(self) -> None:
        super().release()
        self.home.forget(self)
