"""The links of one connection between routers for messages that have not come whole, and whose they are.

What a receiver elsewhere does not take stays on the link, and with it what comes behind: so each sender has a link of
its own, with a session of its own as far as there are enough, and each user a share of them.

Attack: large messages to receivers that take nothing. All other large messages between the routers waited for them.
"""

from collections.abc import Callable, Container
from itertools import islice
from typing import TYPE_CHECKING, Final

from router.core.budget import Account, Level
from router.core.in_links import InLink

if TYPE_CHECKING:
    from router.core.remotes import DataOutLink

# Links that one user's senders may have at a time; further messages of his wait behind his own.
MOST_OF_USER: Final = 16
# So many idle links are looked at for one that was nobody's or is nobody's any more.
_LOOKED_AT: Final = 8


class StreamingLinks:
    """idle    links that no message occupies, the oldest first
    attach   attaches one more; None: it cannot be, now
    is_alone  (link, idle ones) → is every other link of its session idle?
    """

    def __init__(self) -> None:
        self.idle: dict[DataOutLink, None] = {}
        self.attach: Callable[[], DataOutLink | None] = lambda: None
        self.is_alone: Callable[[DataOutLink, Container[DataOutLink]], bool] = lambda _link, _idle: True
        self._owners: dict[DataOutLink, tuple[InLink, Level | Account]] = {}
        self._of_user: dict[Level | Account, dict[DataOutLink, None]] = {}

    def take(self, sender: InLink | None) -> "DataOutLink | None":
        """A link for a message that has not come whole, lest it holds up the others. None: there is none.

        sender  None: it is this router's own
        """
        if sender is None:
            return self._any()
        own = sender.streamed_on
        if own is not None and own in self.idle and self._owners[own][0] is sender and self.is_alone(own, self.idle):
            del self.idle[own]
            return own
        account = sender.attachment.account
        user = account.user or account
        of_user = self._of_user.setdefault(user, {})
        if len(of_user) >= MOST_OF_USER and not sender.attachment.is_neighbour:
            link = next((link for link in of_user if link in self.idle), None) or next(iter(of_user))
            self.idle.pop(link, None)
            self._disown(link)
        else:
            found = self._any()
            if found is None:
                return None
            link = found
        self._owners[link] = sender, user
        self._of_user.setdefault(user, {})[link] = None
        sender.streamed_on = link
        return link

    def _any(self) -> "DataOutLink | None":
        """One that is nobody's and alone, a new one, or the oldest idle one."""
        idle = self.idle
        found = next((link for link in islice(idle, _LOOKED_AT) if self._is_free(link)), None)
        if found is None:
            found = self.attach() or next(iter(idle), None)
        if found is not None:
            idle.pop(found, None)
            self._disown(found)
        return found

    def _is_free(self, link: "DataOutLink") -> bool:
        owner = self._owners.get(link)
        return (owner is None or not owner[0].is_open) and not link.unsettled and self.is_alone(link, self.idle)

    def rest(self, link: "DataOutLink") -> None:
        """Its message is over: it waits for the next."""
        self.idle[link] = None

    def forget(self, link: "DataOutLink") -> None:
        """The link is gone."""
        self.idle.pop(link, None)
        self._disown(link)

    def _disown(self, link: "DataOutLink") -> None:
        owner = self._owners.pop(link, None)
        if owner is not None:
            of_user = self._of_user[owner[1]]
            del of_user[link]
            if not of_user:
                del self._of_user[owner[1]]

    def surplus(self, spare: int, at_once: int) -> "list[DataOutLink]":
        """Idle links above `spare` that may be closed, at most `at_once`.

        Not one whose messages have no outcome yet: they would get one that nobody gave.
        """
        over = max(len(self.idle) - spare, 0)
        return list(islice((link for link in self.idle if not link.unsettled), min(over, at_once)))

    def clear(self) -> None:
        """The connection is gone."""
        self.idle.clear()
        self._owners.clear()
        self._of_user.clear()
