"""A queue in which hosts have turns: the first member of each host in turn, whatever the others have waiting."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Member = TypeVar("Member", bound=Hashable)


class HostTurns(Generic[Member]):
    """Each member waits once. Adding, taking and discarding cost the same however many wait."""

    __slots__ = ("_hosts", "_of")

    def __init__(self) -> None:
        self._hosts: OrderedDict[Hashable, OrderedDict[Member, None]] = OrderedDict()  # whose turn is next first
        self._of: dict[Member, Hashable] = {}

    def __len__(self) -> int:
        return len(self._of)

    def add(self, host: Hashable, member: Member) -> None:
        """It waits, last of its host; where it waits already, it keeps its place."""
        if member not in self._of:
            self._of[member] = host
            self._hosts.setdefault(host, OrderedDict())[member] = None

    def take(self) -> Member | None:
        """The next one, which waits no more. The next turn of its host comes after those of all others."""
        if not self._hosts:
            return None
        host, members = next(iter(self._hosts.items()))
        member, _ = members.popitem(last=False)
        del self._of[member]
        if members:
            self._hosts.move_to_end(host)
        else:
            del self._hosts[host]
        return member

    def discard(self, member: Member) -> None:
        """It waits no more. One that does not wait is none."""
        if member in self._of:
            host = self._of.pop(member)
            del self._hosts[host][member]
            if not self._hosts[host]:
                del self._hosts[host]
