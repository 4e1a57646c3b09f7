"""A router in memory: real proton clients piped to real connections, no sockets, no sleeping, the clock in our hands.

    net = Net({"m": "multicast"})
    sender, receiver = net.client().sender("a"), net.client().receiver("a", credit=10)
    net.pump()
    sender.send(b"hello")
    net.pump()
    assert receiver.bodies == [b"hello"]

Pumping carries bytes both ways until nobody has any. A client that stops reading makes its socket fill up as a real
one does; a client that is killed leaves without a word.
"""

import gc
import itertools
import string
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import proton
from proton import Collector, Delivery, Event, Transport

from auth.credentials import VerifyRequest, VerifyResult
from policy.addressing.address import Address, resolve
from policy.ruleset import Ruleset, compile_ruleset
from policy.usage import UsageLedger
from router.admission.candidate import Shadow
from router.admission.connection_gate import ConnectionGate, Gate
from router.amqp.buffers import READ_BUFFER, READ_BYTES
from router.amqp.codec import decode
from router.amqp.engine import message_bytes
from router.connection.accepted import Connection, Stage
from router.connection.peer import Peer
from router.connection.surroundings import Surroundings, Verifier
from router.connection.terms import Listener
from router.core.addresses import Treatment
from router.core.budget import NO_LIMITS, Budgets, Limits
from router.core.core import Core
from router.core.progress import Progress
from router.core.work import Timed, Work
from router.effects import Audit, Effect, Log
from router.values import Described

ACCEPTED, REJECTED, RELEASED, MODIFIED = (
    Delivery.ACCEPTED,
    Delivery.REJECTED,
    Delivery.RELEASED,
    Delivery.MODIFIED,
)
# Unread bytes at which asyncio says pause_writing, and at which it takes that back.
SOCKET_HIGH_BYTES, SOCKET_LOW_BYTES = 512 * 1024, 128 * 1024

ROUTER_ID = "QDR"
PERFORMATIVES = {
    0x10: "open",
    0x11: "begin",
    0x12: "attach",
    0x13: "flow",
    0x14: "transfer",
    0x15: "disposition",
    0x16: "detach",
    0x17: "end",
    0x18: "close",
}


def at(text: str, tenant: str | None = None) -> Address:
    """The address of a clear text at the router in memory."""
    address = resolve(text, router_id=ROUTER_ID, tenant=tenant)
    assert isinstance(address, Address)
    return address


@dataclass(frozen=True)
class Frame:
    """One AMQP frame: performative, its fields as the codec gives them, what follows it."""

    channel: int
    name: str
    fields: list[Any]
    payload_bytes: int

    def __getitem__(self, index: int) -> Any:
        return self.fields[index] if index < len(self.fields) else None


def frames(data: bytes) -> Iterator[Frame]:
    """The frames of a recorded AMQP stream, its header and empty frames left out."""
    at = 8 if data.startswith(b"AMQP") else 0
    while at + 8 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        frame = data[at : at + size]
        at += size
        if size > 8:
            described, end = decode(frame, 8)
            assert isinstance(described, Described)
            yield Frame(
                int.from_bytes(frame[6:8], "big"), PERFORMATIVES[described.descriptor], described.value, size - end
            )


class Refusable:
    """Something that the router may end or answer with an error."""

    condition: proton.Condition | None

    @property
    def refusal(self) -> proton.Condition:
        """The error. There must be one."""
        assert self.condition is not None
        return self.condition


@dataclass
class Outcome(Refusable):
    """The state of a delivery as its sender sees it, one for each change."""

    state: int
    is_settled: bool
    condition: proton.Condition | None = None
    failed: bool = False
    undeliverable: bool = False
    annotations: Any = None
    data: Any = None


class Sending:
    """One delivery from the sender's side. Settling lets go of proton's object: while it is held, the client never
    answers a drain."""

    def __init__(self, sender: "Sender", delivery: Delivery) -> None:
        self.sender = sender
        self._delivery: Delivery | None = delivery
        self.updates: list[Outcome] = []

    @property
    def delivery(self) -> Delivery:
        assert self._delivery is not None, "already settled"
        return self._delivery

    @property
    def is_settled_here(self) -> bool:
        return self._delivery is None

    @property
    def outcome(self) -> int | None:
        """The final state; None while unsettled."""
        return self.updates[-1].state if self.updates and self.updates[-1].is_settled else None

    def settle(self) -> None:
        if self._delivery is not None:
            self._delivery.settle()
            self._delivery = None

    def abort(self) -> None:
        self.delivery.abort()
        self._delivery = None

    def update(self, state: int, data: Any = None) -> None:
        """Give a state and do not settle."""
        if data is not None:
            self.delivery.local.data = data
        self.delivery.update(state)

    def _on_update(self) -> None:
        delivery = self.delivery
        remote = delivery.remote
        self.updates.append(
            Outcome(
                state=int(delivery.remote_state),
                is_settled=delivery.settled,
                condition=remote.condition,
                failed=remote.failed,
                undeliverable=remote.undeliverable,
                annotations=remote.annotations,
                data=remote.data if int(delivery.remote_state) > 0x27 else None,
            )
        )
        if delivery.settled and self.sender.settles_back:
            self.settle()


