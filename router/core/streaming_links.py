"""The links of one connection between routers for messages that have not come whole, and whose they are.

What a receiver elsewhere does not take stays on the link, and with it what comes behind: so each sender has a link of
its own, with a session of its own as far as there are enough, and each user a share of them.

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

# Links that one user's senders may have at a time; further messages of his wait behind his own.
MOST_OF_USER: Final = 16
# The same for a connection to another router, which has users of its own. Attack: a user on many edges, or routers.
MOST_OF_NEIGHBOUR: Final = 3 * MOST_OF_USER
# On one connection. Attack: clients that begin messages and do not end them, each of which would have its own.
MAX_STREAMING_LINKS: Final = 1024
# So many idle links are looked at for one that was nobody's or is nobody's any more.
_LOOKED_AT: Final = 8


L = TypeVar("L", bound=OutLink)


class StreamingLinks(Generic[L]):
    """idle    links that no message occupies: those whose senders are gone first, then the oldest
    attach   attaches one more; None: it cannot be, now
    close    closes one
    """

    def __init__(self) -> None:
        self.idle: OrderedDict[L, None] = OrderedDict()
        self.attach: Callable[[], L | None] = lambda: None
        self.close: Callable[[L], None] = lambda _link: None
        self._all: set[L] = set()
        self._users: dict[L, str | Account] = {}
        self._of_user: dict[str | Account, dict[L, None]] = {}
        self._senders: dict[L, InLink] = {}  # those that are there
        self._of_sender: dict[InLink, L] = {}
        self._untold: set[L] = set()  # of whose latest message nobody says what became of it

    def take(self, sender: InLink | None) -> L | None:
        """A link for a message that has not come whole, lest it holds up the others. None: there is none.

        sender  None: it is this router's own
        """
        if sender is None:
            return self._any()
        own = self._of_sender.get(sender)
        if own is not None and own in self.idle and self._is_alone(own):
            del self.idle[own]
            return own
        account = sender.attachment.account
        is_neighbour = sender.attachment.is_neighbour
        # By his name, which stays when he comes again. Attack: a user who reconnects, each time with a further share.
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
        """One of the user's own, where he has all he may: an idle one, or that which he took first."""
        of_user = self._of_user.get(user, {})
        if len(of_user) < most:
            return None
        return next((link for link in of_user if link in self.idle), None) or next(iter(of_user))

    def _any(self) -> L | None:
        """One that is nobody's and alone, a new one, or the oldest idle one."""
        idle = self.idle
        found: L | None = None
        for link in list(islice(idle, _LOOKED_AT)):
            if link in self._users and link not in self._senders:
                self._close_if_untold(link)
            if link in idle and self._is_free(link):
                found = link
                break
            if link in idle:
                idle.move_to_end(link)  # others are looked at next
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
        """Is every other link of its session idle?"""
        return all(core is link or core in self.idle for core in link.wire.session_cores())

    def _disown(self, link: L) -> None:
        """It is somebody else's from now on, or nobody's."""
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
        """Its message is over: it waits for the next, if there is none that waits."""
        if not link.is_open or link.leg is not None or link.queue:
            return
        self.idle[link] = None
        (self._untold.discard if link.unsettled else self._untold.add)(link)
        if link in self._users and link not in self._senders:
            self._close_if_untold(link)

    def sender_gone(self, sender: InLink) -> None:
        """Others may have its link.

        Attack: presettled messages to a receiver that takes nothing, each by a sender that goes. Whoever had the link
        next would wait behind it; it is closed instead, when all has left.
        """
        link = self._of_sender.pop(sender, None)
        if link is None:
            return
        self._senders.pop(link, None)
        self._close_if_untold(link)
        if link in self.idle:
            self.idle.move_to_end(link, last=False)

    def _close_if_untold(self, link: L) -> None:
        """Not before all has left: what has not would stay in the session with the link gone, and count for ever.

        Attack: presettled messages that are a little larger than the window, by senders that go. Once half a MiB of
        them stayed nothing passed by the session any more; with each session so, nobody's large messages passed.
        """
        if link in self.idle and link in self._untold and not link.wire.backlog_bytes:
            self.close(link)

    def forget(self, link: L) -> None:
        """The link is gone."""
        self._all.discard(link)
        self.idle.pop(link, None)
        self._untold.discard(link)
        self._disown(link)

    def surplus(self, spare: int, at_once: int) -> list[L]:
        """Idle links above `spare` that may be closed, at most `at_once`.

        Not one whose messages have no outcome yet: they would get one that nobody gave. Nor one with some to send.
        """
        over = max(len(self.idle) - spare, 0)
        done = (link for link in self.idle if not (link.unsettled or link.wire.backlog_bytes))
        return list(islice(done, min(over, at_once)))

    def clear(self) -> None:
        """The connection is gone. What refers to it, and it to that, would stay until cycles are looked for."""
        self.attach, self.close = lambda: None, lambda _link: None
        for each in (self._all, self.idle, self._users, self._of_user, self._senders, self._of_sender, self._untold):
            each.clear()


class LargeOutLink(OutLink):
    """Between an edge and its interior: bound to no address, since each message says which it is for."""

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
        """The message under way will never be whole. An aborted Transfer waits for the window, which it may have filled
        itself, and the next message on the link behind it; a Detach does not.
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
