"""Several connected routers in memory: both ends of each connection belong to routers."""

from typing import TYPE_CHECKING, Any

from memory_net.record import Record
from router.admission.connection_gate import ConnectionGate
from router.amqp.buffers import READ_BUFFER
from router.connection.accepted import Connection
from router.connection.outgoing import Connector, Outgoing

if TYPE_CHECKING:
    from memory_net.net import Net


class End:
    """One router's end of a connection to another router. Has the functions of a client that `Net` calls.

    inbox     bytes from this router that the other router has not read yet
    is_stuck  the other end reads nothing
    """

    def __init__(self, net: "Net") -> None:
        self.net = net
        self.inbox = bytearray()
        self._recorded = Record()
        self.is_dead = False
        self.is_stuck = False
        self.router_closed = False
        self.other: End
        self.router: Connection | Outgoing

    @property
    def recorded(self) -> bytearray:
        """Everything that this router wrote."""
        return self._recorded.whole()

    def write(self, data: bytes) -> None:
        if not self.is_dead:
            self.inbox += data
            self._recorded.add(data)

    def close_socket(self) -> None:
        self.router_closed = True

    def push_to_router(self) -> bool:
        """Lets this router read what the other router wrote."""
        if self.is_dead:
            return False
        if self.router.has_more:
            self.router.resume()
            self.net.work.finish()
            return True
        inbox = self.other.inbox
        if not inbox or self.router_closed or self.is_stuck or self.router.waits_for_room:
            return False
        data = bytes(inbox[: self.net.read_bytes])
        del inbox[: len(data)]
        begin = self.router.lay()
        READ_BUFFER[begin : begin + len(data)] = data
        self.router.receive_read(len(data))
        self.net.work.finish()
        return True

    def pull_from_router(self) -> bool:
        """Ends the connection if the other end is gone; the other end itself reads what this router wrote."""
        if self.other.is_dead and not self.is_dead:
            self.kill()
            return True
        return False

    def kill(self) -> None:
        """Loses the connection, with all bytes on their way. The other end learns of it when bytes are carried."""
        if not self.is_dead:
            self.is_dead = True
            self.inbox.clear()
            self.router.on_lost()
            self.net.work.finish()


class Fleet:
    """Interior routers by their names, edge routers, and one clock for all."""

    def __init__(
        self, *names: str, edges: tuple[str, ...] = (), distributions: dict[str, str] | None = None, **net: Any
    ) -> None:
        from memory_net.net import Net

        self.nets: dict[str, Net] = {
            name: Net(distributions, router_id=name, is_edge=name in edges, **net) for name in (*names, *edges)
        }

    def __getitem__(self, name: str) -> "Net":
        return self.nets[name]

    def connect(self, maker: str, taker: str, *, cost: int = 1, **terms: Any) -> tuple[End, End]:
        """Connects one router's connector to another router's listener."""
        made, taken = End(self[maker]), End(self[taker])
        made.other, taken.other = taken, made
        made.router = _outgoing(made, taker, cost, terms)
        listener = taken.net.listener(
            **{"role": "inter-router", "strips_in": False, "strips_out": False, "cost": cost, **terms},
            mechanisms=lambda _channel: ("ANONYMOUS",),
        )
        taken.router = taken.net.accept(listener, taken)
        made.net.ends.append(made)
        taken.net.ends.append(taken)
        made.router.start()
        made.net.work.finish()
        self.pump()
        return made, taken

    def pump(self, *, rounds: int = 100_000) -> None:
        """Carries bytes until no router has any for two rounds: a router that had its turn may have got more in the
        first.
        """
        quiet = 0
        for _ in range(rounds):
            moved = [net.carry() for net in self.nets.values()]
            quiet = 0 if any(moved) else quiet + 1
            if quiet == 2:
                return
        raise AssertionError("the network does not come to rest")

    def tick(self, seconds: int = 1) -> None:
        """Lets time pass: each router's protocol has its tick every second."""
        for _ in range(seconds):
            for net in self.nets.values():
                net.advance(1.0, step=1.0)
            self.pump()
            for net in self.nets.values():
                if net.host is not None:
                    net.host.on_second(net.now)
                for part in (net.surroundings.edges, net.surroundings.uplinks):
                    if part is not None:
                        part.on_second(net.now)
            self.pump()

    def settle(self) -> None:
        """Waits until all routers know the way to all others, and the addresses there."""
        self.tick(6)

    def no_errors(self) -> None:
        for net in self.nets.values():
            net.no_errors()


def _outgoing(end: End, host: str, cost: int, terms: dict[str, Any]) -> Outgoing:
    net = end.net
    net._last_id += 1
    gate = ConnectionGate(
        net.gate,
        connection_id=net._last_id,
        connection_name=f"{host}:5672",
        remote_host="",
        listener=f"{host}:5672",
        is_governed=False,
        is_accepted=False,
    )
    strips = {"strips_in": False, "strips_out": False}
    connector = Connector(
        **{"name": "out", "host": host, "port": "5672", "role": "inter-router", "cost": cost, **strips, **terms}
    )
    return Outgoing(
        host=host,
        connector=connector,
        gate=gate,
        surroundings=net.surroundings,
        write=end.write,
        close=end.close_socket,
        on_opened=lambda _stack: net.deadlines.__setitem__(end, net.now),
        on_failed=lambda _text: None,
    )
