"""Messages in the name of a router that come by a link on which that router is not.

A message of a router passes every link that leads to it. One by another link is a lie, or this router has not heard yet
of a link that is new: so it counts for a few ticks more. Then it is told, such messages count no longer, and the router
is asked for what may have been a lie.
"""

from typing import Final

from router.linkstate.effects import NameOfAnother
from router.linkstate.neighbours import Link
from router.linkstate.output import Output
from router.linkstate.topology import Topology

# A link state has come by then, or what it would say is not so.
PATIENCE_TICKS: Final = 5


class Strangers:
    def __init__(self, topology: Topology, output: Output) -> None:
        self._topology = topology
        self._output = output
        self._seen: dict[tuple[int, str], int] = {}  # (link, router) → ticks since its first message there
        self._behind: dict[int, set[str]] = {}  # link → the routers to which it leads, as far as this tick has asked

    def may_speak(self, router: str, link: Link) -> bool:
        """Does a message of the router that comes by the link count?"""
        if link.heard_id in (None, router) or self._is_behind(router, link):
            return True
        return self._seen.setdefault((link.tag, router), 0) < PATIENCE_TICKS

    def tick(self) -> None:
        self._behind.clear()
        links, records = self._topology.neighbours.links, self._topology.database.records
        for (tag, router), ticks in list(self._seen.items()):
            link = links.get(tag)
            if (
                link is None
                or link.heard_id in (None, router)
                or router not in records
                or self._is_behind(router, link)
            ):
                del self._seen[tag, router]
                continue
            self._seen[tag, router] = ticks + 1
            if ticks + 1 == PATIENCE_TICKS:
                self._output.add(NameOfAnother(link=tag, router=router, neighbour=link.heard_id))
                self._topology.doubt(records[router])

    def _is_behind(self, router: str, link: Link) -> bool:
        behind = self._behind.get(link.tag)
        if behind is None:
            behind = self._behind[link.tag] = self._reached(link)
        return router in behind

    def _reached(self, link: Link) -> set[str]:
        """The routers that the neighbour on a link reaches without this one, by links that both their ends tell of.

        Attack: a neighbour that says to have a link to the router in whose name it speaks.
        """
        records = self._topology.database.records
        reached: set[str] = set()
        waiting = [link.heard_id] if link.heard_id is not None else []
        while waiting:
            name = waiting.pop()
            record = records.get(name)
            if name in reached or record is None:
                continue
            reached.add(name)
            for peer in record.peers:
                other = records.get(peer)
                if other is None:
                    continue
                # One that has said nothing of its links may have this one, unless lies came in its name.
                may_be = not other.ls_seq and self._seen.get((link.tag, peer), 0) < PATIENCE_TICKS
                if may_be or name in other.peers:
                    waiting.append(peer)
        return reached
