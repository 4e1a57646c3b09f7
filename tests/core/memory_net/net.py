"""The router in memory, the clock and the pump."""

import gc
import itertools
import string
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from auth.credentials import Answer, VerifyRequest
from memory_net.clients import Client
from memory_net.connected import End
from memory_net.policies import Vhosts, ruleset_of
from policy.addressing.address import Address, resolve
from policy.usage import UsageLedger
from router.admission.candidate import Shadow
from router.admission.connection_gate import ConnectionGate, Gate
from router.amqp.buffers import READ_BYTES
from router.amqp.engine import message_bytes
from router.connection.accepted import Connection, Stage
from router.connection.peer import Peer
from router.connection.surroundings import Place, assemble
from router.connection.terms import Listener, Verify
from router.core.addresses import LINK_ROUTES, Treatment
from router.core.budget import NO_LIMITS, Budgets, Limits
from router.core.progress import Progress
from router.core.work import Timed, Work
from router.effects import Audit, ConnectionMembers, Effect, Log, Refused
from router.linkstate.settings import Settings
from router.network.host import Host

ROUTER_ID = "QDR"


def at(text: str, tenant: str | None = None) -> Address:
    """Returns the address of a clear text at the router in memory."""
    address = resolve(text, router_id=ROUTER_ID, tenant=tenant)
    assert isinstance(address, Address)
    return address


