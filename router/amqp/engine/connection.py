"""The protocol engine of one AMQP connection.

Bytes reach this engine only after the peer has sent an exact AMQP header. So the TLS and SASL detection of a bare
proton transport never runs, and `transport.user` is never read.

Control frames (open, begin, attach, detach, end, close) go to an `Owner` by method calls with plain values. Messages do
not: the link objects call the functions that the core stored in their slots when it admitted the link.

Sources: AMQP 1.0 part 2; docs/journeys.md, the data plane.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Final, Protocol

from router.amqp.buffers import READ_BUFFER, READ_BYTES
from router.amqp.codec import encode
from router.amqp.engine import pool
from router.amqp.engine.attach_fields import AttachWriter, Capabilities
from router.amqp.engine.ended import EndedSessions
from router.amqp.engine.intake import Intake
from router.amqp.engine.library import OUTPUT_VIEW, READ_C, Pointer, ffi, lib
from router.amqp.engine.links import (
    GONE,
    Account,
    ConfirmedWire,
    IncomingWire,
    LinkOwner,
    OutgoingWire,
    Session,
    SessionOwner,
    Unlimited,
)
from router.amqp.engine.steps import CONTROL, FLOW, MESSAGE, NOTHING, OUTCOME, PULLS_ALL_BYTES, STEPS
from router.amqp.engine.values import (
    EngineError,
    close_frame,
    condition_of,
    drained_frame,
    encoded_symbols,
    place_of_attach,
    put_encoded,
    set_condition,
    symbols_of,
    text_of,
    value_of,
)
from router.amqp.guard import MAX_SPAN, CannotBegin, Guard, Performative
from router.amqp.guard.performatives import BEGIN, read_frame
from router.amqp.terminus import RemoteOpen, Violation
from router.values import Array, Condition

# If this number of bytes waits in the engine for one session, its links get nothing more (routing §10.1). Attack: a
# receiver that grants endless credit but no session window would fill our memory.
CONGESTED_BYTES: Final = 512 * 1024
RELIEVED_BYTES: Final = CONGESTED_BYTES // 2
# Attack: a peer attaches links that policy refuses, never answers our Detach, and attaches again: each link would stay.
# The limit also counts links on a session that we have ended and the peer has not.
MAX_UNANSWERED_DETACHES: Final = 1000
# If a session has at most this number of links, they all end at once. Otherwise they end during the connection's turns.
_ENDS_AT_ONCE: Final = 64
# Attack: ten thousand drains while the window is closed. Each flush would look at all of them, and answer them all at
# once.
_MAX_DRAINS: Final = 64
# The memory that the properties and capabilities of an Open take: as bytes, which are copied once, and as our values.
_COPIES_OF_OPEN: Final = 2
OPEN_VALUE_BYTES: Final = 160
# The number of sessions checked in each flush, so that a connection with many sessions does not slow down every pass.
_WATCHED_PER_FLUSH: Final = 8

# Hot path: one global name per C function, looked up once.
_push, _peek, _pop = lib.pn_transport_push, lib.pn_collector_peek, lib.pn_collector_pop
_step, _first_event, _next_event, _pull = STEPS.step, STEPS.first_event, STEPS.next_event, STEPS.pull

# proton logs this once if it could not make a frame. After that it writes nothing, and accepts all incoming bytes.
_FALLEN_SILENT: Final = "ERROR: process error"
_silent: set[Pointer] = set()  # transports that have logged it; usually empty
_traced: dict[Pointer, Callable[[str], None]] = {}  # transport -> the tracer of its frames


@cache
def _tracer() -> Pointer:
    """Returns the C function that proton calls for every frame of a traced transport, and for its own warnings.

    The function is one that the binding declares, so no executable memory has to be made at run time.
    """

    @ffi.def_extern(name="pn_pytracer")  # type: ignore[untyped-decorator]
    def on_frame(transport: Pointer, text: Pointer) -> None:
        said = bytes(ffi.string(text)).decode("utf-8", "replace")
        if said.startswith(_FALLEN_SILENT):
            _silent.add(transport)
        sink = _traced.get(transport)
        if sink is not None:
            sink(said)

    return lib.pn_pytracer


def limit_slices(seconds: float) -> None:
    """Sets how long the events of one read may take without a pause, for every engine. 0 means no limit."""
    STEPS.set_slice(int(seconds * 1e9))


def _nothing() -> None:
    """Does nothing: the default of a callback."""


def _next_in_time(has_time: Callable[[], bool], events: Pointer) -> int:
    """Does the same as `_next_event`, but stops when there is no time left."""
    if has_time():
        return _next_event(events)
    _pop(events)
    what = _first_event(events)
    _step.is_late = bool(what)
    return NOTHING


def _begun_channel(output: memoryview) -> int | None:
    """Returns the channel of our own Begin in `output`, which starts with a whole frame; None if there is no Begin."""
    at = 0
    while at < len(output):
        end = at + int.from_bytes(output[at : at + 4], "big")
        performative = read_frame(output[at:end])
        if performative is None or performative.code != BEGIN:
            return None
        if performative.get("remote-channel") is None:
            return performative.channel
        at = end
    return None


class Owner(SessionOwner, LinkOwner, Protocol):
    """The connection that an engine belongs to. It also owns the sessions and links that the peer began.

    The engine calls the on_* methods while it reads frames, and they must not call `Engine.receive`. Holders of the
    engine use the other methods.
    """

    def on_open(self, remote: RemoteOpen) -> None: ...
    def on_begin(self, session: "Session") -> None: ...
    def on_attach(self, link: "IncomingWire | OutgoingWire") -> None: ...
    def on_close(self, condition: Condition | None) -> None: ...
    def on_transport_error(self, condition: Condition) -> None: ...
    def crash(self, error: Exception, /) -> None: ...
    def note_deliveries(self) -> None: ...


class _Nobody(Owner):
    """The owner of a released engine: ignores all calls.

    A last timer or grant may still fail and report that (`crash`).
    """

    def on_end(self, session: "Session") -> None: ...
    def on_detach(self, link: "IncomingWire | OutgoingWire", *, is_closed: bool) -> None: ...
    def on_open(self, remote: RemoteOpen) -> None: ...
    def on_begin(self, session: "Session") -> None: ...
    def on_attach(self, link: "IncomingWire | OutgoingWire") -> None: ...
    def on_close(self, condition: Condition | None) -> None: ...
    def on_transport_error(self, condition: Condition) -> None: ...
    def crash(self, error: Exception, /) -> None: ...
    def note_deliveries(self) -> None: ...


_NOBODY: Final = _Nobody()


class Touched(Protocol):
    """The set of engines to flush at the end of this pass."""

    def add(self, engine: "Engine", /) -> None: ...


class Engine:
    """The AMQP engine of one connection. It owns the proton objects, and `free` releases them."""

    __slots__ = (
        "_scan_read",
        "account",
        "afterwards",
        "begins",
        "collector",
        "connection",
        "drains",
        "ended",
        "ending",
        "has_details",
        "heard",
        "intake",
        "is_blocked",
        "is_deaf",
        "is_freed",
        "is_late",
        "is_released",
        "left",
        "links",
        "on_behind",
        "opened",
        "owner",
        "released",
        "sessions",
        "touched",
        "transport",
        "unanswered",
        "watched",
        "watched_per_flush",
        "write",
    )

    def __init__(
        self,
        owner: Owner,
        write: Callable[[bytes], None],
        touched: Touched,
        *,
        container_id: str,
        max_frame_bytes: int,
        channel_max: int,
        idle_timeout_ms: int,
        is_server: bool = True,
    ) -> None:
        """Sets up the proton objects.

        touched  the engine adds itself to this set when bytes arrive
        """
        self.owner = owner
        self.write = write
        self.left = 8  # bytes to write before the next frame begins: at first AMQP's header
        self.touched = touched
        self.is_freed = False  # nothing more is written: the proton objects are released, or will be soon
        self.is_released = False
        self.unanswered = 0  # links that we closed or ignore, and that the peer has not detached
        self.is_deaf = False  # the connection is over: everything that the peer still sends is ignored
        self.is_late = False  # events, or `ending`, wait for the connection's next turn, `catch_up`
        self.ending: Iterator[None] | None = None  # releases the links of a session that has ended
        self.is_blocked = False  # the socket's buffer is full: bytes stay in the engine
        # A peer or the router gave states with details. The next flush releases the memory that proton keeps for
        # settled deliveries.
        self.has_details = False
        self.transport, self.connection, self.collector = lib.pn_transport(), lib.pn_connection(), lib.pn_collector()
        if not (self.transport and self.connection and self.collector):
            raise MemoryError
        if is_server:
            lib.pn_transport_set_server(self.transport)
        # Without a tracer proton writes its warnings about a peer's frames to our stderr, and no log setting applies to
        # them.
        lib.pn_transport_set_tracer(self.transport, _tracer())
        lib.pn_transport_set_max_frame(self.transport, max_frame_bytes)
        lib.pn_transport_set_channel_max(self.transport, channel_max)
        lib.pn_transport_set_idle_timeout(self.transport, idle_timeout_ms)
        lib.pn_connection_set_container(self.connection, container_id.encode())
        lib.pn_connection_collect(self.connection, self.collector)
        lib.pn_transport_bind(self.transport, self.connection)
        self.links: dict[Pointer, IncomingWire | OutgoingWire] = {}
        # The links whose deliveries have an effect. The kind of an event shows whether its wire is incoming or
        # outgoing.
        self.heard: dict[Pointer, Any] = {}
        self.sessions: dict[Pointer, Session] = {}
        self.ended = EndedSessions()
        self.account: Account = Unlimited()
        self.opened = 0  # bytes that the account pays for the contents of the peer's Open
        # Sessions on which the router sends, and sessions from which it has not yet taken everything.
        self.watched: deque[Session] = deque()
        self.watched_per_flush = _WATCHED_PER_FLUSH
        self.on_behind: Callable[[], None] = _nothing  # called if frames wait: see has_more and waits_for_room
        guard = Guard(max_frame_bytes=max_frame_bytes, channel_max=channel_max)
        self.intake = Intake(self, guard)
        self._scan_read = guard.tables.scan_read
        self.afterwards: list[Callable[[], None]] = []  # functions to call after all events are handled
        self.released: list[Pointer] = []  # links that are freed, but that proton has not yet destroyed
        self.drains: dict[OutgoingWire, None] = {}  # links whose receivers wait for the message that no credit is left
        self.begins: list[tuple[Session, int]] = []  # sessions to begin, usually few, with their incoming capacity

    # Bytes

    def receive(self, data: bytes) -> None:
        """Takes plaintext bytes and acts on every frame in them, or on as many as this turn has time for."""
        size = len(data)
        if size <= READ_BYTES:
            begin = self.intake.lay()
            READ_BUFFER[begin : begin + size] = data
            self.receive_read(size)
        else:
            self.touched.add(self)
            self.intake.take(data, 0, size)

    def receive_read(self, size: int) -> None:
        """Takes `size` bytes of READ_BUFFER, from the place where the intake put the beginning of a frame. Hot."""
        self.touched.add(self)
        intake, stop = self.intake, 0
        if intake.laid:
            size += intake.take_laid()
        if intake.rest is None and (stop := self._scan_read(size, MAX_SPAN)) > 0:
            transport = self.transport
            at = _push(transport, READ_C, stop)
            # proton takes about 16 KiB at once. A negative number is an error, which proton also reports by an event.
            while 0 < at < stop:
                taken = _push(transport, READ_C + at, stop - at)
                at = at + taken if taken > 0 else 0
            self.drain()
        if stop < size or self.is_late:
            intake.take(READ_BUFFER, stop, size)

    @property
    def has_more(self) -> bool:
        """True if frames wait for this connection's next turn."""
        return self.intake.is_waiting and not self.waits_for_room

    @property
    def waits_for_room(self) -> bool:
        """True if frames wait until the peer has read our answers to earlier frames."""
        return self.intake.waits_for_room and self.is_blocked

    def resume(self) -> None:
        """Gives the waiting frames another turn."""
        self.touched.add(self)
        self.intake.go_on()

    def touch(self) -> None:
        """Makes sure that the engine is flushed at the end of this pass."""
        self.touched.add(self)

    def flush(self) -> None:
        """Writes every byte that the engine has ready."""
        if self.is_blocked or self.is_freed:
            return
        transport, write = self.transport, self.write
        while not self.is_blocked and (size := _pull(transport, self.left)) > 0:
            self.left = _step.left
            write(bytes(OUTPUT_VIEW[:size]))
            if size < PULLS_ALL_BYTES:
                break
        if self.has_details:
            self._shed_details()
        if _silent and transport in _silent:
            _silent.discard(transport)
            raise Violation("amqp:internal-error", "what the peer asked for cannot be answered")
        if self.drains:
            self._answer_drains()
        if self.watched:
            self._watch_backlog()
        if self.is_deaf or self.afterwards or _first_event(self.collector):
            self.drain()
        if self.ended:
            self.ended.look()

    def write_early(self) -> None:
        """Writes the bytes that are ready during a pass; `flush` follows at the end of the pass."""
        if not self.is_blocked and not self.is_freed:
            size = _pull(self.transport, self.left)
            self.left = _step.left
            if size > 0:
                self.write(bytes(OUTPUT_VIEW[:size]))
            if self.has_details:
                self._shed_details()

    def _shed_details(self) -> None:
        """Releases the memory that proton keeps for settled deliveries, before proton uses it for other deliveries.

        Attack: outcomes with long errors, settled. Each following message was given a delivery object that held such an
        error.
        """
        for _ in pool.releasing(self.connection):
            pass

    def _pulled(self) -> memoryview:
        """Returns the bytes that the engine has ready, as many as it gives at once, to be written."""
        size = _pull(self.transport, self.left)
        self.left = _step.left
        return OUTPUT_VIEW[: max(size, 0)]

    def catch_up(self, has_time: Callable[[], bool]) -> None:
        """Acts on the events that wait, as long as there is time."""
        if self.ending is not None:
            for _ in self.ending:
                if not has_time():
                    return
            self.ending = None
        self.is_late = False
        self.drain(has_time)

    def set_blocked(self, is_blocked: bool) -> None:
        """Notes that the socket's buffer is full, or has room again."""
        self.is_blocked = is_blocked
        if not is_blocked:
            self.touched.add(self)
            if self.begins:
                self.afterwards.append(self._write_begins)

    def _watch_backlog(self) -> None:
        watched = self.watched
        for _ in range(min(len(watched), self.watched_per_flush)):
            session = watched.popleft()
            if session.is_ended:
                continue
            watched.append(session)
            if session.untaken:
                session.charge_incoming()
                session.grow()
            backlog = session.charge_outgoing()
            if backlog > CONGESTED_BYTES and not session.is_congested:
                session.is_congested = True
                self._tell_senders(session)
            elif session.is_congested and (backlog <= RELIEVED_BYTES or session.find_lost()):
                self._relieve(session)  # the waiting data belonged to links that are gone, so no Flow reports it

    def _relieve(self, session: Session) -> None:
        session.is_congested = False
        self._tell_senders(session)

    def _tell_senders(self, session: Session) -> None:
        """Tells the sending links that the session's congestion has begun or ended."""
        for link in list(session.wires.values()):
            if isinstance(link, OutgoingWire) and link.on_credit is not None:
                link.on_credit()

    def tick(self, now_ms: int) -> int:
        """Runs the idle timers. Returns the time (ms) at which to call again, 0 for never."""
        deadline = int(lib.pn_transport_tick(self.transport, now_ms))
        self.drain()
        return deadline

    # Events

    def drain(self, has_time: Callable[[], bool] | None = None) -> None:
        """Gives every event to the object that it concerns. Hot for deliveries and credit, cold for the rest.

        Attack: one frame may settle a hundred thousand deliveries, or be a message for ten thousand receivers. If the
        time runs out, the remaining events wait, and this does nothing until `catch_up`: see is_late. If a handler
        raises an exception, that event and all later ones are discarded.

        has_time  tells whether the connection's turn has time left; None: the time for the events of one read
        """
        events, heard, step, next_event = self.collector, self.heard, _step, _next_event
        if self.is_deaf:
            self._discard_events()
            return
        if self.is_late:
            return
        if has_time is not None:
            next_event = partial(_next_in_time, has_time)
        try:
            what = _first_event(events)
            while what:
                if what > 0:
                    if not self.is_deaf:
                        _CONTROL[what](self, _peek(events))
                elif what == FLOW:
                    self._on_flow(step.link)
                elif (wire := heard.get(step.link)) is not None:
                    if what == MESSAGE:
                        wire.on_message(step.delivery)
                    elif what == OUTCOME:
                        wire.on_accepted(step.delivery)
                    else:
                        wire.on_delivery(step.delivery)
                what = next_event(events)
        except BaseException:
            self._discard_events()
            raise
        if step.is_late:
            self.is_late = True
        if self.is_late:
            return
        afterwards = self.afterwards
        while afterwards:
            afterwards.pop()()

    def _discard_events(self) -> None:
        """Discards the waiting events without reading them: their links and deliveries may be gone."""
        self.is_late = False
        events = self.collector
        while _peek(events):
            _pop(events)

    def stop_listening(self) -> None:
        """Ends the connection for the engine: everything that the peer has sent or will send is ignored."""
        self.is_deaf = True
        self.heard.clear()
        self.watched.clear()
        self.drains.clear()
        self.afterwards.clear()
        self.ending = None
        self.intake.end()

    def answer_drain(self, wire: OutgoingWire) -> None:
        """Tells the receiver with the next flush, after the link's last message, that it has no credit left.

        Each link has at most one answer waiting. If too many links wait, the link must ask again at its next event.
        """
        if len(self.drains) < _MAX_DRAINS:
            self.drains[wire] = None
            self.touched.add(self)

    def _answer_drains(self) -> None:
        """Answers drains of links without credit. proton does not answer these, but a receiver may wait for the answer.

        proton's own Flow carries the session's windows and ids. Our Flow replaces it.
        """
        if self.is_blocked:
            return
        waiting, self.drains = self.drains, {}
        for wire in waiting:
            limit, place, link = wire.drain_limit, wire.place, wire.link
            if self.links.get(link) is not wire or wire.core is None or limit is None or place is None:
                continue
            if self.is_blocked or lib.pn_link_queued(link):
                self.drains[wire] = None  # only after the link's messages have left
                continue
            credit = lib.pn_link_credit(link)
            wire.drain_limit = None
            if credit > 0 or not lib.pn_link_get_drain(link) or wire.session.is_closing:
                continue
            wire.session.show_window()
            output = self._pulled()
            flow = drained_frame(output, place[1], (limit - credit) & 0xFFFFFFFF)
            self.write(flow or bytes(output))

    def _on_flow(self, pointer: Pointer) -> None:
        link = self.links.get(pointer)
        guard = self.intake.guard
        if guard.drain_limit is not None:
            if isinstance(link, OutgoingWire):
                link.drain_limit = guard.drain_limit
            guard.drain_limit = None
        if isinstance(link, OutgoingWire):
            session = link.session
            if session.is_congested:
                if session.backlog_bytes <= RELIEVED_BYTES:
                    self._relieve(session)
            elif link.on_credit is not None:
                link.on_credit()
        elif isinstance(link, IncomingWire) and link.core is not None and (drained := lib.pn_link_drained(pointer)) > 0:
            link.core.on_drained(drained)

    @property
    def _acting(self) -> Performative:
        """The frame that the current event is about: the engine acts on one frame before it looks at the next."""
        acting = self.intake.guard.acting
        assert acting is not None
        return acting

    @property
    def details_bytes(self) -> int:
        """The memory for the state that the peer has just given, for each delivery, without the delivery's record."""
        return self.intake.guard.details

    def _on_open(self, _event: Pointer) -> None:
        connection = self.connection
        said = self._acting.kept
        self.opened = _COPIES_OF_OPEN * self._acting.kept_bytes + OPEN_VALUE_BYTES * self._acting.values
        self.account.charge(self.opened)
        properties = value_of(said.get("properties", b""))
        self.owner.on_open(
            RemoteOpen(
                container_id=text_of(lib.pn_connection_remote_container(connection)) or "",
                hostname=text_of(lib.pn_connection_remote_hostname(connection)),
                offered_capabilities=symbols_of(said.get("offered-capabilities", b"")),
                desired_capabilities=symbols_of(said.get("desired-capabilities", b"")),
                properties=properties if isinstance(properties, dict) else {},
            )
        )

    def _on_begin(self, event: Pointer) -> None:
        pointer = lib.pn_event_session(event)
        if (begun := self.sessions.get(pointer)) is not None:
            begun.take_answer()
            return
        session = self.sessions[pointer] = Session(self, pointer, self.owner)
        self.owner.on_begin(session)

    def _on_end(self, event: Pointer) -> None:
        pointer = lib.pn_event_session(event)
        session = self.sessions.pop(pointer, None)
        if session is None:
            return
        if len(session.wires) > _ENDS_AT_ONCE:
            session.is_ended = True
            self.sessions[pointer] = session  # until the last of its links is gone
            lib.pn_session_close(pointer)
            session.owner.on_end(session)
            self.ending, self.is_late = self._end_links(session), True
            return
        session.is_ended = True
        for link in session.living():
            link.owner.on_detach(link, is_closed=False)
            link.cut_short()
            self.forget(link.link)
        session.owner.on_end(session)
        lib.pn_session_close(pointer)
        self.ended.free(session)

    def _end_links(self, session: Session) -> Iterator[None]:
        """Releases the links of a session that the peer has ended, one by one, and then the session.

        Our End leaves with the flush at the end of this turn, before the first link is released. So proton frees each
        link at once. If the connection ends meanwhile, `freeing` does the rest.
        """
        for wire in session.living():
            if self.is_deaf:
                return
            wire.owner.on_detach(wire, is_closed=False)
            yield
        for wire in session.living():
            if self.is_deaf:
                return
            link = wire.link
            self.forget(link)
            self._release(link)
            yield
        for _ in self._let_go():
            if self.is_deaf:
                return
            yield
        del self.sessions[session.pointer]
        self.ended.free(session)

    def _on_attach(self, event: Pointer) -> None:
        pointer = lib.pn_event_link(event)
        if (begun := self.links.get(pointer)) is not None:
            self._take_rest(begun)
            begun.take_answer()
            self._watch(begun)
            return
        if self.unanswered > MAX_UNANSWERED_DETACHES:
            raise EngineError(f"more than {MAX_UNANSWERED_DETACHES} links closed by us without an answer")
        kind: type[IncomingWire | OutgoingWire] = OutgoingWire
        if lib.pn_link_is_receiver(pointer):
            is_second = lib.pn_link_remote_rcv_settle_mode(pointer) == lib.PN_RCV_SECOND
            kind = ConfirmedWire if is_second else IncomingWire
        wire = kind(self, pointer, self.owner)
        self._take_rest(wire)
        self.links[pointer] = self.heard[pointer] = wire.session.wires[pointer] = wire
        if isinstance(wire, OutgoingWire):
            self._attach_alone(wire)
        else:
            self.owner.on_attach(wire)

    def _take_rest(self, wire: IncomingWire | OutgoingWire) -> None:
        """Takes the parts of the Attach that proton ignores or would store as nodes: see read_attach."""
        attach = self._acting
        wire.read_attach(attach)
        wire.has_source, wire.has_target = "source" in attach.fields, "target" in attach.fields
        if capabilities := Capabilities(*attach.capabilities):
            wire.keep_capabilities(capabilities)

    def write_capabilities(self, wire: IncomingWire | OutgoingWire, capabilities: Capabilities) -> None:
        """Adds capabilities to our Attach of the link, which is the next one to be written."""
        if not isinstance(self.write, AttachWriter):
            self.write = AttachWriter(self.write, self.left, self._write_plainly)
        self.write.expect(wire.name.encode(), capabilities, is_receiver=isinstance(wire, IncomingWire))

    def _write_plainly(self) -> None:
        """Writes without an AttachWriter again: no waiting Attach needs additional capabilities."""
        if isinstance(self.write, AttachWriter):
            self.write = self.write.write

    def _attach_alone(self, wire: OutgoingWire) -> None:
        """Tells the owner about the Attach. The owner may attach at once."""

        def tell() -> None:
            self.owner.on_attach(wire)
            self._watch(wire)

        self.attach_alone(wire, tell)

    def attach_alone(self, wire: OutgoingWire, attach: Callable[[], None]) -> None:
        """Writes our Attach alone, after everything that was sent before it: `_answer_drains` needs its place."""
        if self.is_deaf:
            attach()  # the connection is over since the peer asked
            return
        while not self.is_blocked and (output := self._pulled()):
            self.write(bytes(output))
        attach()
        if wire.core is not None and not self.is_blocked and (output := self._pulled()):
            wire.place = place_of_attach(output)
            self.write(bytes(output))

    def _watch(self, wire: IncomingWire | OutgoingWire) -> None:
        """Watches the session for congestion if the router sends on it."""
        if isinstance(wire, OutgoingWire) and wire.core is not None:
            self.watch(wire.session)

    def watch(self, session: Session) -> None:
        """Checks from time to time what the engine holds for the session, until the session ends."""
        if not session.is_watched:
            session.is_watched = True
            self.watched.append(session)

    def _on_detach(self, event: Pointer) -> None:
        link = self.links.get(lib.pn_event_link(event))
        if link is not None:
            is_closed = lib.pn_event_type(event) == lib.PN_LINK_REMOTE_CLOSE
            link.info_values = self._acting.values
            link.owner.on_detach(link, is_closed=is_closed)
            if not link.is_answered_later:
                link.answer_detach(is_closed=is_closed)

    def forget(self, pointer: Pointer) -> None:
        """Removes a link that is about to be released from all tables."""
        link = self.links.pop(pointer, None)
        if link is not None:
            link.link = GONE
            link.free_charges()
            if isinstance(self.write, AttachWriter):
                self.write.forget(link.name.encode(), is_receiver=isinstance(link, IncomingWire))
            link.session.wires.pop(pointer, None)
            if link.awaits_detach:
                self.unanswered -= 1
        self.heard.pop(pointer, None)

    def _on_close(self, _event: Pointer) -> None:
        self.owner.on_close(condition_of(lib.pn_connection_remote_condition(self.connection)))

    def _on_transport_error(self, _event: Pointer) -> None:
        condition = condition_of(lib.pn_transport_condition(self.transport))
        self.owner.on_transport_error(condition or Condition(name="amqp:internal-error", description=""))

    def trace(self, sink: Callable[[str], None] | None) -> None:
        """Calls `sink` with the text of every frame from now on, `FRAME: 0 -> @begin(17) […]`. None stops that."""
        if sink is None:
            lib.pn_transport_trace(self.transport, lib.PN_TRACE_OFF)
            _traced.pop(self.transport, None)
            return
        _traced[self.transport] = sink
        lib.pn_transport_trace(self.transport, lib.PN_TRACE_FRM)

    # Answers

    def open(
        self,
        *,
        properties: dict[Any, Any] | bytes,
        capabilities: Array,
        hostname: str | None = None,
        max_frame_bytes: int | None = None,
        channel_max: int | None = None,
    ) -> None:
        """Sends our Open. Limits given here replace those of the listener (policy, docs §3.3).

        properties  a dictionary, or already encoded
        """
        self.intake.guard.offer(max_frame_bytes=max_frame_bytes, channel_max=channel_max)
        if max_frame_bytes is not None:
            lib.pn_transport_set_max_frame(self.transport, max_frame_bytes)
        if channel_max is not None:
            lib.pn_transport_set_channel_max(self.transport, channel_max)
        if hostname is not None:
            lib.pn_connection_set_hostname(self.connection, hostname.encode())
        own_properties = lib.pn_connection_properties(self.connection)
        put_encoded(own_properties, properties if isinstance(properties, bytes) else encode(properties))
        encoded = encoded_symbols(capabilities)
        put_encoded(lib.pn_connection_offered_capabilities(self.connection), encoded)
        put_encoded(lib.pn_connection_desired_capabilities(self.connection), encoded)
        lib.pn_connection_open(self.connection)

    def close(self, condition: Condition | None = None) -> None:
        """Sends Close, with the error if one is given."""
        if condition is not None:
            set_condition(lib.pn_connection_condition(self.connection), condition)
        lib.pn_connection_close(self.connection)

    @property
    def tells_why(self) -> bool:
        """True if our side has closed with an error, and the peer's Close has not yet come."""
        if self.is_freed:
            return False
        connection = self.connection
        is_over = lib.pn_connection_state(connection) & lib.PN_REMOTE_CLOSED
        return not is_over and bool(lib.pn_condition_is_set(lib.pn_connection_condition(connection)))

    def begin_session(self, owner: SessionOwner, *, incoming_capacity_bytes: int) -> Session:
        """Begins a session of our own. `owner` gets the end of this session, but not the end of the connection.

        The Begin leaves with a flush. `Session.on_answer` is called when links can be attached. Errors: CannotBegin
        """
        if not self.can_begin:
            raise CannotBegin("the connection is not open")
        self._write_answers()
        self.intake.guard.promise_session()
        pointer = lib.pn_session(self.connection)
        if not pointer:
            raise MemoryError
        session = self.sessions[pointer] = Session(self, pointer, owner, is_begun=True)
        self.begins.append((session, incoming_capacity_bytes))
        if len(self.begins) == 1:
            self.afterwards.append(self._write_begins)
        self.touched.add(self)
        return session

    @property
    def can_begin(self) -> bool:
        """True if our Open has been sent, and no Close."""
        return not self.is_deaf and bool(lib.pn_connection_state(self.connection) & lib.PN_LOCAL_ACTIVE)

    @property
    def channels_left(self) -> int:
        """The number of sessions that may still be begun, without those that wait to be written."""
        self._write_answers()
        return self.intake.guard.channels_left

    def promise_link(self, session: Session, name: bytes, *, peer_sends: bool) -> None:
        """Notes that the peer may answer our Attach with this name on the session. Errors: CannotBegin"""
        assert session.channel is not None
        self.intake.guard.promise_link(session.channel, name, peer_sends=peer_sends)

    def handles_left(self, session: Session) -> int:
        """Returns the number of links that may still be attached on a session that the router began."""
        guard, channel = self.intake.guard, session.channel
        if channel is None:
            return 0
        if guard.handles_left(channel) <= 0:
            self._write_answers()
        return guard.handles_left(channel)

    def _write_answers(self) -> None:
        """Writes all waiting answers to Detach and End.

        The guard counts their links and sessions until they are written.
        """
        guard = self.intake.guard
        if not guard.unwritten or self.is_freed:
            return
        while not self.is_blocked and (output := self._pulled()):
            self.write(bytes(output))
        if not self.is_blocked:
            guard.written()

    @property
    def channels(self) -> int:
        """The maximum number of sessions."""
        return self.intake.guard.channel_max + 1

    def adopt(self, wire: IncomingWire | OutgoingWire) -> None:
        """Registers a link that we attach, so that its events arrive."""
        self.links[wire.link] = self.heard[wire.link] = wire.session.wires[wire.link] = wire

    def _write_begins(self) -> None:
        """Writes the waiting Begins, each alone: their channels are visible only in the written frames.

        INVARIANT: the guard knows the channel before an answer to the Begin can arrive.
        """
        self.flush()
        while self.begins and not self.is_blocked and self.can_begin:
            # Everything before this has been written, so the output starts with a whole frame.
            session, capacity_bytes = self.begins.pop(0)
            session.accept(incoming_capacity_bytes=capacity_bytes)
            output = self._pulled()
            session.channel = _begun_channel(output)
            if session.channel is None:
                raise Violation("amqp:internal-error", "a session cannot be begun")
            self.intake.guard.begun.sent(session.channel)
            self.write(bytes(output))
            self.flush()

    def refuse(self, condition: Condition) -> None:
        """Ends the connection with this error, because the guard does not admit a frame."""
        self.stop_listening()
        if self.intake.guard.is_open:
            self.close(condition)
        else:
            # The engine would hold its Close until it has received the peer's Open.
            lib.pn_connection_open(self.connection)
            self.flush()
            if not self.is_blocked:
                self.write(close_frame(condition))
        self.owner.on_transport_error(condition)

    def _release(self, link: Pointer) -> None:
        """Does the first half of the release of one of many links.

        proton searches for a link in the list of its session when it is freed, and again when it is destroyed. If the
        oldest link is freed first, and all links are freed before any is destroyed, each search ends at once.
        """
        lib.pn_incref(link)
        lib.pn_link_free(link)
        self.released.append(link)

    def _let_go(self) -> Iterator[None]:
        """Does the second half of the release: destroys the freed links, one in each step."""
        released = self.released
        while released:
            lib.pn_decref(released.pop())
            yield

    def free(self) -> None:
        """Releases the proton objects. The engine is then unusable, and another call does nothing."""
        for _ in self.freeing():
            pass

    def release_settled(self) -> Iterator[None]:
        """Releases, in steps, the memory that proton keeps for settled deliveries (router.amqp.engine.pool)."""
        self.has_details = False
        for _ in pool.releasing(self.connection):
            yield
            if self.is_freed:
                return

    def fall_silent(self) -> None:
        """Stops all reading and writing. `freeing` must follow."""
        self.is_freed = True
        self.stop_listening()

    def freeing(self) -> Iterator[None]:
        """Does `free` in steps. No caller may use a link or a delivery of the engine any more.

        The accounts pay for the memory until it is released. Attack: connections that fill their budget and close,
        faster than their memory is released.
        """
        self.fall_silent()
        if self.is_released:
            return
        self.is_released = True
        links, sessions = list(self.links.values()), list(self.sessions.values())
        self.links.clear()
        self.sessions.clear()
        if self.transport in _traced:
            self.trace(None)
        _silent.discard(self.transport)
        lib.pn_transport_unbind(self.transport)
        lib.pn_collector_release(self.collector)
        yield
        for link in links:
            pointer, link.link = link.link, GONE
            self._release(pointer)
            yield
        yield from self._let_go()
        for session in sessions:
            pointer, session.pointer = session.pointer, GONE
            lib.pn_session_free(pointer)
            yield
        while self.ended:
            self.ended.let_go()
            yield
        connection, transport, collector = self.connection, self.transport, self.collector
        self.connection = self.transport = self.collector = GONE
        lib.pn_connection_release(connection)
        lib.pn_decref(transport)
        lib.pn_decref(connection)
        lib.pn_collector_free(collector)
        for paid in (*links, *sessions):
            paid.free_charges()
            yield
        self.account.charge(-self.opened)
        for session in sessions:
            session.wires.clear()
        self._come_apart()

    def _come_apart(self) -> None:
        """Removes references back to the released engine.

        Otherwise it stays until the garbage collector looks for cycles.
        """
        self.owner = _NOBODY
        del self.intake.engine
        self.account = Unlimited()
        self.on_behind = _nothing
        self.ending = None
        self.drains.clear()
        self.watched.clear()
        self.begins.clear()
        self.afterwards.clear()


_CONTROL: dict[int, Callable[[Engine, Pointer], None]] = dict(
    zip(
        CONTROL,
        (
            Engine._on_open,
            Engine._on_begin,
            Engine._on_end,
            Engine._on_attach,
            Engine._on_detach,
            Engine._on_detach,
            Engine._on_close,
            Engine._on_transport_error,
        ),
        strict=True,
    )
)