class _End(Refusable):
    """The common part of a sender and a receiver of the test."""

    def __init__(self, client: "Client", link: Any) -> None:
        self.client = client
        self.link = link
        self.is_detached = False  # the router detached or closed it
        self.was_closed = False
        self.condition: proton.Condition | None = None

    @property
    def is_attached(self) -> bool:
        return bool(self.link.state & proton.Endpoint.REMOTE_ACTIVE)

    def detach(self) -> None:
        self.link.detach()

    def close(self) -> None:
        self.link.close()


class Sender(_End):
    def __init__(self, client: "Client", link: Any) -> None:
        super().__init__(client, link)
        self.sent: list[Sending] = []
        self.settles_back = True
        self._tags = itertools.count(1)
        self._by_tag: dict[str, Sending] = {}

    @property
    def credit(self) -> int:
        return int(self.link.credit)

    def start(self) -> Sending:
        """Begin a delivery that `append` and `finish` complete."""
        tag = str(next(self._tags))
        sending = self._by_tag[tag] = Sending(self, self.link.delivery(tag))
        self.sent.append(sending)
        return sending

    def append(self, data: bytes) -> None:
        self.link.stream(data)

    def finish(self) -> None:
        self.link.advance()

    def send(self, body: bytes = b"x", *, is_settled: bool = False, **fields: Any) -> Sending:
        """A message with a binary body; `fields` are proton.Message attributes."""
        return self.send_bytes(encoded(body, **fields), is_settled=is_settled)

    def send_bytes(self, payload: bytes, *, is_settled: bool = False) -> Sending:
        sending = self.start()
        self.append(payload)
        if is_settled:
            sending.settle()  # advances
        else:
            self.finish()
        return sending

    @property
    def outcomes(self) -> list[int | None]:
        return [sending.outcome for sending in self.sent]


