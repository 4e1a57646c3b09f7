"""One AMQP connection's protocol engine: the only importer of proton.

proton's C functions are called directly (`cproton_ffi.lib`), never through its object wrappers: those cost forty
times as much per message. Bytes reach this engine only after the peer sent an exact AMQP header, so the TLS and
SASL detection of a bare proton transport never runs; `transport.user` is never read.

Control (open, begin, attach, detach, end, close) goes to an `Owner` by method calls with plain values. Messages do not:
the link objects below call what the core put into their slots when the link was admitted.

Sources: AMQP 1.0 part 2; docs/architecture.md, the data plane.
"""

from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any, Final, Protocol

from cproton_ffi import ffi, lib

from router.amqp.codec import CodecError, decode, encode
from router.amqp.terminus import Condition, RemoteOpen, Terminus
from router.values import Array

# A message is handed on in one piece up to this size; what is larger, or still incomplete at it, is streamed.
STREAM_AT_BYTES: Final = 128 * 1024
MESSAGE_BYTES: Final = 256 * 1024  # one more read (64 KiB) and one frame fit on top of STREAM_AT_BYTES
MESSAGE = bytearray(MESSAGE_BYTES)  # the message being routed at this moment; the loop is single-threaded
_MESSAGE_C = ffi.from_buffer(MESSAGE)
_MESSAGE_VIEW = memoryview(MESSAGE)

_OUTPUT_BYTES: Final = 256 * 1024
_OUTPUT = bytearray(_OUTPUT_BYTES)
_OUTPUT_C = ffi.from_buffer(_OUTPUT)
_OUTPUT_VIEW = memoryview(_OUTPUT)

# What may wait in one session's engine before its links get no more (routing §10.1). Stops a receiver that grants
# endless credit but no session window from filling our memory.
CONGESTED_BYTES: Final = 512 * 1024
RELIEVED_BYTES: Final = CONGESTED_BYTES // 2
# Sessions looked at per flush: one connection's many sessions must not cost every pass.
_WATCHED_PER_FLUSH: Final = 8

# More than this of one value in an Open, Attach or disposition is refused: an attacker could otherwise make us
# decode megabytes of properties per frame.
MAX_CONTROL_VALUE_BYTES: Final = 256 * 1024

ACCEPTED: Final[int] = lib.PN_ACCEPTED
REJECTED: Final[int] = lib.PN_REJECTED
RELEASED: Final[int] = lib.PN_RELEASED
MODIFIED: Final[int] = lib.PN_MODIFIED
RECEIVED: Final[int] = lib.PN_RECEIVED

_EXPIRY = {
    lib.PN_EXPIRE_WITH_LINK: "link-detach",
    lib.PN_EXPIRE_WITH_SESSION: "session-end",
    lib.PN_EXPIRE_WITH_CONNECTION: "connection-close",
    lib.PN_EXPIRE_NEVER: "never",
}
_DISTRIBUTION = {lib.PN_DIST_MODE_COPY: "copy", lib.PN_DIST_MODE_MOVE: "move"}
_TERMINUS_KIND = {lib.PN_SOURCE: "source", lib.PN_TARGET: "target", lib.PN_COORDINATOR: "coordinator"}

# Hot path: one global name per C function, looked up once.
_peek, _pop, _kind_of = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_type
_event_delivery, _delivery_link = lib.pn_event_delivery, lib.pn_delivery_link
_readable, _partial, _recv = lib.pn_delivery_readable, lib.pn_delivery_partial, lib.pn_link_recv
_advance, _new_delivery, _send = lib.pn_link_advance, lib.pn_delivery, lib.pn_link_send
_settle, _update = lib.pn_delivery_settle, lib.pn_delivery_update
_push, _pending = lib.pn_transport_push, lib.pn_transport_pending
_transport_peek, _transport_pop = lib.pn_transport_peek, lib.pn_transport_pop
_backlog = lib.pn_session_outgoing_bytes
_EOS: Final[int] = lib.PN_EOS  # complete and empty; what is below it is an error, such as an aborted delivery
_DELIVERY: Final[int] = lib.PN_DELIVERY
_FLOW: Final[int] = lib.PN_LINK_FLOW

READ_BUFFER = bytearray(64 * 1024)  # what a socket delivers is consumed before the next read: one buffer for all
_READ_C = ffi.from_buffer(READ_BUFFER)

