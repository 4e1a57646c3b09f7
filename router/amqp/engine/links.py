"""Sessions and links as the core meets them: hot functions first, everything else beside them.

Messages do not pass through an Owner: the link objects call what the core put into their slots when the link was
admitted. Sources: AMQP 1.0 part 2; docs/architecture.md, the data plane.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from policy.addressing.address import Address
from router.amqp.engine.library import MESSAGE_BYTES, MESSAGE_C, STREAM_AT_BYTES, Pointer, ffi, lib
from router.amqp.engine.steps import CHOSEN
from router.amqp.engine.values import condition_of, put_terminus, set_condition, terminus_of, text_of
from router.amqp.guard import CannotBegin
from router.amqp.terminus import Condition, Terminus

if TYPE_CHECKING:
    from router.amqp.engine.connection import Engine

ACCEPTED: Final[int] = lib.PN_ACCEPTED
REJECTED: Final[int] = lib.PN_REJECTED
RELEASED: Final[int] = lib.PN_RELEASED
MODIFIED: Final[int] = lib.PN_MODIFIED
RECEIVED: Final[int] = lib.PN_RECEIVED

# More than the other fields of our Transfers and Dispositions take. The least that a peer's frame may be is 512.
OTHER_FIELDS_BYTES: Final = 256

# Hot path: one global name per C function, looked up once.
_readable, _partial, _recv = lib.pn_delivery_readable, lib.pn_delivery_partial, lib.pn_link_recv
_advance, _send = lib.pn_link_advance, lib.pn_link_send
_settle, _update = lib.pn_delivery_settle, lib.pn_delivery_update
_remote_state, _is_settled = lib.pn_delivery_remote_state, lib.pn_delivery_settled
_take, _send_whole, _new_delivery = CHOSEN.take, CHOSEN.send_whole, CHOSEN.new_delivery
_backlog = lib.pn_session_outgoing_bytes
_queued, _credit = lib.pn_link_queued, lib.pn_link_credit
_EOS: Final[int] = lib.PN_EOS  # complete and empty; what is below it is an error, such as an aborted delivery


_AnyWire = TypeVar("_AnyWire", "IncomingWire", "OutgoingWire")


def _nothing() -> None:
    """The peer's answer is of no interest."""


class SessionOwner(Protocol):
    def on_end(self, session: "Session") -> None:
        """The peer has ended the session, of its own accord or in answer to us. Its links are gone."""


class LinkOwner(Protocol):
    def on_detach(self, link: "IncomingWire | OutgoingWire", *, is_closed: bool) -> None:
        """The peer has detached the link or ended its session. The link is released behind this call."""