class Received:
    """One delivery from the receiver's side."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery: Delivery | None = delivery
        self.payload = bytearray()
        self.is_complete = False
        self.is_aborted = False
        self.came_settled = False
        self.states: list[int] = []  # the sender's, as they came

    @property
    def delivery(self) -> Delivery:
        assert self._delivery is not None, "already settled"
        return self._delivery

    @property
    def is_settled_here(self) -> bool:
        return self._delivery is None

    @property
    def message(self) -> proton.Message:
        message = proton.Message()
        message.decode(bytes(self.payload))
        return message

    @property
    def body(self) -> bytes:
        message = self.message  # its body is a view into it
        assert isinstance(message.body, bytes | memoryview)
        return bytes(message.body)

    def accept(self) -> None:
        self.give(ACCEPTED)

    def give(self, state: int, *, is_settled: bool = True, **local: Any) -> None:
        """A disposition; `local` are attributes of proton.Disposition."""
        for name, value in local.items():
            setattr(self.delivery.local, name, value)
        self.delivery.update(state)
        if is_settled:
            self.settle()

    def settle(self) -> None:
        if self._delivery is not None:
            self._delivery.settle()
            self._delivery = None


class Receiver(_End):
    """`accepts` makes it accept and settle each complete message as it comes."""

    def __init__(self, client: "Client", link: Any, *, accepts: bool) -> None:
        super().__init__(client, link)
        self.accepts = accepts
        self.received: list[Received] = []
        self._open: Received | None = None

    def flow(self, credit: int) -> None:
        self.link.flow(credit)

    def drain(self, credit: int = 0) -> None:
        self.link.drain(credit)

    @property
    def credit(self) -> int:
        return int(self.link.credit)

    @property
    def complete(self) -> list[Received]:
        return [item for item in self.received if item.is_complete and not item.is_aborted]

    @property
    def bodies(self) -> list[bytes]:
        return [item.body for item in self.complete]

    def accept_all(self) -> None:
        for item in self.complete:
            if not item.is_settled_here and not item.delivery.local_state:
                item.accept()

    def _on_readable(self, delivery: Delivery) -> None:
        if self._open is None or self._open._delivery != delivery:
            self._open = Received(delivery)
            self.received.append(self._open)
        item = self._open
        item.came_settled = delivery.settled
        while not delivery.aborted and (data := self.link.recv(1 << 20)):
            item.payload += data
        if delivery.aborted:
            item.is_aborted = item.is_complete = True
            item.settle()
            self._open = None
        elif not delivery.partial:
            item.is_complete = True
            self.link.advance()
            self._open = None
            if self.accepts:
                item.accept()
            elif delivery.settled:
                item.settle()


class Client(Refusable):
    """One proton connection and the router's Connection it is piped to."""

    def __init__(self, net: "Net", listener: Listener, name: str, hostname: str | None) -> None:
        self.net = net
        self.name = name
        self.collector = Collector()
        self.connection = proton.Connection()
        self.session: proton.Session = self.connection.session()
        self.connection.container = name
        if hostname is not None:
            self.connection.hostname = hostname
        self.connection.collect(self.collector)
        self.transport = Transport()
        self.transport.bind(self.connection)
        self.inbox = bytearray()  # written by the router, not read by the client yet
        self.recorded = bytearray()  # everything the router wrote
        self.uttered = bytearray()  # everything the client wrote
        self.is_reading = True
        self.is_dead = False
        self.router_closed = False
        self.condition: proton.Condition | None = None
        self.ends: dict[Any, Sender | Receiver] = {}
        self.router = net.accept(listener, self)
        self._is_paused = False
        self._names = itertools.count(1)

    # What the router's socket does

    def write(self, data: bytes) -> None:
        if self.is_dead:
            return
        self.inbox += data
        self.recorded += data
        if len(self.inbox) > SOCKET_HIGH_BYTES and not self._is_paused:
            self._is_paused = True
            self.router.set_blocked(True, lambda: len(self.inbox))

    def close_socket(self) -> None:
        self.router_closed = True

    # What a test does

    def open(self) -> "Client":
        self.connection.open()
        self.session.open()
        return self

    def sender(self, address: str | None, *, name: str | None = None, session: Any = None, **terms: Any) -> Sender:
        """`terms`  target={"dynamic": True, ...}, source={...}, snd_settle_mode=..., rcv_settle_mode=..."""
        link = (session or self.session).sender(name or f"s{next(self._names)}")
        link.source.address = f"from-{self.name}"
        if address is not None:
            link.target.address = address
        end = Sender(self, link)
        self._attach(end, terms)
        return end

    def receiver(
        self,
        address: str | None,
        *,
        credit: int = 0,
        accepts: bool = False,
        name: str | None = None,
        session: Any = None,
        **terms: Any,
    ) -> Receiver:
        link = (session or self.session).receiver(name or f"r{next(self._names)}")
        if address is not None:
            link.source.address = address
        link.target.address = f"to-{self.name}"
        end = Receiver(self, link, accepts=accepts)
        self._attach(end, terms)
        if credit:
            end.flow(credit)
        return end

    def _attach(self, end: Any, terms: dict[str, Any]) -> None:
        link = end.link
        for which in ("source", "target"):
            for key, value in terms.pop(which, {}).items():
                if key in ("capabilities", "properties", "filter", "outcomes"):
                    getattr(link, which).__getattribute__(key).put_object(value)
                else:
                    setattr(getattr(link, which), key, value)
        for key, value in terms.items():
            setattr(link, key, value)
        link.open()
        self.ends[link] = end

    def stop_reading(self) -> None:
        """The router's socket fills up."""
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def kill(self) -> None:
        """Gone without a word; what the router had not read yet is lost, what it had written too."""
        if not self.is_dead:
            self.is_dead = True
            self.inbox.clear()
            self.router.on_lost()
            self.net.work.finish()

    def close(self) -> None:
        self.connection.close()

    def frames(self, name: str | None = None) -> list[Frame]:
        """The router's frames, without its TLS and SASL."""
        return [frame for frame in frames(bytes(self.recorded)) if name is None or frame.name == name]

    @property
    def is_closed_by_router(self) -> bool:
        return self.router_closed

    # Pumping

    def push_to_router(self) -> bool:
        """One read of at most `net.read_bytes`. True when something moved."""
        if self.router.has_more and not self.is_dead:
            self.go_on()
            return True
        size = 0 if self.is_dead or self.router.waits_for_room else self.transport.pending()
        if size <= 0 or self.router_closed:
            return False
        data = self.transport.peek(min(size, self.net.read_bytes))
        assert data is not None
        self.transport.pop(len(data))
        self.say(data)
        return True

    def say(self, data: bytes) -> None:
        """Bytes for the router as if they had come from the socket."""
        self.uttered += data
        begin = self.router.lay()
        READ_BUFFER[begin : begin + len(data)] = data
        self.router.receive_read(len(data))
        self.net.work.finish()
        while self.router.has_more and not self.net.is_sliced:
            self.go_on()

    def go_on(self) -> None:
        """The router gives the connection another turn for what it has read."""
        self.router.resume()
        self.net.work.finish()

    def pull_from_router(self) -> bool:
        if not self.is_reading or self.is_dead or not self.inbox:
            return False
        chunk = bytes(self.inbox[: 64 * 1024])
        del self.inbox[: len(chunk)]
        self._take(chunk)
        if self._is_paused and len(self.inbox) < SOCKET_LOW_BYTES:
            self._is_paused = False
            self.router.set_blocked(False)
            self.net.work.finish()
        return True

    def _take(self, data: bytes) -> None:
        while data:
            room = self.transport.capacity()
            if room <= 0:
                break
            self.transport.push(data[:room])
            data = data[room:]
            self._work_off_events()
        self._work_off_events()

    def _work_off_events(self) -> None:
        while (event := self.collector.peek()) is not None:
            self._on_event(event)
            self.collector.pop()

    def _on_event(self, event: Any) -> None:
        kind = event.type
        if kind == Event.DELIVERY:
            self._on_delivery(event.delivery)
        elif kind in (Event.LINK_REMOTE_DETACH, Event.LINK_REMOTE_CLOSE):
            end = self.ends.get(event.link)
            if end is not None:
                end.is_detached = True
                end.was_closed = kind == Event.LINK_REMOTE_CLOSE
                end.condition = event.link.remote_condition
                if end.was_closed:
                    event.link.close()
                else:
                    event.link.detach()
        elif kind == Event.CONNECTION_REMOTE_CLOSE:
            self.condition = self.connection.remote_condition
            self.connection.close()
        elif kind == Event.SESSION_REMOTE_CLOSE:
            event.session.close()

    def _on_delivery(self, delivery: Delivery) -> None:
        end = self.ends.get(delivery.link)
        if isinstance(end, Receiver):
            if delivery.readable:
                end._on_readable(delivery)
            else:
                for item in end.received:
                    if item._delivery == delivery:
                        item.states.append(int(delivery.remote_state))
                        item.came_settled = delivery.settled
        elif isinstance(end, Sender) and delivery.updated:
            sending = end._by_tag.get(delivery.tag)
            if sending is not None:
                sending._on_update()


