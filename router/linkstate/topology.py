"""Keeps neighbours, known routers and the paths to them consistent: the rows that other modules get."""

from collections.abc import Callable, Iterable

from router.linkstate.database import Database, Record
from router.linkstate.effects import AddressesChanged, RadiusChanged, RouterChanged, RouterGone, RouterRow
from router.linkstate.mobile import RemoteAddresses
from router.linkstate.neighbours import Neighbours
from router.linkstate.output import Output
from router.linkstate.paths import Computation


class Topology:
    """The known network.

    is_outdated  True if link states changed since the last computation of routes
    """

    def __init__(self, router: str, neighbours: Neighbours, output: Output, room: Callable[[int], int]) -> None:
        """Starts without routers.

        room  (link tag) → bytes that addresses announced by its neighbour may still take
        """
        self._router = router
        self._output = output
        self._computation: Computation | None = None
        self._has_routes = False  # the routes of the current computation were given out
        self._radius = 0
        self.neighbours = neighbours
        self.addresses = RemoteAddresses(output.limits, room)
        self.database = Database()
        self.is_outdated = False

    # Known routers

    def known(self, router: str, told_by: int) -> Record | None:
        """Returns the record of a router that was named, and makes it if needed. None: there is no room for it."""
        record = self.database.records.get(router)
        if record is not None:
            return record
        if self.database.is_full():
            neighbours = self.neighbours.in_use
            is_neighbour = any(link.heard_id == router for link in self.neighbours.links.values())
            displaced = self.database.replaceable(told_by, neighbours, is_neighbour=is_neighbour)
            if displaced is None:
                self._output.complain(told_by, "Exception in control message processing\nExceeded Maximum Router Count")
                return None
            self.remove(displaced)
        record = self.database.add(router, told_by)
        self._trace(f"Node {router} created: maskbit={record.index}")
        self.show(record)
        return record

    def remove(self, record: Record) -> None:
        self.forget_addresses(record)
        del self.database.records[record.id]
        self._trace(f"Node {record.id} deleted")
        self._output.add(RouterGone(id=record.id, index=record.index))
        if record.peers or record.via is not None:
            self.is_outdated = True

    def compare_addresses(self, record: Record, advertised: int) -> None:
        """Requests advertised addresses that are not stored, and forgets those that the router no longer has."""
        if self.addresses.compare_sequence(self.addresses.of(record.id), advertised):
            # It would not be asked again, and the addresses of an earlier instance would stay forever.
            self.forget_addresses(record)

    def forget_addresses(self, record: Record) -> None:
        keys = self.addresses.remove(record.id)
        if keys:
            self._output.add(AddressesChanged(router=record.id, mapped=(), unmapped=keys))
        self._output.log("ROUTER", "debug", f"Remote destinations flushed from router {record.id}")

    def restart(self, record: Record) -> None:
        """Forgets what the router reported before, because it is another instance now."""
        self._output.log("ROUTER", "info", f"Detected Restart of Router Node {record.id}")
        record.forget_state()
        record.asking.want()
        self.forget_addresses(record)
        self.is_outdated = True

    def doubt(self, record: Record) -> None:
        """Forgets what was recently reported in the router's name, because it was false, and asks the router again."""
        record.forget_state()
        record.instance = None
        record.asking.want()
        held = self.addresses.of(record.id)
        held.mobile_seq = 0
        held.asking.want()
        self.is_outdated = True

    def expire(self, now: float, max_age_s: float) -> None:
        """Drops silent neighbours, link states without confirmation, and routers that no router names."""
        for router in list(self.neighbours.in_use):
            self.choose_link(self.database.records[router], now)
        for record in list(self.database.stale(now, max_age_s)):
            record.forget_state()
            self.is_outdated = True
            self.show(record)
        for record in self.database.orphans(self.neighbours.in_use):
            self.remove(record)

    # Links

    def choose_link(self, record: Record, now: float) -> bool:
        """Uses the best link to a neighbour. Returns False if there is none: then it is no neighbour any more."""
        link = self.neighbours.best_link(record.id, now)
        if link is None:
            if record.id in self.neighbours.in_use:
                self.neighbours.drop(record.id)
                self._trace(f"Node {record.id} link removed")
                if record.via == record.id:
                    record.via = None
                self.show_all()
            return False
        if self.neighbours.in_use.get(record.id) != link.tag:
            was_neighbour = record.id in self.neighbours.in_use
            self.neighbours.use(record.id, link)
            record.via = record.id
            had_next_hop, record.next_hop = record.next_hop is not None, None
            removed = " (removed next hop)" if had_next_hop else ""
            self._trace(f"Node {record.id} link set: link_id={link.tag}{removed}")
            record.asking.want()
            if was_neighbour:
                # Other routers may be reached through it.
                self.is_outdated = True
                self.show_all()
            else:
                self.show(record)
        return True

    def path_to(self, router: str) -> int | None:
        """Returns the link that messages to a router take, or None."""
        record = self.database.records.get(router)
        return None if record is None or record.via is None else self.neighbours.in_use.get(record.via)

    def flood_links(self, names: Iterable[str] = ()) -> tuple[int, ...]:
        """Returns the links that are a path to some router, except those that lead to one of `names`."""
        in_use = self.neighbours.in_use
        vias = {record.via for record in self.database.records.values()} - {None, *names}
        return tuple(sorted({in_use[via] for via in vias if via in in_use}))

    # Paths

    def compute(self) -> None:
        """Begins to compute the routes; `work` continues."""
        self.is_outdated = False
        states = {record.id: record.peers for record in self.database.records.values()}
        self._computation = Computation({**states, self._router: self.neighbours.peers}, self._router)
        self._has_routes = False

    def has_work(self) -> bool:
        return self._computation is not None

    def work(self) -> None:
        """Does a part of the computation, in about a millisecond at most. Gives out its results when they are known."""
        computation = self._computation
        if computation is None:
            return
        is_done = computation.step()
        if computation.routes is not None and not self._has_routes:
            self._install_routes(computation)
        if is_done:
            self._install_origins(computation)
            self._computation = None

    def _install_routes(self, computation: Computation) -> None:
        self._has_routes = True
        routes = computation.routes or {}
        hops = {router: route.next_hop for router, route in routes.items()}
        costs = {router: route.cost for router, route in routes.items()}
        self._output.log("ROUTER_LS", "info", f"Computed next hops: {hops}")
        self._output.log("ROUTER_LS", "info", f"Computed costs: {costs}")
        for record in self.database.records.values():
            route = routes.get(record.id)
            if route is None:
                # It keeps its last values. A neighbour that just came is reached on its own link.
                record.via = record.id if record.id in self.neighbours.in_use else None
            else:
                record.via = route.next_hop
                next_hop = None if route.next_hop == record.id else route.next_hop
                if next_hop != record.next_hop:
                    record.next_hop = next_hop
                    self._trace(f"Node {record.id} next hop " + (f"set: {next_hop}" if next_hop else "removed"))
                if route.cost != record.cost:
                    record.cost = route.cost
                    self._trace(f"Node {record.id} cost: {route.cost}")
            self.show(record)

    def _install_origins(self, computation: Computation) -> None:
        self._output.log("ROUTER_LS", "info", f"Computed valid origins: {computation.origins}")
        for router, origins in computation.origins.items():
            record = self.database.records.get(router)
            if record is not None and record.valid_origins != (valid := tuple(origins)):
                record.valid_origins = valid
                self._trace(f"Node {router} valid origins: {origins}")
                self.show(record)
        self._output.log("ROUTER_LS", "info", f"Computed radius: {computation.radius}")
        if computation.radius != self._radius:
            self._radius = computation.radius
            self._output.add(RadiusChanged(radius=computation.radius))

    # Rows

    def show(self, record: Record) -> None:
        """Gives out the row of a router if it changed, and if the router is still known."""
        if self.database.records.get(record.id) is not record:
            return
        in_use = self.neighbours.in_use
        row = RouterRow(
            id=record.id,
            index=record.index,
            version=record.version,
            instance=record.instance,
            link_state=tuple(record.peers),
            path=in_use.get(record.via) if record.via is not None else None,
            link=in_use.get(record.id),
            next_hop=record.next_hop,
            cost=record.cost,
            valid_origins=record.valid_origins,
        )
        if row != record.shown:
            record.shown = row
            self._output.add(RouterChanged(row=row))

    def show_all(self) -> None:
        for record in self.database.records.values():
            self.show(record)

    def _trace(self, text: str) -> None:
        self._output.log("ROUTER", "trace", text)