class Net:
    """One router, its clients and the clock.

    distributions  address → distribution; all other addresses have `default`
    phases         address → phases of senders and receivers; the default is (0, 0)
    fallbacks      addresses with a fallback destination
    candidate      a candidate policy, asked in addition to that of `vhosts`
    read_bytes     how many bytes of a client the router reads at once
    connection_bytes  charge for a connection itself; 0, so that a test's numbers contain only what the test does
    progress_s     the messageProgressTimeout; messages are checked while time passes (`advance`)
    is_sliced      a turn ends after two steps, and later work runs one step in each round of `pump`
    is_edge        it is an edge router with the name router_id
    router_id      its name. With a name and without is_edge it is interior, and `connected.Fleet` moves its clock
    """

    def __init__(
        self,
        distributions: Mapping[str, str] | None = None,
        *,
        default: str = "balanced",
        capacity: int = 250,
        strip: str = "both",
        vhosts: Vhosts | None = None,
        candidate: Vhosts | None = None,
        phases: Mapping[str, tuple[int, int]] | None = None,
        fallbacks: frozenset[str] = frozenset(),
        read_bytes: int = READ_BYTES,
        limits: Limits = NO_LIMITS,
        connection_bytes: int = 0,
        progress_s: int = 0,
        is_sliced: bool = False,
        router_id: str | None = None,
        is_edge: bool = False,
        **listener: Any,
    ) -> None:
        self.now = 1000.0
        self.wall_s = 1_700_000_000.0  # seconds since 1970 UTC
        self.remote_host = "10.0.0.1"  # of clients that connect from now on
        self.verify: Verify = _verify_nothing
        self.read_bytes = read_bytes
        self.effects: list[Effect] = []
        self.clients: list[Client] = []
        self.ends: list[End] = []  # of connections to other routers
        self.deadlines: dict[Client | End, float] = {}
        self.timers: dict[Timed, float] = {}
        self.is_sliced = is_sliced
        self.remainders: deque[Iterator[object]] = deque()
        self.work = Work(message_bytes, _short_turn, later=self.remainders.append) if is_sliced else Work(message_bytes)
        self.work.now_s = int(self.now)
        self.distributions = dict(distributions or {})
        self.default, self.phases, self.fallbacks = default, dict(phases or {}), fallbacks
        self._random = itertools.count()
        # As the daemon does, except for its clock, its timers and its threads.
        self.surroundings = assemble(
            router_id=router_id or ROUTER_ID,
            version="1.20.0",
            work=self.work,
            treatment_of=self._treatment_of,
            random_name=self._random_name,
            clock=lambda: self.now,
            wall_clock=lambda: self.wall_s,
            set_timer=self._set_timer,
            emit=self.effects.append,
            place=Place(
                configured=self._configured if router_id is not None and not is_edge else None, is_edge=is_edge
            ),
        )
        self.core = self.surroundings.core
        self.host: Host | None = None
        self.core.budgets = Budgets(limits, connection_bytes=connection_bytes)
        self.progress = Progress(self.core.links, lambda: self.now)
        self.progress.timeout_s = progress_s
        self.ledger = UsageLedger()
        self.shadow = Shadow(self.effects.append) if candidate is not None else None
        self.gate = Gate(ruleset_of(vhosts), self.ledger, self.effects.append, self.shadow)
        if self.shadow is not None:
            self.shadow.use(ruleset_of(candidate))
        self.listener_terms: dict[str, Any] = {"capacity": capacity, **strip_terms(strip), **listener}
        self._last_id = 0
        if self.core.network is not None:
            self.join(instance=1)

    def _configured(self, name: str) -> Treatment | None:
        return self._treatment_of(name) if name in self.distributions or name in self.fallbacks else None

    def join(self, *, instance: int, **settings: Any) -> Host:
        """Starts the routing protocol, as the daemon does in the mode interior."""
        assert self.core.network is not None
        self.host = Host(
            settings=Settings(router_id=self.core.router_id, instance=instance, **settings),
            network=self.core.network,
            emit=self.emit,
            clock=lambda: self.now,
            facts_of=self._facts_of,
        )
        return self.host

    def emit(self, effect: Effect) -> None:
        """Handles an effect as the daemon does."""
        self.gate.folding.record(effect) if isinstance(effect, Refused) else self.effects.append(effect)

    def _facts_of(self, connection_id: int) -> ConnectionMembers:
        return next(each.router.gate.facts() for each in self.ends if each.router.connection_id == connection_id)

    def _set_timer(self, member: Timed, deadline: float | None) -> None:
        self.timers.pop(member, None)
        if deadline is not None:
            self.timers[member] = deadline

    def _treatment_of(self, address: str) -> Treatment:
        ingress, egress = self.phases.get(address, (0, 0))
        distribution: Any = self.distributions.get(address, self.default)
        has_fallback = address in self.fallbacks
        return Treatment(
            distribution=distribution, ingress_phase=ingress, egress_phase=egress, has_fallback=has_fallback
        )

    def _random_name(self) -> str:
        number = next(self._random)
        return string.ascii_letters[number % 52] * 15 if number < 52 else f"{number:015d}"

    def listener(self, **terms: Any) -> Listener:
        verify = {"verify": lambda *question: self.verify(*question)}
        merged = {"name": "l", "host": "127.0.0.1", "port": "5672", **verify, **self.listener_terms, **terms}
        return Listener(**merged)

    def client(
        self,
        name: str | None = None,
        *,
        strip: str | None = None,
        opens: bool = True,
        hostname: str | None = None,
        **terms: Any,
    ) -> Client:
        """Makes a new connection; it opens itself and one session unless `opens` is False."""
        if strip is not None:
            terms |= strip_terms(strip)
        client = Client(self, self.listener(**terms), name or f"c{len(self.clients) + 1}", hostname)
        self.clients.append(client)
        if opens:
            client.open()
        return client

    def accept(self, listener: Listener, client: "Client | End") -> Connection:
        self._last_id += 1
        name = f"{self.remote_host}:{self._last_id}"
        self.gate.accept(
            connection_id=self._last_id, remote_host=self.remote_host, connection_name=name, listener=listener.place
        )
        gate = ConnectionGate(
            self.gate,
            connection_id=self._last_id,
            connection_name=name,
            remote_host=self.remote_host,
            listener=listener.place,
            is_governed=listener.is_governed,
        )
        return Connection(
            listener=listener,
            gate=gate,
            surroundings=self.surroundings,
            write=client.write,
            close=client.close_socket,
            on_opened=lambda _connection: self.deadlines.__setitem__(client, self.now),
        )

    def pump(self, *, rounds: int = 100_000) -> None:
        """Carries bytes in both directions until no side has any."""
        for _ in range(rounds):
            if not self.carry():
                self.look_back()
                return
        raise AssertionError("the network does not come to rest")

    @property
    def peers(self) -> "list[Client | End]":
        return [*self.clients, *self.ends]

    def carry(self) -> bool:
        """Runs one round. Returns True if anything moved."""
        moved = self.do_later()
        for client in self.peers:
            moved |= client.push_to_router()
            moved |= client.pull_from_router()
            if client.router_closed and not client.is_dead and not client.inbox:
                client.is_dead = True
                client.router.on_lost()
                self.work.finish()
                moved = True
        if self.work.relieved:
            self.work.finish()
            moved = True
        return moved

    def look_back(self) -> None:
        """Does what the daemon does every second."""
        for _ in self.work.looking_back():
            self.work.finish()

    def do_later(self) -> bool:
        """Runs one step of each later task. Returns True if any task is left."""
        for _ in range(len(self.remainders)):
            steps = self.remainders.popleft()
            if next(steps, self) is not self:
                self.remainders.append(steps)
            self.work.finish()
        return bool(self.remainders)

    def advance(self, seconds: float, *, step: float = 0.25) -> None:
        """Lets time pass; timers run when they are due."""
        end = self.now + seconds
        while self.now < end:
            before, self.now = self.now, min(self.now + step, end)
            self.wall_s += self.now - before
            self.work.now_s = int(self.now)
            for client in self.peers:
                if client.is_dead:
                    continue
                deadline = self.deadlines.get(client, client.router._deadline)
                if deadline <= self.now:
                    following = client.router.on_timer(self.now)
                    self.deadlines[client] = following if following is not None else float("inf")
            for member in [member for member, deadline in self.timers.items() if deadline <= self.now]:
                self._set_timer(member, member.on_timer(self.now))
            for _ in self.progress.on_second():
                self.work.finish()
            self.work.finish()
            self.pump()

    # Views of the router

    @staticmethod
    def peer(client: "Client | End") -> Peer:
        assert client.router.peer is not None
        return client.router.peer

    @property
    def logs(self) -> list[Log]:
        return [effect for effect in self.effects if isinstance(effect, Log)]

    @property
    def audit_effects(self) -> list[Audit]:
        return [effect for effect in self.effects if isinstance(effect, Audit)]

    @property
    def audits(self) -> list[Mapping[str, Any]]:
        return [effect.event for effect in self.audit_effects]

    def log_texts(self, module: str = "ROUTER_CORE") -> list[str]:
        return [entry.text for entry in self.logs if entry.module == module]

    def no_errors(self) -> None:
        """Checks that nothing has crashed: an internal error is our own fault, whatever the peer did."""
        errors = [entry for entry in self.logs if entry.level == "error" and "handshake" not in entry.text]
        assert not errors, errors

    def nothing_left(self) -> None:
        """Makes all clients leave, and checks that the router holds nothing any more."""
        for client in self.peers:
            client.kill()
        self.pump()
        self.no_errors()
        core, work = self.core, self.work
        assert not core.links
        known = {f"R{router}" for router in core.network.routers} if core.network is not None else set()
        # Configured link routes, link routes that another router has announced, and addresses of the routing protocol.
        found = core.table.addresses.items()
        known |= {key for key, live in found if live.holders or live.is_control or key[0] in LINK_ROUTES}
        assert core.table.addresses.keys() <= known
        assert not work.refill
        assert not work.touched
        assert not work.resumable
        assert not work.closing
        assert not self.timers
        assert self.ledger.open_connections == 0
        for client in self.peers:
            assert client.router.stage is Stage.CLOSED
            peer = client.router.peer
            if peer is not None:
                assert peer.engine.is_freed
                assert not peer.attachment.in_links
                assert not peer.attachment.out_links


def _short_turn() -> Callable[[], bool]:
    steps = itertools.count(1)
    return lambda: next(steps) < 2


def _verify_nothing(
    request: VerifyRequest, host: str, begins: Callable[[], bool], done: Callable[[Answer], None]
) -> Callable[[], None]:
    raise AssertionError("no test here verifies credentials")


def strip_terms(strip: str) -> dict[str, bool]:
    return {"strips_in": strip in ("in", "both"), "strips_out": strip in ("out", "both")}


def free_clients(net: Net) -> None:
    """Releases proton's objects before the next test, not during it."""
    net.clients.clear()
    gc.collect()