@dataclass
class Vhosts:
    """Policy for a Net: vhost name -> attributes as management has them."""

    vhosts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=lambda: {"enableVhostPolicy": True})


def ruleset_of(vhosts: Vhosts | None) -> Ruleset:
    if vhosts is None:
        return compile_ruleset({}, (), resolve=_no_names)
    sources = [({"hostname": name, **attributes}, None) for name, attributes in vhosts.vhosts.items()]
    return compile_ruleset(vhosts.policy, sources, resolve=_no_names)


def _no_names(name: str) -> list[str]:
    raise OSError(f"no test resolves {name}")


class Net:
    """One router, its clients and the clock.

    distributions  address → distribution; whatever is not in it is `default`
    candidate      a policy to be tried beside that of `vhosts`
    read_bytes     how much of a client's bytes the router reads at once
    progress_s     the messageProgressTimeout; messages are looked at while time passes (`advance`)
    is_sliced      turns are over after two steps, and what is done later is done one step in each round of `pump`
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
        read_bytes: int = READ_BYTES,
        limits: Limits = NO_LIMITS,
        progress_s: int = 0,
        is_sliced: bool = False,
        **listener: Any,
    ) -> None:
        self.now = 1000.0
        self.wall_s = 1_700_000_000.0  # seconds since 1970 UTC
        self.remote_host = "10.0.0.1"  # of clients that come from now on
        self.verify: Verifier = _verify_nothing
        self.read_bytes = read_bytes
        self.effects: list[Effect] = []
        self.clients: list[Client] = []
        self.deadlines: dict[Client, float] = {}
        self.timers: dict[Timed, float] = {}
        self.is_sliced = is_sliced
        self.remainders: deque[Iterator[object]] = deque()
        self.work = Work(message_bytes, _short_turn, later=self.remainders.append) if is_sliced else Work(message_bytes)
        self.work.now_s = int(self.now)
        self.distributions = dict(distributions or {})
        self._random = itertools.count()
        self.core = Core(
            router_id=ROUTER_ID,
            work=self.work,
            treatment_of=lambda address: Treatment(distribution=self.distributions.get(address, default)),  # type: ignore[arg-type]
            random_name=self._random_name,
            clock=lambda: self.now,
            set_timer=self._set_timer,
        )
        self.core.budgets = Budgets(limits)
        self.progress = Progress(self.core.links, lambda: self.now)
        self.progress.timeout_s = progress_s
        self.surroundings = Surroundings(
            core=self.core,
            version="1.20.0",
            emit=self.effects.append,
            verify=lambda request, host, begins, done: self.verify(request, host, begins, done),
            wall_clock=lambda: self.wall_s,
        )
        self.ledger = UsageLedger()
        self.shadow = Shadow(self.effects.append) if candidate is not None else None
        self.gate = Gate(ruleset_of(vhosts), self.ledger, self.effects.append, self.shadow)
        if self.shadow is not None:
            self.shadow.use(ruleset_of(candidate))
        self.listener_terms: dict[str, Any] = {"capacity": capacity, **strip_terms(strip), **listener}
        self._last_id = 0

    def _set_timer(self, member: Timed, deadline: float | None) -> None:
        self.timers.pop(member, None)
        if deadline is not None:
            self.timers[member] = deadline

    def _random_name(self) -> str:
        number = next(self._random)
        return string.ascii_letters[number % 52] * 15 if number < 52 else f"{number:015d}"

    def listener(self, **terms: Any) -> Listener:
        merged = {"name": "l", "host": "127.0.0.1", "port": "5672", **self.listener_terms, **terms}
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
        """A new connection; it opens itself and one session unless `opens` is False."""
        if strip is not None:
            terms |= strip_terms(strip)
        client = Client(self, self.listener(**terms), name or f"c{len(self.clients) + 1}", hostname)
        self.clients.append(client)
        if opens:
            client.open()
        return client

    def accept(self, listener: Listener, client: Client) -> Connection:
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
        """Carry bytes both ways until nobody has any."""
        for _ in range(rounds):
            moved = self.do_later()
            for client in list(self.clients):
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
            if not moved:
                self.work.busy.clear()  # as the daemon does every second
                return
        raise AssertionError("the network does not come to rest")

    def do_later(self) -> bool:
        """One step of all that is to be done later. Was there any?"""
        for _ in range(len(self.remainders)):
            steps = self.remainders.popleft()
            if next(steps, self) is not self:
                self.remainders.append(steps)
            self.work.finish()
        return bool(self.remainders)

    def advance(self, seconds: float, *, step: float = 0.25) -> None:
        """Let time pass; timers run when they are due."""
        end = self.now + seconds
        while self.now < end:
            before, self.now = self.now, min(self.now + step, end)
            self.wall_s += self.now - before
            self.work.now_s = int(self.now)
            for client in list(self.clients):
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

    # Looking at the router

    @staticmethod
    def peer(client: Client) -> Peer:
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
        """Nothing crashed so far: an internal error is a bug of ours, whatever the peer did."""
        errors = [entry for entry in self.logs if entry.level == "error" and "handshake" not in entry.text]
        assert not errors, errors

    def nothing_left(self) -> None:
        """Everybody leaves: the router holds nothing any more."""
        for client in list(self.clients):
            client.kill()
        self.pump()
        self.no_errors()
        core, work = self.core, self.work
        assert not core.links
        assert not core.table.addresses
        assert not work.refill
        assert not work.touched
        assert not work.resumable
        assert not work.closing
        assert not self.timers
        assert self.ledger.open_connections == 0
        for client in self.clients:
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
    request: VerifyRequest, host: str, begins: Callable[[], bool], done: Callable[[VerifyResult], None]
) -> Callable[[], None]:
    raise AssertionError("no test here verifies credentials")


def strip_terms(strip: str) -> dict[str, bool]:
    return {"strips_in": strip in ("in", "both"), "strips_out": strip in ("out", "both")}


def encoded(body: bytes = b"x", **fields: Any) -> bytes:
    """A message as proton encodes it, with a binary body in one data section."""
    message = proton.Message(body=body, inferred=True, **fields)
    payload = message.encode()
    del message
    return bytes(payload)


def free_clients(net: Net) -> None:
    """Let go of proton's objects before the next test, not in the middle of it."""
    net.clients.clear()
    gc.collect()