# One tag for all outgoing deliveries: proton copies it. Unique per process, so per link.
_tag = ffi.new("pn_delivery_tag_t *")
_tag_bytes = ffi.new("uint64_t *")
_tag.size, _tag.start = 8, ffi.cast("char *", _tag_bytes)

Pointer = Any  # a cffi pointer

_traced: dict[Pointer, Callable[[str], None]] = {}  # transport -> who is told of its frames


@cache
def _tracer() -> Pointer:
    """The one C function that proton calls for every frame of a traced transport, and for its own warnings.

    It is one that the binding declares, so that no executable memory has to be made at run time.
    """

    @ffi.def_extern(name="pn_pytracer")  # type: ignore[untyped-decorator]
    def on_frame(transport: Pointer, text: Pointer) -> None:
        sink = _traced.get(transport)
        if sink is not None:
            sink(bytes(ffi.string(text)).decode("utf-8", "replace"))

    return lib.pn_pytracer


class Owner(Protocol):
    """Who is told what the peer asks for. Called while frames are being read; must not call `Engine.receive`."""

    def on_open(self, remote: RemoteOpen) -> None: ...
    def on_begin(self, session: "Session") -> None: ...
    def on_end(self, session: "Session") -> None: ...
    def on_attach(self, link: "IncomingWire | OutgoingWire") -> None: ...
    def on_detach(self, link: "IncomingWire | OutgoingWire", *, is_closed: bool) -> None: ...
    def on_close(self, condition: Condition | None) -> None: ...
    def on_transport_error(self, condition: Condition) -> None: ...


class EngineError(Exception):
    """The peer sent something that cannot be decoded; `condition` is what to close the connection with."""

    def __init__(self, description: str) -> None:
        super().__init__(description)
        self.condition = Condition(name="amqp:decode-error", description=description)


def _text(value: Pointer) -> str | None:
    if value == ffi.NULL:
        return None
    try:
        return bytes(ffi.string(value)).decode("utf-8")
    except UnicodeDecodeError:
        raise EngineError("a string is not valid UTF-8") from None


def _value(data: Pointer) -> Any:
    """Decode the first value of a pn_data_t; None when it is empty."""
    size = lib.pn_data_encoded_size(data)
    if size <= 0:
        return None
    if size > MAX_CONTROL_VALUE_BYTES:
        raise EngineError(f"a value of {size} bytes is over the limit of {MAX_CONTROL_VALUE_BYTES}")
    buffer = ffi.new("char[]", size)
    written = lib.pn_data_encode(data, buffer, size)
    if written < 0:
        raise EngineError("a value cannot be re-encoded")
    try:
        value, _ = decode(bytes(ffi.buffer(buffer, written)))
    except CodecError as error:
        raise EngineError(str(error)) from None
    return value


def _put(data: Pointer, value: object) -> None:
    encoded = encode(value)
    lib.pn_data_clear(data)
    lib.pn_data_decode(data, encoded, len(encoded))


def _symbols(data: Pointer) -> tuple[str, ...]:
    """The symbols of a capabilities field: one symbol or an array of them (AMQP 1.0 `multiple`)."""
    value = _value(data)
    if value is None:
        return ()
    if isinstance(value, str):
        return (str(value),)
    if isinstance(value, (list, Array)):
        return tuple(str(item) for item in value if isinstance(item, str))
    return ()


def _condition(condition: Pointer) -> Condition | None:
    if not lib.pn_condition_is_set(condition):
        return None
    return Condition(
        name=_text(lib.pn_condition_get_name(condition)) or "",
        description=_text(lib.pn_condition_get_description(condition)) or "",
    )


def _set_condition(target: Pointer, condition: Condition) -> None:
    lib.pn_condition_set_name(target, condition.name.encode())
    lib.pn_condition_set_description(target, condition.description.encode())


def _terminus(pointer: Pointer) -> Terminus | None:
    kind = _TERMINUS_KIND.get(lib.pn_terminus_get_type(pointer))
    if kind is None:
        return None
    return Terminus(
        is_coordinator=kind == "coordinator",
        address=_text(lib.pn_terminus_get_address(pointer)) or None,
        is_dynamic=bool(lib.pn_terminus_is_dynamic(pointer)),
        durability=lib.pn_terminus_get_durability(pointer),
        expiry_policy=_EXPIRY.get(lib.pn_terminus_get_expiry_policy(pointer), "session-end"),
        timeout_s=lib.pn_terminus_get_timeout(pointer),
        distribution_mode=_DISTRIBUTION.get(lib.pn_terminus_get_distribution_mode(pointer)),
        capabilities=_symbols(lib.pn_terminus_capabilities(pointer)),
    )


