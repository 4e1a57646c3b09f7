"""Messages in the name of a router that arrive on a link which does not lead to that router.

A message of a router passes every link that leads to it. If it arrives on another link, it is a lie, or the link is new
and this router does not know it yet. So it counts for a few more ticks. Then this is reported, such messages no longer
count, and the router is asked again about everything that may have been a lie.
"""

from typing import Final

from router.linkstate.effects import NameOfAnother
from router.linkstate.neighbours import Link
from router.linkstate.output import Output
from router.linkstate.topology import Topology

# A real link state has arrived by then.
PATIENCE_TICKS: Final = 5


class Strangers:
    def __init__(self, topology: Topology, output: Output) -> None:
        self._topology = topology
        self._output = output
        self._seen: dict[tuple[int, str], int] = {}  # (link, router) → ticks since its first message there
        self._behind: dict[int, set[str]] = {}  # link → the routers to which it leads, as computed in this tick

    def may_speak(self, router: str, link: Link) -> bool:
        """Returns True if a message of the router counts on the link."""
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
        """Returns the routers that the neighbour on a link reaches without this one, over links that both ends report.

        Attack: a neighbour that claims a link to the router in whose name it speaks.
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
                # A router without a reported link state may have this link, unless lies came in its name.
                may_be = not other.ls_seq and self._seen.get((link.tag, peer), 0) < PATIENCE_TICKS
                if may_be or name in other.peers:
                    waiting.append(peer)
        return reached