class Session:
    """One session, begun by the peer or by the router.

    channel       ours, where the router began it and the Begin has been written
    awaits_begin  the router began it and the peer has not answered
    on_answer     the peer has answered our Begin: links may be attached. Not called once we have closed the session
    is_closing    we have ended it, or shall when it is answered
    """

    __slots__ = (
        "awaits_begin", "channel", "engine", "is_closing", "is_congested", "is_counted", "is_ended", "is_watched",
        "on_answer", "owner", "pointer",
    )  # fmt: skip

    def __init__(self, engine: "Engine", pointer: Pointer, owner: SessionOwner, *, is_begun: bool = False) -> None:
        self.engine = engine
        self.pointer = pointer
        self.owner = owner
        self.channel: int | None = None
        self.awaits_begin = is_begun
        self.on_answer = _nothing
        self.is_closing = False
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
        self.close(condition)

    def close(self, condition: Condition | None = None) -> None:
        """Send End, with an error when there is one; the session is released once the peer answers.

        A session whose Begin awaits its answer is ended when that has come: until then its channel must stay its own,
        or the engine would take the answer for another session's.
        """
        if condition is not None:
            set_condition(lib.pn_session_condition(self.pointer), condition)
        self.is_closing = True
        if not self.awaits_begin:
            lib.pn_session_close(self.pointer)

    def take_answer(self) -> None:
        """The peer has answered our Begin."""
        self.awaits_begin = False
        if self.is_closing:
            self.close()
        else:
            self.on_answer()

    @property
    def remote_condition(self) -> Condition | None:
        """The error of the peer's End."""
        return condition_of(lib.pn_session_remote_condition(self.pointer))

    def attach_sender(
        self, name: str, owner: LinkOwner, *, source: Terminus | None, target: Terminus | None
    ) -> "OutgoingWire":
        """Attach a link on which the router sends, on a session that the router began. Errors: CannotBegin"""
        return self._attach(OutgoingWire, lib.pn_sender, name, owner, source, target)

    def attach_receiver(
        self, name: str, owner: LinkOwner, *, source: Terminus | None, target: Terminus | None
    ) -> "IncomingWire":
        """The same where the router receives."""
        return self._attach(IncomingWire, lib.pn_receiver, name, owner, source, target)

    def _attach(
        self,
        kind: type[_AnyWire],
        make: Callable[[Pointer, bytes], Pointer],
        name: str,
        owner: LinkOwner,
        source: Terminus | None,
        target: Terminus | None,
    ) -> _AnyWire:
        engine, encoded = self.engine, name.encode()
        if self.channel is None or self.awaits_begin or self.is_closing or self.is_ended or not engine.can_begin:
            raise CannotBegin("the session is not open")
        if any(isinstance(link, kind) and link.name == name for link in engine.links_of(self)):
            raise CannotBegin(f"the session has a link '{name}' already")
        engine.intake.guard.promise_link(self.channel, encoded, peer_sends=kind is IncomingWire)
        pointer = make(self.pointer, encoded)
        wire = kind(engine, pointer, owner)
        put_terminus(lib.pn_link_source(pointer), source, lib.PN_SOURCE)
        put_terminus(lib.pn_link_target(pointer), target, lib.PN_TARGET)
        lib.pn_link_open(pointer)
        engine.links[pointer] = engine.heard[pointer] = wire
        engine.touched.add(engine)
        return wire

    def end(self) -> None:
        lib.pn_session_close(self.pointer)
        lib.pn_session_free(self.pointer)