class Session:
    """One session the peer began."""

    __slots__ = ("engine", "is_congested", "is_counted", "is_ended", "is_watched", "pointer")

    def __init__(self, engine: "Engine", pointer: Pointer) -> None:
        self.engine = engine
        self.pointer = pointer
        self.is_counted = False  # admitted by the owner
        self.is_watched = False  # among the engine's watched sessions
        self.is_congested = False
        self.is_ended = False

    @property
    def backlog_bytes(self) -> int:
        """What the engine holds because the peer's session window or link credit does not let it go."""
        return int(_backlog(self.pointer))

    def accept(self, *, incoming_capacity_bytes: int) -> None:
        """Answer the Begin. A capacity below one frame would make proton abort: it becomes one frame."""
        frame = lib.pn_transport_get_max_frame(self.engine.transport)
        lib.pn_session_set_incoming_capacity(self.pointer, max(incoming_capacity_bytes, frame))
        lib.pn_session_open(self.pointer)

    def refuse(self, condition: Condition) -> None:
        """Answer Begin, then End with the error."""
        lib.pn_session_open(self.pointer)
        _set_condition(lib.pn_session_condition(self.pointer), condition)
        lib.pn_session_close(self.pointer)

    def end(self) -> None:
        lib.pn_session_close(self.pointer)
        lib.pn_session_free(self.pointer)


class _Wire:
    """What both directions of a link share. `core` is the core's link object once the link is admitted."""

    __slots__ = ("core", "engine", "is_counted", "link", "name", "routed_address", "session")
    settle = staticmethod(_settle)
    is_settled = staticmethod(lib.pn_delivery_settled)
    is_partial = staticmethod(_partial)
    is_aborted = staticmethod(lib.pn_delivery_aborted)

    def __init__(self, engine: "Engine", link: Pointer) -> None:
        self.engine = engine
        self.link = link
        self.session = engine.sessions[lib.pn_link_session(link)]
        self.name = _text(lib.pn_link_name(link)) or ""
        self.core: Any = None
        self.is_counted = False  # admitted by the owner
        self.routed_address: str | None = None  # of the target or source, as the core knows it

    @property
    def source(self) -> Terminus | None:
        return _terminus(lib.pn_link_remote_source(self.link))

    @property
    def target(self) -> Terminus | None:
        return _terminus(lib.pn_link_remote_target(self.link))

    def accept(self, *, dynamic_address: str | None = None, max_message_bytes: int = 0) -> None:
        """Answer the Attach with the peer's own termini; a dynamic one gets its address filled in."""
        link = self.link
        source, target = lib.pn_link_source(link), lib.pn_link_target(link)
        lib.pn_terminus_copy(source, lib.pn_link_remote_source(link))
        lib.pn_terminus_copy(target, lib.pn_link_remote_target(link))
        if dynamic_address is not None:
            local = target if lib.pn_link_is_receiver(link) else source
            lib.pn_terminus_set_address(local, dynamic_address.encode())
        if max_message_bytes:
            lib.pn_link_set_max_message_size(link, max_message_bytes)
        lib.pn_link_open(link)

    def refuse(self, condition: Condition) -> None:
        """Attach with a null local terminus, then a closing Detach with the error (routing §5.5)."""
        link = self.link
        source, target = lib.pn_link_source(link), lib.pn_link_target(link)
        if lib.pn_link_is_receiver(link):
            lib.pn_terminus_copy(source, lib.pn_link_remote_source(link))
            lib.pn_terminus_set_type(target, lib.PN_UNSPECIFIED)
        else:
            lib.pn_terminus_copy(target, lib.pn_link_remote_target(link))
            lib.pn_terminus_set_type(source, lib.PN_UNSPECIFIED)
        lib.pn_link_open(link)
        self.close(condition)

    def close(self, condition: Condition | None = None) -> None:
        """Send a closing Detach; the link object is released once the peer answers."""
        if condition is not None:
            _set_condition(lib.pn_link_condition(self.link), condition)
        lib.pn_link_close(self.link)

    def answer_detach(self, *, is_closed: bool) -> None:
        """Answer the peer's Detach in kind and release the link with its deliveries."""
        if is_closed:
            lib.pn_link_close(self.link)
        else:
            lib.pn_link_detach(self.link)
        self.engine.forget(self.link)
        lib.pn_link_free(self.link)

    def relay_state(self, delivery: Pointer, origin: Pointer, state: int) -> None:
        """Give on `delivery` the state that the other side gave on `origin`, with all its data (routing §9.1)."""
        remote, local = lib.pn_delivery_remote(origin), lib.pn_delivery_local(delivery)
        if state == REJECTED:
            theirs, ours = lib.pn_disposition_condition(remote), lib.pn_disposition_condition(local)
            if lib.pn_condition_is_set(theirs):
                lib.pn_condition_set_name(ours, lib.pn_condition_get_name(theirs))
                lib.pn_condition_set_description(ours, lib.pn_condition_get_description(theirs))
                lib.pn_data_copy(lib.pn_condition_info(ours), lib.pn_condition_info(theirs))
        elif state == MODIFIED:
            lib.pn_disposition_set_failed(local, True)
            lib.pn_disposition_set_undeliverable(local, lib.pn_disposition_is_undeliverable(remote))
            lib.pn_data_copy(lib.pn_disposition_annotations(local), lib.pn_disposition_annotations(remote))
        elif state == RECEIVED:
            lib.pn_disposition_set_section_number(local, lib.pn_disposition_get_section_number(remote))
            lib.pn_disposition_set_section_offset(local, lib.pn_disposition_get_section_offset(remote))
        elif state > 0x27:
            lib.pn_data_copy(lib.pn_disposition_data(local), lib.pn_disposition_data(remote))
        _update(delivery, state)

    @property
    def credit(self) -> int:
        return int(lib.pn_link_credit(self.link))

    @property
    def unsettled_count(self) -> int:
        return int(lib.pn_link_unsettled(self.link))


