"""The sessions and links that the router has begun on one connection, and the frames that answer them. Pure.

A Begin is answered by our channel, an Attach by its session, name and direction (AMQP 1.0 §2.5.1, §2.6.1). Each is
answered once.
"""


class CannotBegin(Exception):
    """The router cannot begin a session or attach a link now; the text says why."""


class Begun:
    """promised  sessions that we are about to begin: their Begin has no channel yet
    awaited   our channels whose Begin awaits its answer
    answers   our channel -> the peer's channel that has answered it and not ended
    links     the peer's channel of such a session -> links that await their answer: (name, whether the peer sends)
    """

    __slots__ = ("answers", "awaited", "links", "promised")

    def __init__(self) -> None:
        self.promised = 0
        self.awaited: set[int] = set()
        self.answers: dict[int, int] = {}
        self.links: dict[int, set[tuple[bytes, bool]]] = {}

    @property
    def unanswered(self) -> int:
        """Sessions of ours that use a channel and have none of the peer's yet."""
        return self.promised + len(self.awaited)

    def sent(self, ours: int) -> None:
        """A Begin that was promised has been written, on this channel."""
        self.promised -= 1
        self.awaited.add(ours)

    def answered(self, ours: int, theirs: int) -> None:
        self.awaited.discard(ours)
        self.answers[ours] = theirs
        self.links[theirs] = set()

    def ended(self, theirs: int) -> None:
        """The peer has ended a session, begun by us or not. Our channel may have been used anew since our own End."""
        if self.links.pop(theirs, None) is not None:
            self.answers = {ours: channel for ours, channel in self.answers.items() if channel != theirs}

    def awaited_links(self, theirs: int) -> int:
        return len(self.links.get(theirs, ()))

    def takes_answer(self, theirs: int, name: bytes, *, peer_sends: bool) -> bool:
        """Does an Attach answer a link of ours? Another one of that name does not any more."""
        links = self.links.get(theirs)
        if links is None or (name, peer_sends) not in links:
            return False
        links.discard((name, peer_sends))
        return True
