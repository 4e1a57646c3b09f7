"""A queue in which hosts take turns, so that a host with many members does not delay the others."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Member = TypeVar("Member", bound=Hashable)


class HostTurns(Generic[Member]):
    """Each member waits at most once. Adding, taking and discarding have a constant cost."""

    __slots__ = ("_hosts", "_of")

    def __init__(self) -> None:
        # The host with the next turn first.
        self._hosts: OrderedDict[Hashable, OrderedDict[Member, None]] = OrderedDict()
        self._of: dict[Member, Hashable] = {}

    def __len__(self) -> int:
        return len(self._of)

    def add(self, host: Hashable, member: Member) -> None:
        """Adds a member as the last of its host. If it already waits, it keeps its place."""
        if member not in self._of:
            self._of[member] = host
            self._hosts.setdefault(host, OrderedDict())[member] = None

    def take(self) -> Member | None:
        """Removes and returns the next member. The next turn of its host comes after those of all other hosts."""
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
        """Removes a member. Does nothing if it does not wait."""
        if member in self._of:
            host = self._of.pop(member)
            del self._hosts[host][member]
            if not self._hosts[host]:
                del self._hosts[host]