class _Discard:
    """What takes the place of a stream when nobody gets the rest of a message."""

    __slots__ = ("delivery", "done", "wire")

    def __init__(self, wire: "IncomingWire", delivery: Pointer, done: Callable[[], None]) -> None:
        self.wire = wire
        self.delivery = delivery
        self.done = done

    def more(self) -> None:
        wire = self.wire
        while wire.read():
            pass
        if not _partial(self.delivery):
            wire.end_stream()
            self.done()

    hurry = more

    def abort(self) -> None:
        """The link is gone, and the message with it."""


class IncomingWire(_Wire):
    """A link on which the router receives. The core sets `forward`, `begin_stream`, `on_updated` when it admits it."""

    __slots__ = ("address", "begin_stream", "forward", "on_updated", "stream")
    update = staticmethod(_update)
    remote_state = staticmethod(lib.pn_delivery_remote_state)

    def __init__(self, engine: "Engine", link: Pointer) -> None:
        super().__init__(engine, link)
        self.address: Any = None
        self.forward: Callable[[Any, Any, Pointer, int], None] | None = None
        self.begin_stream: Callable[[Any, Any, Pointer, int], Any] | None = None
        self.on_updated: Callable[[Pointer], None] | None = None
        self.stream: Any = None  # the message now being streamed or discarded, if any

    def on_delivery(self, delivery: Pointer) -> None:
        """A transfer came, or the sender's disposition. Hot: see docs/architecture.md before adding anything."""
        if not _readable(delivery):
            if self.on_updated is not None and not _partial(delivery) and not lib.pn_delivery_pending(delivery):
                self.on_updated(delivery)
            return
        if self.stream is not None or _partial(delivery):
            self._on_partial(delivery)
            return
        size = _recv(self.link, _MESSAGE_C, MESSAGE_BYTES)
        if size == MESSAGE_BYTES or size < _EOS or self.forward is None:
            self._on_unusual(delivery, size)
            return
        _advance(self.link)
        self.forward(self.core, self.address, delivery, size if size > 0 else 0)

    def release_core(self) -> None:
        """The core has let go of the link: what still comes is discarded."""
        self.core = self.forward = self.begin_stream = self.on_updated = self.stream = None

    def _on_partial(self, delivery: Pointer) -> None:
        if self.stream is not None:
            self.stream.more()
        elif self.begin_stream is None:
            self._on_unusual(delivery, 0)
        elif lib.pn_delivery_pending(delivery) >= STREAM_AT_BYTES:
            self._stream(delivery, _recv(self.link, _MESSAGE_C, MESSAGE_BYTES))

    def _stream(self, delivery: Pointer, size: int) -> None:
        stream = self.begin_stream(self.core, self.address, delivery, size)  # type: ignore[misc]
        if stream is not None:
            stream.more()

    def _on_unusual(self, delivery: Pointer, size: int) -> None:
        if self.forward is None:
            # The link was refused or closed while transfers were on their way: nobody may have them.
            _settle(delivery)
        elif size == MESSAGE_BYTES:
            self._stream(delivery, size)
        else:
            # Aborted before any of it was forwarded: invisible to receivers; its credit returns.
            _settle(delivery)
            self.core.on_aborted()

    def end_message(self) -> None:
        """The streamed message has been read to its end."""
        _advance(self.link)
        self.end_stream()

    def end_stream(self) -> None:
        """The link is free for its next message, which may be waiting here already: proton tells of each once."""
        self.stream = None
        self.engine.afterwards.append(self.catch_up)
        self.engine.touched.add(self.engine)

    def catch_up(self) -> None:
        """Take the deliveries that came while a streamed message was in their way."""
        seen = ffi.NULL
        while self.forward is not None:
            delivery = lib.pn_link_current(self.link)
            if not delivery or delivery == seen:
                return
            seen = delivery
            self.on_delivery(delivery)

    def read_out(self) -> None:
        """The link is going: take every byte that came, however slow the receivers are (routing §9.4, §24)."""
        while self.stream is not None and not self.engine.is_deaf:
            self.stream.hurry()
            if self.stream is not None:
                return
            self.catch_up()

    def discard(self, delivery: Pointer, done: Callable[[], None]) -> None:
        """Read the rest of a message that nobody gets, then call `done`, which settles it.

        Settling at once would let proton drop what still comes without opening the session window for it again.
        """
        self.stream = _Discard(self, delivery, done)

    def read(self) -> int:
        """Read what has come of the current delivery into MESSAGE. Returns bytes, 0 for none yet or the end."""
        size = int(_recv(self.link, _MESSAGE_C, STREAM_AT_BYTES))
        return max(size, 0)

    def grant(self, credit: int) -> None:
        lib.pn_link_flow(self.link, credit)

    def start_drain(self) -> None:
        lib.pn_link_set_drain(self.link, True)

    def stop_drain(self) -> None:
        lib.pn_link_set_drain(self.link, False)

    def reject(self, delivery: Pointer, condition: Condition) -> None:
        """Give the outcome rejected with this error; the caller settles."""
        _set_condition(lib.pn_disposition_condition(lib.pn_delivery_local(delivery)), condition)
        _update(delivery, REJECTED)

    def release(self, delivery: Pointer) -> None:
        _update(delivery, RELEASED)

    def modify(self, delivery: Pointer) -> None:
        """Give modified with delivery-failed: it may have reached somebody."""
        lib.pn_disposition_set_failed(lib.pn_delivery_local(delivery), True)
        _update(delivery, MODIFIED)


