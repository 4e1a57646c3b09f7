"""The sessions and links that the router has begun on one connection, and the frames that answer them. Pure.

A Begin is answered by a Begin with our channel, and an Attach by one with its session, name and direction (AMQP 1.0
§2.5.1, §2.6.1). Each has one answer.
"""


class CannotBegin(Exception):
    """The router cannot begin a session or attach a link now. The text says why."""


class Begun:
    """Our own sessions and links on one connection.

    promised  sessions that we are about to begin: their Begin has no channel yet
    awaited   our channels whose Begin waits for its answer
    answers   our channel -> the peer's channel that answered it and has not ended
    links     the peer's channel of such a session -> links that wait for their answer: (name, True if the peer sends)
    """

    __slots__ = ("answers", "awaited", "links", "promised")

    def __init__(self) -> None:
        self.promised = 0
        self.awaited: set[int] = set()
        self.answers: dict[int, int] = {}
        self.links: dict[int, set[tuple[bytes, bool]]] = {}

    @property
    def unanswered(self) -> int:
        """The number of our sessions that use a channel and have no channel of the peer yet."""
        return self.promised + len(self.awaited)

    def sent(self, ours: int) -> None:
        """Notes that a promised Begin has been written, on this channel."""
        self.promised -= 1
        self.awaited.add(ours)

    def answered(self, ours: int, theirs: int) -> None:
        self.awaited.discard(ours)
        self.answers[ours] = theirs
        self.links[theirs] = set()

    def ended(self, theirs: int) -> None:
        """Notes that the peer has ended a session, whichever side began it.

        Our channel may already be in use again since our own End.
        """
        if self.links.pop(theirs, None) is not None:
            self.answers = {ours: channel for ours, channel in self.answers.items() if channel != theirs}

    def awaited_links(self, theirs: int) -> int:
        return len(self.links.get(theirs, ()))

    def takes_answer(self, theirs: int, name: bytes, *, peer_sends: bool) -> bool:
        """Returns True if an Attach answers a link of ours. A second Attach with that name does not."""
        links = self.links.get(theirs)
        if links is None or (name, peer_sends) not in links:
            return False
        links.discard((name, peer_sends))
        return True