class _Wire:
    """What both directions of a link share. `core` is the core's link object once the link is admitted.

    on_answer  the peer has answered our Attach; where it refuses, the terminus that is its own is None, and its Detach
               follows. Credit is granted from now on. Not called once we have closed the link or its session
    """

    __slots__ = (
        "awaits_detach", "core", "engine", "is_counted", "link", "name", "named", "on_answer", "owner", "session",
    )  # fmt: skip
    settle = staticmethod(_settle)
    is_settled = staticmethod(lib.pn_delivery_settled)
    is_partial = staticmethod(_partial)
    is_aborted = staticmethod(lib.pn_delivery_aborted)

    def __init__(self, engine: "Engine", link: Pointer, owner: LinkOwner) -> None:
        self.engine = engine
        self.link = link
        self.owner = owner
        self.on_answer = _nothing
        self.session = engine.sessions[lib.pn_link_session(link)]
        self.name = text_of(lib.pn_link_name(link)) or ""
        self.core: Any = None
        self.is_counted = False  # admitted by the owner
        self.awaits_detach = False  # among engine.unanswered
        # What its target or source names, judged by policy and bound by the core; None: an anonymous sender's.
        self.named: Address | None = None

    @property
    def source(self) -> Terminus | None:
        return terminus_of(lib.pn_link_remote_source(self.link))

    @property
    def target(self) -> Terminus | None:
        return terminus_of(lib.pn_link_remote_target(self.link))

    @property
    def remote_condition(self) -> Condition | None:
        """The error of the peer's Detach."""
        return condition_of(lib.pn_link_remote_condition(self.link))

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

    def close(self, condition: Condition | None = None, *, is_peers_doing: bool = True) -> None:
        """Send a closing Detach; the link object is released once the peer answers.

        is_peers_doing  counts towards MAX_UNANSWERED_DETACHES
        """
        if condition is not None:
            set_condition(lib.pn_link_condition(self.link), condition)
        lib.pn_link_close(self.link)
        if is_peers_doing:
            self.ignore()

    def ignore(self) -> None:
        """Do nothing more for the link until the peer detaches it; it counts towards MAX_UNANSWERED_DETACHES."""
        if not self.awaits_detach:
            self.awaits_detach = True
            self.engine.unanswered += 1

    def answer_detach(self, *, is_closed: bool) -> None:
        """Answer the peer's Detach in kind and release the link with its deliveries."""
        if is_closed:
            lib.pn_link_close(self.link)
        else:
            lib.pn_link_detach(self.link)
        self.engine.forget(self.link)
        lib.pn_link_free(self.link)

    def take_answer(self) -> None:
        """The peer has answered our Attach."""
        if not (self.session.is_closing or lib.pn_link_state(self.link) & lib.PN_LOCAL_CLOSED):
            self.on_answer()

    def relay_state(self, delivery: Pointer, origin: Pointer, state: int) -> None:
        """Give on `delivery` the state that the other side gave on `origin`, with all its data (routing §9.1).

        Without them where they do not fit into one of the peer's frames; a state that is nothing but data is then left.
        """
        remote, local = lib.pn_delivery_remote(origin), lib.pn_delivery_local(delivery)
        has_room = self._has_room_for(remote, state)
        if state == REJECTED:
            theirs, ours = lib.pn_disposition_condition(remote), lib.pn_disposition_condition(local)
            if has_room and lib.pn_condition_is_set(theirs):
                lib.pn_condition_set_name(ours, lib.pn_condition_get_name(theirs))
                lib.pn_condition_set_description(ours, lib.pn_condition_get_description(theirs))
                lib.pn_data_copy(lib.pn_condition_info(ours), lib.pn_condition_info(theirs))
        elif state == MODIFIED:
            lib.pn_disposition_set_failed(local, True)
            lib.pn_disposition_set_undeliverable(local, lib.pn_disposition_is_undeliverable(remote))
            if has_room:
                lib.pn_data_copy(lib.pn_disposition_annotations(local), lib.pn_disposition_annotations(remote))
        elif state == RECEIVED:
            lib.pn_disposition_set_section_number(local, lib.pn_disposition_get_section_number(remote))
            lib.pn_disposition_set_section_offset(local, lib.pn_disposition_get_section_offset(remote))
        elif state > 0x27:
            if not has_room:
                return
            lib.pn_data_copy(lib.pn_disposition_data(local), lib.pn_disposition_data(remote))
        _update(delivery, state)

    def _has_room_for(self, disposition: Pointer, state: int) -> bool:
        """Do a state's data fit into one frame for this link's peer?

        Attack: where a Transfer's fields alone are larger than the receiver's frames, the engine never comes back.
        """
        frame = lib.pn_transport_get_remote_max_frame(self.engine.transport)
        if not frame or state in (ACCEPTED, RELEASED, RECEIVED):
            return True
        if state == REJECTED:
            condition = lib.pn_disposition_condition(disposition)
            size = lib.pn_data_encoded_size(lib.pn_condition_info(condition))
            for text in (lib.pn_condition_get_name(condition), lib.pn_condition_get_description(condition)):
                size += len(ffi.string(text)) if text != ffi.NULL else 0
        elif state == MODIFIED:
            size = lib.pn_data_encoded_size(lib.pn_disposition_annotations(disposition))
        else:
            size = lib.pn_data_encoded_size(lib.pn_disposition_data(disposition))
        return bool(size <= frame - OTHER_FIELDS_BYTES)

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
    """A link on which the router receives. The core sets `forward`, `begin_stream`, `on_updated` when it admits it.

    hold  stands in the place of a stream while there is none: nothing is taken from the link
    """

    __slots__ = ("address", "begin_stream", "forward", "hold", "on_updated", "stream")
    update = staticmethod(_update)
    accept_delivery = staticmethod(CHOSEN.accept)
    remote_state = staticmethod(lib.pn_delivery_remote_state)

    def __init__(self, engine: "Engine", link: Pointer, owner: LinkOwner) -> None:
        super().__init__(engine, link, owner)
        self.address: Any = None
        self.forward: Callable[[Any, Any, Pointer, int], None] | None = None
        self.begin_stream: Callable[[Any, Any, Pointer, int], Any] | None = None
        self.on_updated: Callable[[Pointer], None] | None = None
        self.hold: Any = None
        self.stream: Any = None  # the message now being streamed or discarded, if any

    def on_message(self, delivery: Pointer) -> None:
        """A complete message came, and nothing else of it. Hot: see docs/architecture.md before adding anything."""
        if self.forward is None or self.stream is not None:
            self.on_delivery(delivery)
        else:
            self.forward(self.core, self.address, delivery, _take(self.link))

    def on_delivery(self, delivery: Pointer) -> None:
        """A transfer came, or the sender's disposition."""
        if self.stream is not None and _queued(self.link) > _credit(self.link):
            # Attack: while nothing is taken, messages without credit would fill our memory. Proton holds its peers to
            # neither their credit nor the session's window.
            self.core.on_excess()
            return
        if not _readable(delivery):
            if self.on_updated is not None and not _partial(delivery) and not lib.pn_delivery_pending(delivery):
                self.on_updated(delivery)
            return
        if self.stream is not None or _partial(delivery):
            self._on_partial(delivery)
            return
        size = _recv(self.link, MESSAGE_C, MESSAGE_BYTES)
        if size == MESSAGE_BYTES or size < _EOS or self.forward is None:
            self._on_unusual(delivery, size)
            return
        _advance(self.link)
        # A state on the transfer itself, of a transaction say. The message may be settled once it is forwarded.
        has_state = _remote_state(delivery) and not _is_settled(delivery)
        self.forward(self.core, self.address, delivery, size if size > 0 else 0)
        if has_state and self.on_updated is not None:
            self.on_updated(delivery)

    def release_core(self) -> None:
        """The core has let go of the link: what still comes is discarded."""
        self.core = self.forward = self.begin_stream = self.on_updated = self.hold = self.stream = None

    def _on_partial(self, delivery: Pointer) -> None:
        if self.stream is not None:
            self.stream.more()
        elif self.begin_stream is None:
            self._on_unusual(delivery, 0)
        elif lib.pn_delivery_pending(delivery) >= STREAM_AT_BYTES:
            self._stream(delivery, _recv(self.link, MESSAGE_C, MESSAGE_BYTES))

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
        self.stream = self.hold
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
        size = int(_recv(self.link, MESSAGE_C, STREAM_AT_BYTES))
        return max(size, 0)

    def grant(self, credit: int) -> None:
        lib.pn_link_flow(self.link, credit)

    def start_drain(self) -> None:
        lib.pn_link_set_drain(self.link, True)

    def stop_drain(self) -> None:
        lib.pn_link_set_drain(self.link, False)

    def reject(self, delivery: Pointer, condition: Condition) -> None:
        """Give the outcome rejected with this error; the caller settles."""
        set_condition(lib.pn_disposition_condition(lib.pn_delivery_local(delivery)), condition)
        _update(delivery, REJECTED)

    def release(self, delivery: Pointer) -> None:
        _update(delivery, RELEASED)

    def modify(self, delivery: Pointer) -> None:
        """Give modified with delivery-failed: it may have reached somebody."""
        lib.pn_disposition_set_failed(lib.pn_delivery_local(delivery), True)
        _update(delivery, MODIFIED)


class OutgoingWire(_Wire):
    """A link on which the router sends. The core sets the slots.

    on_delivery  a disposition came
    on_accepted  the same for accepted and settled: the usual one, and hot
    on_credit    the receiver granted some, or asks to drain
    """

    __slots__ = ("on_accepted", "on_credit", "on_delivery")
    remote_state = staticmethod(lib.pn_delivery_remote_state)

    def __init__(self, engine: "Engine", link: Pointer, owner: LinkOwner) -> None:
        super().__init__(engine, link, owner)
        self.on_delivery: Callable[[Pointer], None] = _settle
        self.on_accepted: Callable[[Pointer], None] = _settle
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
        return _send_whole(self.link, size)

    def send_bytes(self, payload: bytes) -> Pointer:
        delivery = self.begin()
        _send(self.link, payload, len(payload))
        _advance(self.link)
        return delivery

    def begin(self) -> Pointer:
        """Start a delivery that grows by `append` until `finish`."""
        return _new_delivery(self.link)

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