class OutgoingWire(_Wire):
    """A link on which the router sends. The core sets `on_delivery` (a disposition came) and `on_credit`."""

    __slots__ = ("on_credit", "on_delivery")
    remote_state = staticmethod(lib.pn_delivery_remote_state)

    def __init__(self, engine: "Engine", link: Pointer) -> None:
        super().__init__(engine, link)
        self.on_delivery: Callable[[Pointer], None] = _settle
        self.on_credit: Callable[[], None] | None = None

    def release_core(self) -> None:
        """The core has let go of the link: late dispositions are settled and forgotten."""
        self.core = self.on_credit = None

    @property
    def is_congested(self) -> bool:
        """The session holds so much that the peer has not opened its window for that nothing may be added."""
        return self.session.is_congested

    @property
    def wants_settled(self) -> bool:
        return bool(lib.pn_link_remote_snd_settle_mode(self.link) == lib.PN_SND_SETTLED)

    def send(self, size: int) -> Pointer:
        """Send the first `size` bytes of MESSAGE as one delivery; the caller settles it or keeps the handle."""
        _tag_bytes[0] += 1
        link = self.link
        delivery = _new_delivery(link, _tag[0])
        _send(link, _MESSAGE_C, size)
        _advance(link)
        return delivery

    def send_bytes(self, payload: bytes) -> Pointer:
        delivery = self.begin()
        _send(self.link, payload, len(payload))
        _advance(self.link)
        return delivery

    def begin(self) -> Pointer:
        """Start a delivery that grows by `append` until `finish`."""
        _tag_bytes[0] += 1
        return _new_delivery(self.link, _tag[0])

    def append(self, payload: bytes) -> None:
        _send(self.link, payload, len(payload))

    def finish(self) -> None:
        _advance(self.link)

    def abort(self, delivery: Pointer) -> None:
        """End a growing delivery so that the peer will not take it for a message. Settles it."""
        lib.pn_delivery_abort(delivery)

    def buffered(self, delivery: Pointer) -> int:
        """Bytes of a growing delivery that are not yet in a frame."""
        return int(lib.pn_delivery_pending(delivery))

    @property
    def is_draining(self) -> bool:
        return bool(lib.pn_link_get_drain(self.link))

    def drained(self) -> None:
        lib.pn_link_drained(self.link)


