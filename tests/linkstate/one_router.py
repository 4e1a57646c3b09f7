"""One machine, R1, whose neighbours are the test: what it is told, and what it does."""

from typing import Any

from router.effects import Log
from router.linkstate.effects import AddressesChanged, Effect, FloodControl, RouterChanged, RouterRow, SendControl
from router.linkstate.limits import Limits
from router.linkstate.machine import Machine, ReceivedControl
from router.linkstate.settings import Settings

INSTANCE = 1795178302


class OneRouter:
    """sent, logs, rows, changes  what the machine asked for since `forget`; rows are the last of each router"""

    def __init__(self, limits: Limits | None = None, **settings: Any) -> None:
        self.machine = Machine(Settings(router_id="R1", instance=INSTANCE, **settings), limits)
        self.now = 1000.0
        self.rows: dict[str, RouterRow] = {}
        self.forget()

    def forget(self) -> None:
        self.sent: list[SendControl] = []
        self.logs: list[tuple[str, str, str]] = []
        self.changes: list[AddressesChanged] = []
        self.floods: list[FloodControl] = []
        self.effects: list[Effect] = []

    def tick(self, times: int = 1) -> None:
        """Each a second later than the one before."""
        for _ in range(times):
            self.now += 1
            self.take(self.machine.tick(self.now))
            while self.machine.has_work:
                self.take(self.machine.work())

    def link(self, tag: int, cost: int = 1, admitted_id: str | None = None) -> None:
        self.take(self.machine.link_up(tag, cost, self.now, admitted_id))

    def lose(self, tag: int) -> None:
        self.take(self.machine.link_lost(tag, self.now))

    def appear(self, key: str, hint: int = 3) -> None:
        self.take(self.machine.address_appeared(key, hint))

    def go(self, key: str) -> None:
        self.take(self.machine.address_gone(key))

    def hear(self, opcode: str, body: Any, tag: int = 1, key: str | None = None, trace: tuple[str, ...] = ()) -> None:
        """A control message with the given body; `key` is by default where the opcode goes."""
        to = key or {"HELLO": "Lqdhello", "RA": "Tqdrouter", "MAU": "Lqdrouter.ma", "MAR": "Lqdrouter.ma"}.get(
            opcode, "Lqdrouter"
        )
        received = ReceivedControl(link=tag, key=to, properties={"opcode": opcode}, body=body, trace=trace)
        self.take(self.machine.receive(received, self.now))

    def hello(self, router: str = "R2", tag: int = 1, *, instance: int = 100, seen: Any = ("R1",)) -> None:
        self.hear("HELLO", {"id": router, "pv": 1, "area": "0", "instance": instance, "seen": list(seen)}, tag)

    def ra(
        self,
        router: str = "R2",
        ls_seq: int = 0,
        mobile_seq: int = 0,
        *,
        instance: int = 100,
        tag: int = 1,
        trace: tuple[str, ...] = (),
    ) -> None:
        body = {"id": router, "pv": 1, "instance": instance, "ls_seq": ls_seq, "mobile_seq": mobile_seq}
        self.hear("RA", body, tag, trace=trace or (router,))

    def lsu(self, router: str, ls_seq: int, peers: dict[str, int], tag: int = 1, *, instance: int = 100) -> None:
        state = {"id": router, "area": "0", "ls_seq": ls_seq, "peers": peers}
        body = {"id": router, "pv": 1, "area": "0", "instance": instance, "ls_seq": ls_seq, "ls": state}
        self.hear("LSU", body, tag)

    def mau(self, router: str, mobile_seq: int, tag: int = 1, **lists: Any) -> None:
        """Lists by name; `del_` is del."""
        named = {name.rstrip("_"): value for name, value in lists.items()}
        self.hear("MAU", {"id": router, "pv": 1, "mobile_seq": mobile_seq, **named}, tag)

    def neighbour(self, router: str = "R2", tag: int = 1, cost: int = 1) -> None:
        """Make a neighbour whose link state names this router and nobody else, and a tick later forget how."""
        self.link(tag, cost)
        self.hello(router, tag)
        self.tick()
        self.lsu(router, 1, {"R1": cost}, tag)
        self.ra(router, 1, 0, tag=tag)
        self.tick()
        self.forget()

    def take(self, effects: list[Effect]) -> None:
        self.effects += effects
        for effect in effects:
            match effect:
                case SendControl():
                    self.sent.append(effect)
                case Log():
                    self.logs.append((effect.module, effect.level, effect.text))
                case RouterChanged():
                    self.rows[effect.row.id] = effect.row
                case AddressesChanged():
                    self.changes.append(effect)
                case FloodControl():
                    self.floods.append(effect)

    def of(self, opcode: str) -> list[SendControl]:
        """What was sent of one opcode."""
        return [sent for sent in self.sent if sent.opcode == opcode]

    def opcodes(self) -> list[str]:
        return [sent.opcode for sent in self.sent]

    def texts(self, *modules: str, level: str | None = None) -> list[str]:
        return [
            text
            for module, found, text in self.logs
            if (not modules or module in modules) and (level is None or found == level)
        ]

    def reached(self) -> dict[str, int]:
        return {row.id: row.path for row in self.rows.values() if row.path is not None}

    def mapped(self) -> list[tuple[str, int | None]]:
        return [pair for change in self.changes for pair in change.mapped]