class Engine:
    """One connection's AMQP engine. Owns the proton objects; `free` releases them."""

    __slots__ = (
        "afterwards",
        "collector",
        "connection",
        "has_remote_open",
        "is_blocked",
        "is_deaf",
        "is_freed",
        "links",
        "owner",
        "sessions",
        "sinks",
        "touched",
        "transport",
        "watched",
        "write",
    )

    def __init__(
        self,
        owner: Owner,
        write: Callable[[bytes], None],
        touched: "set[Engine]",
        *,
        container_id: str,
        max_frame_bytes: int,
        channel_max: int,
        idle_timeout_ms: int,
        is_server: bool = True,
    ) -> None:
        """touched  the engines to flush at the end of this pass; this one joins whenever bytes came."""
        self.owner = owner
        self.write = write
        self.touched = touched
        self.is_freed = False
        self.has_remote_open = False
        self.is_deaf = False  # the connection is over: what the peer still says is not listened to
        self.is_blocked = False  # the socket's buffer is full: bytes stay in the engine
        self.transport = lib.pn_transport()
        if is_server:
            lib.pn_transport_set_server(self.transport)
        # Without a tracer proton writes its warnings about a peer's frames to our stderr, past every log setting.
        lib.pn_transport_set_tracer(self.transport, _tracer())
        lib.pn_transport_set_max_frame(self.transport, max_frame_bytes)
        lib.pn_transport_set_channel_max(self.transport, channel_max)
        lib.pn_transport_set_idle_timeout(self.transport, idle_timeout_ms)
        self.connection = lib.pn_connection()
        lib.pn_connection_set_container(self.connection, container_id.encode())
        self.collector = lib.pn_collector()
        lib.pn_connection_collect(self.connection, self.collector)
        lib.pn_transport_bind(self.transport, self.connection)
        self.sinks: dict[Pointer, Callable[[Pointer], None]] = {}
        self.links: dict[Pointer, IncomingWire | OutgoingWire] = {}
        self.sessions: dict[Pointer, Session] = {}
        self.watched: deque[Session] = deque()  # sessions on which the router sends
        self.afterwards: list[Callable[[], None]] = []  # to be done when the events have been worked off

    # Bytes

    def receive(self, data: bytes) -> None:
        """Take plaintext bytes and act on every frame in them."""
        transport, size = self.transport, len(data)
        pointer = ffi.from_buffer(data)
        at = 0
        while at < size:
            taken = _push(transport, pointer + at, size - at)
            if taken <= 0:
                break
            at += taken
        self.touched.add(self)
        self.drain()

    def receive_read(self, size: int) -> None:
        """Take the first `size` bytes of READ_BUFFER."""
        transport = self.transport
        at = _push(transport, _READ_C, size)
        while 0 < at < size:
            taken = _push(transport, _READ_C + at, size - at)
            if taken <= 0:
                break
            at += taken
        self.touched.add(self)
        self.drain()

    def flush(self) -> None:
        """Write every byte the engine has ready."""
        if self.is_blocked or self.is_freed:
            return
        transport, write = self.transport, self.write
        while not self.is_blocked and (size := _pending(transport)) > 0:
            size = min(size, _OUTPUT_BYTES)
            _transport_peek(transport, _OUTPUT_C, size)
            _transport_pop(transport, size)
            write(bytes(_OUTPUT_VIEW[:size]))
        if self.watched:
            self._watch_backlog()
        if self.afterwards or _peek(self.collector):
            self.drain()

    def _watch_backlog(self) -> None:
        watched = self.watched
        for _ in range(min(len(watched), _WATCHED_PER_FLUSH)):
            session = watched.popleft()
            if session.is_ended:
                continue
            watched.append(session)
            if _backlog(session.pointer) > CONGESTED_BYTES and not session.is_congested:
                session.is_congested = True
                self._tell_senders(session)

    def _tell_senders(self, session: Session) -> None:
        """The session's congestion has begun or ended."""
        for link in self.links_of(session):
            if isinstance(link, OutgoingWire) and link.on_credit is not None:
                link.on_credit()

    @property
    def is_output_closed(self) -> bool:
        """The engine will produce no more bytes: after they are written the socket may close."""
        return bool(_pending(self.transport) < 0)

    def close_input(self) -> None:
        """The socket ended: no more bytes will come."""
        lib.pn_transport_close_tail(self.transport)
        self.drain()

    def tick(self, now_ms: int) -> int:
        """Run the idle timers. Returns the next time (ms) at which to call again, 0 for never."""
        deadline = int(lib.pn_transport_tick(self.transport, now_ms))
        self.drain()
        return deadline

    # Events

    def drain(self) -> None:
        """Hand every event to whoever it concerns. Hot for PN_DELIVERY and PN_LINK_FLOW, cold for the rest.

        What a handler raises passes through; its event does not come again.
        """
        events, sinks = self.collector, self.sinks
        try:
            while event := _peek(events):
                kind = _kind_of(event)
                if kind == _DELIVERY:
                    delivery = _event_delivery(event)
                    sink = sinks.get(_delivery_link(delivery))
                    if sink is not None:
                        sink(delivery)
                elif kind == _FLOW:
                    self._on_flow(lib.pn_event_link(event))
                elif (handle := _CONTROL.get(kind)) is not None and not self.is_deaf:
                    handle(self, event)
                _pop(events)
        except BaseException:
            _pop(events)
            raise
        afterwards = self.afterwards
        while afterwards:
            afterwards.pop()()

    def stop_listening(self) -> None:
        """The connection is over: nothing the peer has said or will say leads to anything any more."""
        self.is_deaf = True
        self.sinks.clear()
        self.watched.clear()
        self.afterwards.clear()

    def _on_flow(self, pointer: Pointer) -> None:
        link = self.links.get(pointer)
        if isinstance(link, OutgoingWire):
            session = link.session
            if session.is_congested:
                if session.backlog_bytes <= RELIEVED_BYTES:
                    session.is_congested = False
                    self._tell_senders(session)
            elif link.on_credit is not None:
                link.on_credit()
        elif link is not None and link.core is not None and (drained := lib.pn_link_drained(pointer)) > 0:
            link.core.on_drained(drained)

    def _on_open(self, _event: Pointer) -> None:
        if self.has_remote_open:
            # It would be admitted, and counted, once more.
            raise EngineError("a second Open on one connection")
        self.has_remote_open = True
        connection = self.connection
        properties = _value(lib.pn_connection_remote_properties(connection))
        self.owner.on_open(
            RemoteOpen(
                container_id=_text(lib.pn_connection_remote_container(connection)) or "",
                hostname=_text(lib.pn_connection_remote_hostname(connection)),
                offered_capabilities=_symbols(lib.pn_connection_remote_offered_capabilities(connection)),
                properties=properties if isinstance(properties, dict) else {},
            )
        )

    def _on_begin(self, event: Pointer) -> None:
        pointer = lib.pn_event_session(event)
        if pointer not in self.sessions:
            session = self.sessions[pointer] = Session(self, pointer)
            self.owner.on_begin(session)

    def _on_end(self, event: Pointer) -> None:
        pointer = lib.pn_event_session(event)
        session = self.sessions.pop(pointer, None)
        if session is None:
            return
        for link in self.links_of(session):
            self.owner.on_detach(link, is_closed=False)
            self.forget(link.link)
        self.owner.on_end(session)
        session.is_ended = True
        session.end()

    def links_of(self, session: Session) -> "list[IncomingWire | OutgoingWire]":
        return [link for link in self.links.values() if link.session is session]

    def _on_attach(self, event: Pointer) -> None:
        pointer = lib.pn_event_link(event)
        if pointer in self.links:
            return
        wire = IncomingWire(self, pointer) if lib.pn_link_is_receiver(pointer) else OutgoingWire(self, pointer)
        self.links[pointer] = wire
        self.sinks[pointer] = wire.on_delivery
        self.owner.on_attach(wire)
        self.sinks[pointer] = wire.on_delivery  # the core may have put its own in place
        if isinstance(wire, OutgoingWire) and wire.core is not None and not wire.session.is_watched:
            wire.session.is_watched = True
            self.watched.append(wire.session)

    def _on_detach(self, event: Pointer) -> None:
        link = self.links.get(lib.pn_event_link(event))
        if link is not None:
            is_closed = _kind_of(event) == lib.PN_LINK_REMOTE_CLOSE
            self.owner.on_detach(link, is_closed=is_closed)
            link.answer_detach(is_closed=is_closed)

    def forget(self, pointer: Pointer) -> None:
        self.links.pop(pointer, None)
        self.sinks.pop(pointer, None)

    def _on_close(self, _event: Pointer) -> None:
        self.owner.on_close(_condition(lib.pn_connection_remote_condition(self.connection)))

    def _on_transport_error(self, _event: Pointer) -> None:
        condition = _condition(lib.pn_transport_condition(self.transport))
        self.owner.on_transport_error(condition or Condition(name="amqp:internal-error", description=""))

    def trace(self, sink: Callable[[str], None] | None) -> None:
        """Call `sink` with the text of every frame from now on, `FRAME: 0 -> @begin(17) […]`; None: no longer."""
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
        properties: dict[Any, Any],
        capabilities: object,
        hostname: str | None = None,
        max_frame_bytes: int | None = None,
        channel_max: int | None = None,
    ) -> None:
        """Send our Open. Limits given here replace those of the listener (policy, docs §3.3)."""
        if max_frame_bytes is not None:
            lib.pn_transport_set_max_frame(self.transport, max_frame_bytes)
        if channel_max is not None:
            lib.pn_transport_set_channel_max(self.transport, channel_max)
        if hostname is not None:
            lib.pn_connection_set_hostname(self.connection, hostname.encode())
        _put(lib.pn_connection_properties(self.connection), properties)
        _put(lib.pn_connection_offered_capabilities(self.connection), capabilities)
        _put(lib.pn_connection_desired_capabilities(self.connection), capabilities)
        lib.pn_connection_open(self.connection)

    def close(self, condition: Condition | None = None) -> None:
        """Send Close, with an error when there is one."""
        if condition is not None:
            _set_condition(lib.pn_connection_condition(self.connection), condition)
        lib.pn_connection_close(self.connection)

    def end_output(self) -> None:
        """Produce no more bytes after what is pending."""
        lib.pn_transport_close_head(self.transport)

    def free(self) -> None:
        """Release the proton objects. The engine is dead afterwards; calling again does nothing."""
        if self.is_freed:
            return
        self.is_freed = True
        self.stop_listening()
        self.links.clear()
        self.sessions.clear()
        if self.transport in _traced:
            self.trace(None)
        lib.pn_transport_unbind(self.transport)
        lib.pn_connection_release(self.connection)
        lib.pn_collector_release(self.collector)
        lib.pn_decref(self.transport)
        lib.pn_decref(self.connection)
        lib.pn_collector_free(self.collector)


_CONTROL: dict[int, Callable[[Engine, Pointer], None]] = {
    lib.PN_CONNECTION_REMOTE_OPEN: Engine._on_open,
    lib.PN_SESSION_REMOTE_OPEN: Engine._on_begin,
    lib.PN_SESSION_REMOTE_CLOSE: Engine._on_end,
    lib.PN_LINK_REMOTE_OPEN: Engine._on_attach,
    lib.PN_LINK_REMOTE_DETACH: Engine._on_detach,
    lib.PN_LINK_REMOTE_CLOSE: Engine._on_detach,
    lib.PN_CONNECTION_REMOTE_CLOSE: Engine._on_close,
    lib.PN_TRANSPORT_ERROR: Engine._on_transport_error,
}


def message_bytes(size: int) -> bytes:
    """A copy of the message being routed, for a queue or a slow path."""
    return bytes(_MESSAGE_VIEW[:size])


def load_message(payload: bytes) -> int:
    """Make `payload` (≤ MESSAGE_BYTES) the message being routed. Returns its size."""
    size = len(payload)
    _MESSAGE_VIEW[:size] = payload
    return size
