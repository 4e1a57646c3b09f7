"""Sessions and links of one AMQP connection, as the routing core sees them. Functions of the hot path come first.

Messages do not pass through an Owner. For each admitted link, the core stores its callbacks in the slots of the link
object, and the engine calls these callbacks. Sources: AMQP 1.0 part 2; docs/journeys.md, the data plane.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Final, Protocol, TypeVar

from policy.addressing.address import Address
from router.amqp.engine.attach_fields import NO_CAPABILITIES, Capabilities
from router.amqp.engine.library import MESSAGE_BYTES, MESSAGE_C, STREAM_AT_BYTES, Pointer, ffi, lib
from router.amqp.engine.steps import STEPS
from router.amqp.engine.values import (
    check,
    condition_of,
    encoded_data,
    first_binary,
    node_properties_of,
    outcomes_of,
    put_encoded,
    put_routed_as,
    put_terminus,
    set_condition,
    symbols_of,
    terminus_of,
    text_of,
)
from router.amqp.guard import CannotBegin, Performative
from router.amqp.guard.states import MAX_VALUES, PLAIN_BYTES, PLAIN_VALUES, VALUE_BYTES
from router.amqp.terminus import Terminus
from router.values import Condition, DeliveryState, Handle

ACCEPTED: Final[int] = lib.PN_ACCEPTED
REJECTED: Final[int] = lib.PN_REJECTED
RELEASED: Final[int] = lib.PN_RELEASED
MODIFIED: Final[int] = lib.PN_MODIFIED
RECEIVED: Final[int] = lib.PN_RECEIVED

_OUTCOMES: Final = {
    "amqp:accepted:list": ACCEPTED, "amqp:rejected:list": REJECTED, "amqp:released:list": RELEASED,
    "amqp:modified:list": MODIFIED,
}  # fmt: skip
# The outcomes to try, in this order, if the source of a sender does not offer the wanted outcome. If the source offers
# none of them, the delivery is settled without an outcome, and the source's default-outcome applies. Accepted is never
# used instead of another outcome.
_INSTEAD: Final = {REJECTED: (MODIFIED, RELEASED), RELEASED: (MODIFIED,), MODIFIED: (RELEASED,)}

# The memory that the engine needs for one session, for one link (without its texts) and for one delivery.
SESSION_BYTES: Final = 4 * 1024
LINK_BYTES: Final = 6 * 1024
DELIVERY_BYTES: Final = 1024
# The number of copies that the engine makes of an Attach's texts: the peer's termini, our answer's termini, and the
# frames of both.
_COPIES_OF_TEXTS: Final = 4
# A window grows by this number of bytes at a time.
_MORE_BYTES: Final = 1024 * 1024
# After this number of untaken deliveries the router sends the window again: a window is 512 frames by default.
_MORE_UNTAKEN: Final = 64
# The account may differ from a session's real backlog by up to this number of bytes.
_STEP_BYTES: Final = 16 * 1024

# An upper bound for the other fields of our Transfers and Dispositions. A peer's maximum frame size is at least 512.
OTHER_FIELDS_BYTES: Final = 256
# The maximum size of our frame that relays another peer's data, even if the receiver accepts larger frames. A router's
# guard refuses control frames that are much larger (MAX_CONTROL_FRAME_BYTES).
_MAX_RELAYED_BYTES: Final = 256 * 1024

# Hot path: one global name per C function, looked up once.
_readable, _recv = lib.pn_delivery_readable, lib.pn_link_recv
_advance, _send = lib.pn_link_advance, lib.pn_link_send
_settle: Callable[[Handle], None] = lib.pn_delivery_settle
_update: Callable[[Handle, int], None] = lib.pn_delivery_update
_remote_state: Callable[[Handle], int] = lib.pn_delivery_remote_state
_is_settled: Callable[[Handle], bool] = lib.pn_delivery_settled
_partial: Callable[[Handle], bool] = lib.pn_delivery_partial
_aborted: Callable[[Handle], bool] = lib.pn_delivery_aborted
_take, _send_whole, _new_delivery = STEPS.take, STEPS.send_whole, STEPS.new_delivery
_send_as, _send_with = STEPS.send_as, STEPS.send_with
_backlog, _incoming = lib.pn_session_outgoing_bytes, lib.pn_session_incoming_bytes
_queued, _credit = lib.pn_link_queued, lib.pn_link_credit
_EOS: Final[int] = lib.PN_EOS  # complete and empty; smaller values are errors, such as an aborted delivery

# These expiry policies ask that the terminus outlives its session. In this router a terminus ends with its link.
_OUTLIVES_SESSION: Final = (lib.PN_EXPIRE_WITH_CONNECTION, lib.PN_EXPIRE_NEVER)

_AnyWire = TypeVar("_AnyWire", "IncomingWire", "OutgoingWire")


def _nothing() -> None:
    """Does nothing: the default callback for an answer that the owner does not need."""


class SessionOwner(Protocol):
    def on_end(self, session: "Session") -> None:
        """The peer has ended the session, either by itself or in answer to our End.

        The links of the session are already gone, except if it has many of them (`Session.wires`). In that case
        on_detach is called for each of them soon.
        """


class LinkOwner(Protocol):
    def on_detach(self, link: "IncomingWire | OutgoingWire", *, is_closed: bool) -> None:
        """The peer has detached the link or ended its session. The engine releases the link after this call."""


class Account(Protocol):
    """The account of the connection, which pays for the memory that the engine holds (router.core.budget)."""

    def charge(self, size: int, /) -> None: ...
    def wait(self, size: int, /) -> None: ...
    def may_keep_more(self) -> bool: ...


class Unlimited:
    """An account without limits, for an engine that belongs to no connection."""

    def charge(self, size: int, /) -> None: ...
    def wait(self, size: int, /) -> None: ...
    def may_keep_more(self) -> bool:
        return True


class Holder(Protocol):
    """The interface of the engine that sessions and links use."""

    unanswered: int
    account: Account
    has_details: bool

    @property
    def transport(self) -> Pointer: ...
    @property
    def sessions(self) -> "dict[Pointer, Session]": ...
    @property
    def afterwards(self) -> list[Callable[[], None]]: ...
    @property
    def is_deaf(self) -> bool: ...
    def touch(self) -> None: ...
    def write_early(self) -> None: ...
    def watch(self, session: "Session", /) -> None: ...
    @property
    def can_begin(self) -> bool: ...
    def promise_link(self, session: "Session", name: bytes, /, *, peer_sends: bool) -> None: ...
    def handles_left(self, session: "Session", /) -> int: ...
    def write_capabilities(self, wire: "IncomingWire | OutgoingWire", capabilities: Capabilities, /) -> None: ...
    def adopt(self, wire: "IncomingWire | OutgoingWire", /) -> None: ...
    def answer_drain(self, wire: "OutgoingWire", /) -> None: ...
    def attach_alone(self, wire: "OutgoingWire", attach: Callable[[], None], /) -> None: ...
    def forget(self, pointer: Pointer, /) -> None: ...


class Released:
    """A placeholder for a proton object that the engine has released. Every use of it raises TypeError.

    Attack: an order of events in which a link is used after its release. proton would then read and write memory that
    belongs to something else.
    """


GONE: Final[Pointer] = Released()


class Session:
    """One session that either the peer or the router began.

    channel       our channel number. None until the router's own Begin is written, and for sessions that the peer began
    awaits_begin  True if the router began the session and the peer has not yet answered
    on_answer     called when the peer has answered our Begin: links may be attached from now on. Not called if we have
                  already closed the session
    is_closing    True if we have ended the session, or will end it when the peer's answer comes
    wires         the session's links, by their proton pointer
    account       the account that pays for received data that the router has not yet taken
    window        bytes that the peer may send before the router reads them
    grows         True if the window grows while some links take nothing, so that data for the other links can arrive
    overruns      True if the peer checks the window only at the beginning of a message and then sends all of it. The
                  window then grows early
    pointer       proton's session, or GONE after its release
    """

    __slots__ = (
        "account", "awaits_begin", "channel", "engine", "grows", "incoming", "is_closing", "is_congested", "is_counted",
        "is_ended", "is_watched", "lost", "on_answer", "outgoing", "overruns", "owner", "pointer", "stays", "told",
        "untaken", "window", "wires",
    )  # fmt: skip

    def __init__(self, engine: Holder, pointer: Pointer, owner: SessionOwner, *, is_begun: bool = False) -> None:
        self.engine = engine
        self.pointer = pointer
        self.owner = owner
        self.wires: dict[Pointer, IncomingWire | OutgoingWire] = {}
        self.channel: int | None = None
        self.awaits_begin = is_begun
        self.on_answer = _nothing
        self.is_closing = False
        self.is_counted = False  # the owner has admitted the session
        self.is_watched = False  # in the engine's list of watched sessions
        self.is_congested = False
        self.is_ended = False
        self.untaken = 0  # deliveries on its links that the router has not taken
        self.lost = 0  # bytes of messages that can never leave, because their links are gone
        self.stays = 0  # bytes of links that are gone, which the engine keeps until the session ends
        # The bytes that the account currently pays for, received and outgoing:
        self.incoming = SESSION_BYTES
        self.outgoing = 0
        self.account = engine.account
        self.account.charge(SESSION_BYTES)
        self.window = 0
        self.grows = self.overruns = False
        self.told = 0, 0  # bytes and deliveries received when the window was last sent while some are untaken

    def living(self) -> "Iterator[IncomingWire | OutgoingWire]":
        """Iterates over the links. Skips links that are released meanwhile: their engine object may be gone."""
        wires = self.wires
        return (wire for pointer, wire in list(wires.items()) if pointer in wires)

    def charge_incoming(self) -> None:
        """Charges the account for received data that is not taken: a link is held, or a message arrives in parts."""
        holds = SESSION_BYTES + self.stays + _incoming(self.pointer) + self.untaken * DELIVERY_BYTES
        more, self.incoming = holds - self.incoming, holds
        if more:
            self.account.charge(more)

    def pay_by(self, account: Account) -> None:
        """Makes another account pay for received data that is not taken: the receivers belong to that account."""
        if account is not self.account:
            self.account.charge(-self.incoming)
            self.account = account
            account.charge(self.incoming)

    def charge_outgoing(self) -> int:
        """Charges for data that waits for the peer's window. Returns the bytes that can still leave."""
        holds = int(_backlog(self.pointer))
        if not -_STEP_BYTES < holds - self.outgoing < _STEP_BYTES:
            more, self.outgoing = holds - self.outgoing, holds
            self.engine.account.wait(more)
        return holds - self.lost

    def find_lost(self) -> bool:
        """Returns True if all the waiting data belongs to links that are gone. From then on this data delays nothing.

        The data never leaves, but the engine counts it as long as the session exists. It is messages that were settled
        when they were sent. Attack: a receiver that detaches while the window is full. Nothing more was sent on the
        session.
        """
        links = (wire.link for wire in self.wires.values() if isinstance(wire, OutgoingWire))
        if any(lib.pn_link_queued(link) or lib.pn_link_current(link) for link in links):
            return False
        self.lost = int(_backlog(self.pointer))
        return True

    def free_charges(self) -> None:
        """Returns the session's charges to the accounts, after the engine has released the session."""
        self.account.charge(-self.incoming)
        self.engine.account.wait(-self.outgoing)
        self.incoming = self.outgoing = 0

    @property
    def backlog_bytes(self) -> int:
        """The bytes that the engine holds because the peer has given too little session window or link credit."""
        return int(_backlog(self.pointer)) - self.lost

    @property
    def is_full(self) -> bool:
        """True if the peer may send no further frame until the router reads some of its data."""
        room = lib.pn_session_get_incoming_capacity(self.pointer) - lib.pn_session_incoming_bytes(self.pointer)
        return bool(room < lib.pn_transport_get_max_frame(self.engine.transport))

    def widen(self) -> None:
        """Grows the window so that a message can arrive up to the size at which it is streamed.

        In a smaller window the message would wait forever. The window is small if the session is one of many, or full
        of the beginnings of other messages. The account pays for all that arrives.
        """
        size = STREAM_AT_BYTES + lib.pn_transport_get_max_frame(self.engine.transport)
        if _incoming(self.pointer) + size > lib.pn_session_get_incoming_capacity(self.pointer):
            self._let_come(size)

    def limit_window(self, capacity_bytes: int) -> None:
        """Sets the bytes that the peer may send before they are read (at least one frame). The next flush sends it."""
        least = _MORE_BYTES if self.overruns else lib.pn_transport_get_max_frame(self.engine.transport)
        self.window = max(capacity_bytes, least)
        lib.pn_session_set_incoming_capacity(self.pointer, self.window)

    def tell_window(self, capacity_bytes: int) -> None:
        """Sets the window as `limit_window` does, but writes it at once, before the session's first link is attached.

        Otherwise the Flow names the handle of that link, and it may arrive after a container has refused the link.
        Broker-J then ends the session, and ends its connection when the next session begins.
        """
        self.limit_window(capacity_bytes)
        self.engine.write_early()

    def grow(self) -> None:
        """Grows the window if data that no link takes may have filled it, so that the other links can continue.

        The account pays for this data, and limits it to a part of its size. The peer counts frames of any size, and
        must be sent the number of free frames from time to time. proton sends it only when messages are taken.
        """
        come, untaken = _incoming(self.pointer), self.untaken
        has_little = lib.pn_session_get_incoming_capacity(self.pointer) - come < _MORE_BYTES
        if self.overruns:
            if has_little and self.account.may_keep_more():
                self._let_come(_MORE_BYTES)
            return
        more, more_untaken = come - self.told[0], untaken - self.told[1]
        if not self.grows or len(self.wires) < 2 or not (more or more_untaken):
            return
        if has_little:
            if not self.account.may_keep_more() or not self._has_whole_messages_waiting():
                return
            self._let_come(_MORE_BYTES)
        elif more >= self.window // 8 or more_untaken >= _MORE_UNTAKEN:
            self.show_window()
        elif more >= 0 and more_untaken >= 0:
            return
        self.told = come, untaken

    def _has_whole_messages_waiting(self) -> bool:
        """Returns False if no link has more than the message that streams: then the window must limit that sender."""
        return any(isinstance(wire, IncomingWire) and _queued(wire.link) > 1 for wire in self.wires.values())

    def _let_come(self, size: int) -> None:
        """Lets the peer send this number of bytes in addition to the bytes that have arrived.

        INVARIANT: a window never shrinks again. Data that the peer sent under the larger window may still be on its
        way, and the engine would close the connection for it.
        """
        lib.pn_session_set_incoming_capacity(self.pointer, _incoming(self.pointer) + size)

    @property
    def has_handles(self) -> bool:
        """True if the router may attach one more link under the handle-max of the peer's Begin."""
        return self.engine.handles_left(self) > 0

    @property
    def is_clear(self) -> bool:
        """True if the session has no links and no remaining data of links that are gone."""
        return not self.wires and not _incoming(self.pointer) and not _backlog(self.pointer)

    def show_window(self) -> None:
        """Sends the peer, with the next flush, the number of bytes that it may send.

        Otherwise proton would send this by a Flow of the link on which bytes were read, even if that link is already
        closed.
        """
        lib.pn_session_set_incoming_capacity(self.pointer, lib.pn_session_get_incoming_capacity(self.pointer))

    def accept(self, *, incoming_capacity_bytes: int) -> None:
        """Sends our Begin, usually as an answer. Raises a capacity below one frame to one frame: proton would abort."""
        self.limit_window(incoming_capacity_bytes)
        lib.pn_session_open(self.pointer)

    def refuse(self, condition: Condition) -> None:
        """Answers Begin, and then sends End with the error."""
        lib.pn_session_open(self.pointer)
        self.close(condition)

    def close(self, condition: Condition | None = None) -> None:
        """Sends End, with the error if one is given. The session is released when the peer answers.

        If our Begin has no answer yet, the End is sent only after the answer. Until then the channel must not be used
        again: the engine would take the answer for another session's.
        """
        if condition is not None:
            set_condition(lib.pn_session_condition(self.pointer), condition)
        self.is_closing = True
        if not self.awaits_begin:
            lib.pn_session_close(self.pointer)

    def take_answer(self) -> None:
        """Handles the peer's answer to our Begin."""
        self.awaits_begin = False
        if self.is_closing:
            self.close()
        else:
            self.on_answer()

    @property
    def remote_condition(self) -> Condition | None:
        """The error in the peer's End, or None."""
        return condition_of(lib.pn_session_remote_condition(self.pointer))

    def attach_sender(
        self, name: str, owner: LinkOwner, *, source: Terminus | None, target: Terminus | None
    ) -> "OutgoingWire":
        """Attaches a link on which the router sends, on a session that the router began. Errors: CannotBegin"""
        return self._attach(OutgoingWire, lib.pn_sender, name, owner, source, target)

    def attach_receiver(
        self, name: str, owner: LinkOwner, *, source: Terminus | None, target: Terminus | None
    ) -> "IncomingWire":
        """Attaches a link on which the router receives, on a session that the router began. Errors: CannotBegin"""
        return self._attach(IncomingWire, lib.pn_receiver, name, owner, source, target)

    def attach_as(
        self,
        peers: "IncomingWire | OutgoingWire",
        name: str,
        owner: LinkOwner,
        *,
        address: str | None,
        routed_as: str | None = None,
    ) -> "IncomingWire | OutgoingWire":
        """Attaches a link that continues another peer's link, with the termini and terms that the other peer wrote.

        address    replaces the address of the terminus that is not the peer's own; None: unchanged
        routed_as  replaces the routed-as name in that terminus, if it has one; None: unchanged
        Errors     CannotBegin
        """
        onward: IncomingWire | OutgoingWire
        if isinstance(peers, IncomingWire):
            onward = self._make(OutgoingWire, lib.pn_sender, name, owner)
        else:
            onward = self._make(IncomingWire, lib.pn_receiver, name, owner)
        onward.copy_termini(peers)
        _make_real(lib.pn_link_source(onward.link), lib.PN_SOURCE)
        _make_real(lib.pn_link_target(onward.link), lib.PN_TARGET)
        onward.copy_terms(peers)
        size = int(lib.pn_link_remote_max_message_size(peers.link))
        lib.pn_link_set_max_message_size(onward.link, size)
        local = (lib.pn_link_target if isinstance(peers, IncomingWire) else lib.pn_link_source)(onward.link)
        if address is not None:
            lib.pn_terminus_set_address(local, address.encode())
        if routed_as is not None:
            put_routed_as(local, peers._node_properties, routed_as)
        self._open(onward)
        return onward

    def _attach(
        self,
        kind: type[_AnyWire],
        make: Callable[[Pointer, bytes], Pointer],
        name: str,
        owner: LinkOwner,
        source: Terminus | None,
        target: Terminus | None,
    ) -> _AnyWire:
        wire = self._make(kind, make, name, owner)
        put_terminus(lib.pn_link_source(wire.link), source, lib.PN_SOURCE)
        put_terminus(lib.pn_link_target(wire.link), target, lib.PN_TARGET)
        self._open(wire)
        return wire

    def _open(self, wire: "IncomingWire | OutgoingWire") -> None:
        lib.pn_link_open(wire.link)
        self.engine.adopt(wire)
        self.engine.touch()

    def _make(
        self, kind: type[_AnyWire], make: Callable[[Pointer, bytes], Pointer], name: str, owner: LinkOwner
    ) -> _AnyWire:
        engine, encoded = self.engine, name.encode()
        if self.channel is None or self.awaits_begin or self.is_closing or self.is_ended or not engine.can_begin:
            raise CannotBegin("the session is not open")
        links = chain.from_iterable(session.wires.values() for session in engine.sessions.values())
        if any(isinstance(link, kind) and link.name == name for link in links):
            raise CannotBegin(f"the connection has a link '{name}' already")
        engine.promise_link(self, encoded, peer_sends=kind is IncomingWire)
        made = make(self.pointer, encoded)
        if not made:
            raise MemoryError
        return kind(engine, made, owner)


def _make_real(terminus: Pointer, kind: int) -> None:
    """Marks a terminus without an address as present, because proton treats it as absent and copies it as absent.

    Only a container that refuses a link may omit its terminus. Some peers, for example Broker-J, close a link that has
    no source or target.

    kind  PN_SOURCE or PN_TARGET
    """
    if lib.pn_terminus_get_type(terminus) == lib.PN_UNSPECIFIED:
        lib.pn_terminus_set_type(terminus, kind)


def _text_size(text: Pointer) -> int:
    return len(ffi.string(text)) if text != ffi.NULL else 0


def _size_of(disposition: Pointer, state: int) -> tuple[int, int]:
    """Returns the bytes of a state's data: of its values, and of its texts."""
    if state in (ACCEPTED, RELEASED, RECEIVED):
        return 0, 0
    texts = 0
    if state == REJECTED:
        condition = lib.pn_disposition_condition(disposition)
        data = lib.pn_condition_info(condition)
        texts += _text_size(lib.pn_condition_get_name(condition))
        texts += _text_size(lib.pn_condition_get_description(condition))
    elif state == MODIFIED:
        data = lib.pn_disposition_annotations(disposition)
    else:
        data = lib.pn_disposition_data(disposition)
    return max(lib.pn_data_encoded_size(data), 0), texts


def _room(transport: Pointer) -> int:
    """Returns the bytes available in one of our frames for data that another peer wrote."""
    frame = int(lib.pn_transport_get_remote_max_frame(transport)) or _MAX_RELAYED_BYTES
    return min(frame, _MAX_RELAYED_BYTES) - OTHER_FIELDS_BYTES


class _Wire:
    """The common part of both directions of a link. `core` is the core's link object after admission.

    has_source, has_target  True if the peer's Attach has the terminus. proton treats one without an address as absent
    on_answer  called when the peer has answered our Attach. Credit may be granted from now on. If the peer refuses the
               link, its own terminus is None and its Detach follows. Not called if we have already closed the link or
               its session
    """

    __slots__ = (
        "_node_properties", "_outcomes", "_properties", "_termini_bytes", "awaits_detach", "capabilities", "core",
        "engine", "has_left", "has_source", "has_target", "info_values", "is_answered_later", "is_counted", "link",
        "name", "named", "on_answer", "owner", "session", "size", "source", "target",
    )  # fmt: skip
    settle = staticmethod(_settle)
    is_settled = staticmethod(_is_settled)
    remote_state = staticmethod(_remote_state)

    def __init__(self, engine: Holder, link: Pointer, owner: LinkOwner) -> None:
        self.engine = engine
        self.link = link
        self.owner = owner
        self.on_answer = _nothing
        self.session = engine.sessions[lib.pn_link_session(link)]
        self.name = text_of(lib.pn_link_name(link)) or ""
        self.core: object = None
        self.source: Terminus | None = None  # the peer's source
        self.target: Terminus | None = None
        self._node_properties = b""  # of the dynamic terminus, encoded
        self._outcomes = b""  # the outcomes that the source offers, encoded
        self._properties = b""  # the properties of the link, encoded
        self._termini_bytes = 0
        self.is_counted = False  # the owner has admitted the link
        self.awaits_detach = False  # counted in engine.unanswered
        self.has_left = False  # our Detach has been sent
        self.is_answered_later = False  # the owner will answer the peer's Detach by calling `answer_detach`
        self.info_values = 0  # the number of values in the error of the peer's Detach
        self.capabilities = NO_CAPABILITIES  # the peer's
        self.has_source = self.has_target = False
        # The address of the link's target or source, which policy has checked and the core has bound. None for an
        # anonymous sender.
        self.named: Address | None = None
        self.size = LINK_BYTES + _COPIES_OF_TEXTS * len(self.name)
        engine.account.charge(self.size)

    def keep_capabilities(self, capabilities: Capabilities) -> None:
        """Stores the capabilities from the peer's Attach, and charges for them."""
        self.capabilities = capabilities
        more = _COPIES_OF_TEXTS * capabilities.size
        self.size += more
        self.engine.account.charge(more)

    def read_attach(self, attach: Performative) -> None:
        """Takes the termini of the peer's Attach, and charges for what the engine keeps of them. Errors: Violation

        The engine keeps them as bytes until it is asked for a value. Then each value takes a node as long as the link
        exists.
        """
        more = _COPIES_OF_TEXTS * attach.kept_bytes + VALUE_BYTES * attach.values
        self.size += more
        self.engine.account.charge(more)
        source, target = (attach.kept.get(which, b"") for which in ("source", "target"))
        self._termini_bytes = len(source) + len(target)
        self._outcomes, self._properties = outcomes_of(source), attach.kept.get("properties", b"")
        self.source = terminus_of(lib.pn_link_remote_source(self.link), source, is_source=True)
        self.target = terminus_of(lib.pn_link_remote_target(self.link), target, is_source=False)
        for terminus, encoded in ((self.source, source), (self.target, target)):
            if terminus is not None and terminus.is_dynamic:
                self._node_properties = node_properties_of(encoded)

    @property
    def remote_condition(self) -> Condition | None:
        """The error in the peer's Detach, or None."""
        return condition_of(lib.pn_link_remote_condition(self.link))

    def accept(self, *, dynamic_address: str | None = None, max_message_bytes: int = 0) -> None:
        """Answers the Attach with the peer's own termini, but promises only what the router honours.

        The router keeps nothing for a link that is gone, and uses no filter (routing §5.3).
        """
        link = self.link
        source, target = lib.pn_link_source(link), lib.pn_link_target(link)
        check(lib.pn_terminus_copy(source, lib.pn_link_remote_source(link)))
        check(lib.pn_terminus_copy(target, lib.pn_link_remote_target(link)))
        local = target if lib.pn_link_is_receiver(link) else source
        lib.pn_data_clear(lib.pn_terminus_filter(local))
        lib.pn_terminus_set_durability(local, lib.PN_NONDURABLE)
        lib.pn_terminus_set_timeout(local, 0)
        if lib.pn_terminus_get_expiry_policy(local) in _OUTLIVES_SESSION:
            lib.pn_terminus_set_expiry_policy(local, lib.PN_EXPIRE_WITH_LINK)
        self._agree_on_settlement()
        if dynamic_address is not None:
            lib.pn_terminus_set_address(local, dynamic_address.encode())
        if max_message_bytes:
            lib.pn_link_set_max_message_size(link, max_message_bytes)
        lib.pn_link_open(link)

    def accept_router(self) -> None:
        """Answers a router's Attach.

        Its termini have no address: they are returned as they are, and not as absent ones.
        """
        lib.pn_terminus_set_type(lib.pn_link_remote_source(self.link), lib.PN_SOURCE)
        lib.pn_terminus_set_type(lib.pn_link_remote_target(self.link), lib.PN_TARGET)
        self.accept()

    def fits(self, engine: Holder, *texts: str) -> bool:
        """Returns True if the peer's termini and terms and these texts fit into one frame to another engine's peer.

        Attack: a frame that is too large closes the connection that it is sent on, with all other links there.
        """
        size = self._termini_bytes + len(self._properties) + self.capabilities.size
        size += sum(len(text.encode()) for text in texts)
        return size <= _room(engine.transport)

    def copy_termini(self, other: "_Wire") -> None:
        """Copies the termini that the peer of another link wrote into our side of this link, complete."""
        check(lib.pn_terminus_copy(lib.pn_link_source(self.link), lib.pn_link_remote_source(other.link)))
        check(lib.pn_terminus_copy(lib.pn_link_target(self.link), lib.pn_link_remote_target(other.link)))

    def copy_terms(self, other: "_Wire") -> None:
        """Copies the settlement modes, properties and capabilities that the peer of another link sent."""
        link, theirs = self.link, other.link
        lib.pn_link_set_snd_settle_mode(link, lib.pn_link_remote_snd_settle_mode(theirs))
        lib.pn_link_set_rcv_settle_mode(link, lib.pn_link_remote_rcv_settle_mode(theirs))
        if other._properties:
            put_encoded(lib.pn_link_properties(link), other._properties)
        if other.capabilities:
            self.engine.write_capabilities(self, other.capabilities)  # type: ignore[arg-type]

    @property
    def is_taken(self) -> bool:
        """True if the peer's answer to our Attach has the peer's own terminus. Otherwise the peer refuses the link."""
        return self.has_source if lib.pn_link_is_receiver(self.link) else self.has_target

    def accept_as(self, onward: "_Wire", *, address: str | None, max_message_bytes: int = 0) -> None:
        """Answers the Attach with the answer that the peer of another link gave.

        address  replaces the address in the terminus that is not this peer's own; None: unchanged
        """
        link = self.link
        self.copy_termini(onward)
        self.copy_terms(onward)
        source, target = lib.pn_link_source(link), lib.pn_link_target(link)
        is_receiver = lib.pn_link_is_receiver(link)
        local = target if is_receiver else source
        if onward.is_taken or not is_receiver:
            _make_real(target, lib.PN_TARGET)
        if onward.is_taken or is_receiver:
            _make_real(source, lib.PN_SOURCE)
        if address is not None and lib.pn_terminus_get_type(local) != lib.PN_UNSPECIFIED:
            lib.pn_terminus_set_address(local, address.encode())
        theirs = int(lib.pn_link_remote_max_message_size(onward.link))
        if limit := min((size for size in (max_message_bytes, theirs) if size), default=0):
            lib.pn_link_set_max_message_size(link, limit)
        lib.pn_link_open(link)
        self.engine.touch()

    def detach_as(self, other: "_Wire", *, is_closed: bool) -> None:
        """Detaches as the peer of another link did, with the peer's error if it fits into a frame.

        Attack: an error whose info has thousands of values, sent to a peer that does not answer the Detach.
        """
        if self._is_silent:
            return
        theirs, ours = lib.pn_link_remote_condition(other.link), lib.pn_link_condition(self.link)
        if lib.pn_condition_is_set(theirs):
            name, description = lib.pn_condition_get_name(theirs), lib.pn_condition_get_description(theirs)
            room = _room(self.engine.transport) - _text_size(name)
            if room >= 0:
                lib.pn_condition_set_name(ours, name)
                room -= _text_size(description)
            if room >= 0:
                lib.pn_condition_set_description(ours, description)
            if other.info_values <= MAX_VALUES and room >= max(
                lib.pn_data_encoded_size(lib.pn_condition_info(theirs)), 0
            ):
                check(lib.pn_data_copy(lib.pn_condition_info(ours), lib.pn_condition_info(theirs)))
        self._leave(is_closed=is_closed)
        self.engine.touch()

    @property
    def _is_silent(self) -> bool:
        """True if nothing more may be sent for the link: our Detach or the End is sent, or the link is released."""
        return self.has_left or self.session.is_closing or self.link is GONE

    def _leave(self, condition: Condition | None = None, *, is_closed: bool) -> None:
        """Sends our Detach, unless nothing more may be sent for the link.

        Attack: a peer attaches and detaches such links repeatedly. If something is still to be sent for a link at its
        release, proton keeps the link with all its texts until the session ends.
        """
        if not self._is_silent:
            self.has_left = True
            if condition is not None:
                set_condition(lib.pn_link_condition(self.link), condition)
            (lib.pn_link_close if is_closed else lib.pn_link_detach)(self.link)

    def _agree_on_settlement(self) -> None:
        """Answers the peer's settlement modes."""
        raise NotImplementedError

    def refuse(self, condition: Condition | None) -> None:
        """Sends Attach with a null local terminus, then a closing Detach with the error, if any (routing §5.5)."""
        link = self.link
        source, target = lib.pn_link_source(link), lib.pn_link_target(link)
        if lib.pn_link_is_receiver(link):
            check(lib.pn_terminus_copy(source, lib.pn_link_remote_source(link)))
            lib.pn_terminus_set_type(target, lib.PN_UNSPECIFIED)
        else:
            check(lib.pn_terminus_copy(target, lib.pn_link_remote_target(link)))
            lib.pn_terminus_set_type(source, lib.PN_UNSPECIFIED)
        lib.pn_link_open(link)
        self.close(condition)

    def close(self, condition: Condition | None = None, *, is_peers_doing: bool = True) -> None:
        """Sends a closing Detach. The link object is released when the peer answers.

        is_peers_doing  True if the link counts towards MAX_UNANSWERED_DETACHES
        """
        self._leave(condition, is_closed=True)
        if is_peers_doing:
            self.ignore()

    def detach(self, condition: Condition) -> None:
        """Sends a Detach that is not closing, with the error: the peer keeps its terminus."""
        self._leave(condition, is_closed=False)

    def ignore(self) -> None:
        """Does nothing more for the link until the peer detaches it.

        The link counts towards MAX_UNANSWERED_DETACHES.
        """
        if not (self.awaits_detach or self.link is GONE):
            self.awaits_detach = True
            self.engine.unanswered += 1

    def free_charges(self) -> None:
        """Returns the link's charges to the account, after the engine has released the link."""
        self.engine.account.charge(-self.size)
        self.size = 0

    def answer_detach(self, *, is_closed: bool) -> None:
        """Answers the peer's Detach in the same way (closing or not), and releases the link with its deliveries.

        Attack: links on a session that we have ended, which the peer detaches while it never ends the session. The
        engine keeps every link that we had attached: it waits to send our Detach, which may no longer be sent.
        """
        self._leave(is_closed=is_closed)
        self.cut_short()
        link, session = self.link, self.session
        if session.is_closing and not self.has_left and lib.pn_link_state(link) & lib.PN_LOCAL_ACTIVE:
            session.stays += self.size
            session.charge_incoming()
        self.engine.forget(link)
        lib.pn_link_free(link)

    def cut_short(self) -> None:
        """Ends a message that is partly sent, because the link is about to be released."""

    def take_answer(self) -> None:
        """Handles the peer's answer to our Attach."""
        if not (self.session.is_closing or lib.pn_link_state(self.link) & lib.PN_LOCAL_CLOSED):
            self.on_answer()

    def told(self, delivery: Handle) -> int:
        """Returns the state that the router gave the peer, 0 for none."""
        return int(lib.pn_delivery_local_state(delivery))

    def transaction(self, delivery: Handle) -> bytes | None:
        return first_binary(lib.pn_disposition_data(lib.pn_delivery_remote(delivery)))

    def told_transaction(self, delivery: Handle) -> bytes | None:
        return first_binary(lib.pn_disposition_data(lib.pn_delivery_local(delivery)))

    def relay_state(self, delivery: Handle, origin: Handle, state: int) -> None:
        """Gives `delivery` the state that the other peer gave `origin`, with all its data (routing §9.1).

        The data is omitted if it does not fit into one of the peer's frames. A state that consists only of data is then
        not given.
        """
        remote, local = lib.pn_delivery_remote(origin), lib.pn_delivery_local(delivery)
        values, texts = _size_of(remote, state)
        frame = lib.pn_transport_get_remote_max_frame(self.engine.transport)
        # Attack: if the fields of a Transfer alone are larger than the receiver's frames, the engine loops without end.
        has_room = not frame or values + texts <= frame - OTHER_FIELDS_BYTES
        if has_room and (values > PLAIN_VALUES or texts > PLAIN_BYTES):  # a value takes at least one byte
            self.engine.has_details = True
        if state == REJECTED:
            theirs, ours = lib.pn_disposition_condition(remote), lib.pn_disposition_condition(local)
            if has_room and lib.pn_condition_is_set(theirs):
                lib.pn_condition_set_name(ours, lib.pn_condition_get_name(theirs))
                lib.pn_condition_set_description(ours, lib.pn_condition_get_description(theirs))
                check(lib.pn_data_copy(lib.pn_condition_info(ours), lib.pn_condition_info(theirs)))
        elif state == MODIFIED:
            lib.pn_disposition_set_failed(local, True)
            lib.pn_disposition_set_undeliverable(local, lib.pn_disposition_is_undeliverable(remote))
            if has_room:
                check(lib.pn_data_copy(lib.pn_disposition_annotations(local), lib.pn_disposition_annotations(remote)))
        elif state == RECEIVED:
            lib.pn_disposition_set_section_number(local, lib.pn_disposition_get_section_number(remote))
            lib.pn_disposition_set_section_offset(local, lib.pn_disposition_get_section_offset(remote))
        elif state > MODIFIED:
            if not has_room:
                return
            check(lib.pn_data_copy(lib.pn_disposition_data(local), lib.pn_disposition_data(remote)))
        self.update(delivery, state)

    def update(self, delivery: Handle, state: int) -> None:
        """Gives `delivery` this state, with the data already stored in the delivery."""
        _update(delivery, state)

    @property
    def credit(self) -> int:
        return int(lib.pn_link_credit(self.link))

    @property
    def unsettled_count(self) -> int:
        return int(lib.pn_link_unsettled(self.link))


class Reader(Protocol):
    """Gives the core the pieces of a message that does not arrive in one piece."""

    @property
    def received(self) -> int: ...
    def more(self) -> None: ...
    def hurry(self) -> None: ...
    def abort(self) -> None: ...


class Taker(Protocol):
    """The methods of the core's link object that the wire calls."""

    @property
    def relays_states(self) -> bool: ...
    def on_excess(self) -> None: ...
    def on_aborted(self) -> None: ...
    def on_drained(self, credit: int, /) -> None: ...
    def refuses(self, delivery: Handle, /) -> bool: ...


T = TypeVar("T", bound=Taker)
A = TypeVar("A")


class _Held:
    """Takes the place of a reader while a link is held: incoming bytes stay in the engine."""

    received = 0

    def more(self) -> None: ...

    hurry = abort = more


_HELD: Final = _Held()


class _Granting(_Wire):
    """The part of an incoming link that grants credit and gives outcomes.

    INVARIANT: an outcome is sent only after the whole message has arrived. A sender may treat an earlier outcome as a
    failure: Artemis closes the connection, with all links on it.

    unsaid  the message that is arriving and its outcome. `tell_outcome` sends the outcome when the message has ended
    """

    __slots__ = ("_offered", "unsaid")

    def __init__(self, engine: Holder, link: Pointer, owner: LinkOwner) -> None:
        super().__init__(engine, link, owner)
        self.unsaid: tuple[Handle, int] | None = None
        self._offered: frozenset[int] | None = None

    def update(self, delivery: Handle, state: int) -> None:
        """Gives `delivery` this state. Delays an outcome until the end of the message."""
        if ACCEPTED <= state <= MODIFIED and _partial(delivery):
            self.unsaid = delivery, state
        else:
            _update(delivery, state)

    def tell_outcome(self) -> None:
        """Sends the outcome that waits: the message has arrived completely, or its link is about to be closed."""
        if self.unsaid is not None:
            (delivery, state), self.unsaid = self.unsaid, None
            _update(delivery, state)

    def told(self, delivery: Handle) -> int:
        """Returns the state that the router gave the peer or is about to give, 0 for none."""
        if self.unsaid is not None and self.unsaid[0] == delivery:
            return self.unsaid[1]
        return super().told(delivery)

    def take_answer(self) -> None:
        self._offered = None
        super().take_answer()

    @property
    def offered(self) -> frozenset[int]:
        """The outcomes that the peer's source offers. All outcomes if the source names none."""
        if self._offered is None:
            named = symbols_of(self._outcomes)
            known = (_OUTCOMES[name] for name in named if name in _OUTCOMES)
            self._offered = frozenset(known) or frozenset(_OUTCOMES.values())
        return self._offered

    def give(self, delivery: Handle, state: int) -> None:
        """Gives an outcome, or the one that the source offers instead. The caller settles. Source: AMQP 1.0 §3.5.3.

        A modified outcome has delivery-failed set: the message may have reached a receiver.

        RabbitMQ 3 ends the session if it gets an outcome that its source does not offer.
        """
        chosen = state
        if state in _INSTEAD and state not in self.offered:
            chosen = next((other for other in _INSTEAD[state] if other in self.offered), 0)
        if chosen == MODIFIED:
            local = lib.pn_delivery_local(delivery)
            lib.pn_disposition_set_failed(local, state != RELEASED)
            lib.pn_disposition_set_undeliverable(local, state == REJECTED)
        if chosen:
            self.update(delivery, chosen)

    def relay_state(self, delivery: Handle, origin: Handle, state: int) -> None:
        if state in _INSTEAD and state not in self.offered:
            self.give(delivery, state)
        else:
            super().relay_state(delivery, origin, state)

    def _agree_on_settlement(self) -> None:
        """Accepts settled and unsettled messages, as the sender prefers."""
        mode = lib.pn_link_remote_snd_settle_mode(self.link)
        if mode in (lib.PN_SND_SETTLED, lib.PN_SND_UNSETTLED):
            lib.pn_link_set_snd_settle_mode(self.link, mode)

    @property
    def fills_session(self) -> bool:
        """True if the session is full, so that this link delays the other links of the session."""
        return len(self.session.wires) > 1 and self.session.is_full

    def grant(self, credit: int) -> None:
        lib.pn_link_flow(self.link, credit)

    def start_drain(self) -> None:
        lib.pn_link_set_drain(self.link, True)

    def stop_drain(self) -> None:
        lib.pn_link_set_drain(self.link, False)

    def reject(self, delivery: Handle, condition: Condition) -> None:
        """Gives the outcome rejected with this error. The caller settles."""
        set_condition(lib.pn_disposition_condition(lib.pn_delivery_local(delivery)), condition)
        self.give(delivery, REJECTED)


def _paying(pay: Callable[[int], None], plain: Callable[..., None]) -> Callable[..., None]:
    def forward(taker: object, address: object, delivery: Handle, size: int) -> None:
        pay(size)
        plain(taker, address, delivery, size)

    return forward


def _settle_or_abort(delivery: Handle) -> None:
    """Settles the delivery, or aborts it if it is incomplete.

    proton would keep the unsent part of an incomplete delivery, and count it forever.
    """
    if lib.pn_link_current(lib.pn_delivery_link(delivery)) == delivery:
        lib.pn_delivery_abort(delivery)
    else:
        _settle(delivery)


def _exhaust(steps: Iterator[None]) -> None:
    """Runs all steps at once."""
    for _ in steps:
        pass


class IncomingWire(_Granting):
    """A link on which the router receives.

    state                   forward  stream    incoming messages
    closed                  None     None      are settled unread; before `admit` and after `release_core`
    idle                    set      None      are forwarded when they are complete. A message too large for one piece
                            is begun as a stream
    streaming, discarding   set      a reader  are read, either by a stream that forwards them or by a reader that
                            discards them
    held                    set      _HELD     stay in the engine
    last                    None     either    are treated as above, but no further message is forwarded

    is_held  True if the link becomes held after the message that streams
    hold() and go_on() are for rates; read_by(), drop_reader(), end_message() and end_stream() for readers;
    take_no_more(), read_out() and release_core() for the link's end.
    """

    __slots__ = ("address", "begin", "forward", "is_held", "on_updated", "pay", "plain", "stream", "untaken")
    core: Taker | None
    is_partial = staticmethod(_partial)
    is_aborted = staticmethod(_aborted)
    accept_delivery = staticmethod(STEPS.accept)

    def __init__(self, engine: Holder, link: Pointer, owner: LinkOwner) -> None:
        super().__init__(engine, link, owner)
        self.address: object = None
        # The wire passes `core` and `address` to it. `admit` checks that their types fit.
        self.forward: Callable[..., None] | None = None
        self.begin: Callable[..., None] | None = None
        self.plain: Callable[..., None] | None = None  # `forward` without payment
        self.pay: Callable[[int], None] | None = None
        self.on_updated: Callable[[Handle], None] | None = None
        self.is_held = False
        self.stream: Reader | None = None
        self.untaken = 0  # deliveries that had arrived and were not taken, at the latest count

    # States

    def admit(
        self,
        taker: T,
        address: A,
        forward: Callable[[T, A, Handle, int], None],
        begin: Callable[[T, A, Handle, int], None],
        on_updated: Callable[[Handle], None],
    ) -> None:
        """From now on the wire forwards messages.

        forward     (taker, address, delivery, bytes): the message is in MESSAGE, and the next delivery is current
        begin       (taker, address, delivery, bytes): the first bytes of a message that does not arrive in one piece
        on_updated  called when the sender gave a state or settled
        """
        self.core, self.address = taker, address
        self.forward = self.plain = forward
        self.begin = begin
        self.on_updated = on_updated

    def forward_by(self, forward: Callable[..., None]) -> None:
        """Replaces the `forward` given to `admit` by another one for the same taker and address."""
        self.plain = forward
        self.pay_by(self.pay)

    def pay_by(self, pay: Callable[[int], None] | None) -> None:
        """Sets `pay`, which is called with the size of each message before the message is forwarded.

        For a streamed message it gets the size of the first bytes.
        """
        self.pay, plain = pay, self.plain
        if self.forward is not None and plain is not None:
            self.forward = plain if pay is None else _paying(pay, plain)

    def hold(self) -> None:
        """Takes nothing more, except the rest of a message that streams."""
        self.is_held = True
        if self.stream is None:
            self.stream = _HELD

    def go_on(self) -> None:
        """Takes the messages that arrived while the link was held."""
        self.is_held = False
        if self.stream is _HELD:
            self.stream = None
            self.catch_up()
        elif self.stream is not None:
            self.stream.more()

    def read_on(self) -> None:
        """Takes more of the message that streams, but no other message."""
        if self.stream is not None:
            self.stream.more()

    def read_by(self, reader: Reader) -> None:
        """Gives the current message to `reader`, which calls `end_stream` when it has finished."""
        self.stream = reader

    def drop_reader(self) -> None:
        """Removes the reader of the current message."""
        self.stream = _HELD if self.is_held else None

    def end_message(self) -> None:
        """Ends the current message after its reader has read all of it."""
        self.tell_outcome()
        _advance(self.link)
        self.end_stream()

    def end_stream(self) -> None:
        """Frees the link for its next message, which may have arrived already: proton reports each only once."""
        self.drop_reader()
        self.engine.afterwards.append(self.catch_up)
        self.engine.touch()

    def abort_stream(self) -> None:
        """Aborts the message that streams, if there is one: it will never be complete."""
        if self.stream is not None:
            self.stream.abort()

    def take_no_more(self) -> None:
        """Forwards no further message, not even one already received, except the rest of a streamed message."""
        self.forward = None

    def free_charges(self) -> None:
        super().free_charges()
        self.session.untaken -= self.untaken
        self.untaken = 0

    def answer_detach(self, *, is_closed: bool) -> None:
        """Answers the peer's Detach, and sends the session's window if the session has other links.

        The last messages of this link may have used up the window, and proton forgets to send it again when the link is
        released.
        """
        super().answer_detach(is_closed=is_closed)
        if self.session.wires:
            self.session.show_window()

    def read_out(self) -> None:
        """Takes every byte that has arrived, even if receivers are slow: the link is ending (routing §9.4, §24)."""
        if not self.engine.is_deaf:
            _exhaust(self.reading_out())

    def reading_out(self) -> Iterator[None]:
        """Does `read_out` in steps, also if the connection is ending. Stops if a message ends the connection."""
        was_held, was_deaf = False, self.engine.is_deaf
        while (reader := self.stream) is not None and self.engine.is_deaf == was_deaf:
            if reader is _HELD:
                # Attack: a peer that sends without credit and detaches, repeatedly; no rate limit would delay it.
                self.is_held, self.stream, was_held = False, None, True
            else:
                reader.hurry()
                if self.stream is reader:
                    return
            if self.stream is None:
                yield from self._catching_up(needs_credit=was_held)

    # A message under way

    @property
    def reader(self) -> Reader | None:
        """The reader of the message that does not arrive in one piece, or None."""
        return self.stream if self.stream is not _HELD else None

    @property
    def unread_bytes(self) -> int:
        """The unread bytes of the message that is still incomplete, or -1 if no message is incomplete."""
        delivery = lib.pn_link_current(self.link)
        return int(lib.pn_delivery_pending(delivery)) if delivery and _partial(delivery) else -1

    @property
    def has_full_session(self) -> bool:
        """True if the sender may send nothing more on the session until some of its data has been read."""
        return self.session.is_full

    def give_up(self, condition: Condition) -> None:
        """Rejects the message that is incomplete. Its receivers learn that they do not get the rest."""
        delivery = lib.pn_link_current(self.link)
        self.abort_stream()
        if delivery and _partial(delivery):
            if not _is_settled(delivery) and not self.told(delivery):
                self.reject(delivery, condition)
            self.tell_outcome()
            self._throw_away()

    def _throw_away(self) -> None:
        """Reads what has arrived of a message that no receiver gets, and does not settle it before its end has arrived.

        If it were settled, proton would drop the rest of it but count that towards the session's window forever. The
        session's other links would lack this part of the window.
        """
        self.session.show_window()
        while self.read():
            pass

    def release_core(self) -> None:
        """Detaches the link from the core: later messages are discarded."""
        self.core = self.forward = self.plain = self.begin = self.pay = self.on_updated = self.stream = None
        self.is_held, self.unsaid = False, None

    # Incoming messages

    def on_message(self, delivery: Pointer) -> None:
        """Handles a complete message. Hot: see docs/journeys.md before adding anything."""
        if self.forward is None or self.stream is not None or self.untaken:
            self.on_delivery(delivery)
        else:
            self.forward(self.core, self.address, delivery, _take(self.link))

    def on_delivery(self, delivery: Pointer) -> None:
        """Handles a transfer, or the sender's disposition."""
        if self.stream is not None and _queued(self.link) > _credit(self.link):
            # Attack: while nothing is taken, messages without credit would fill our memory. Proton enforces neither the
            # credit nor the session's window.
            if self.core is not None:
                self.core.on_excess()
            return
        if not _readable(delivery):
            if self.on_updated is not None and not _partial(delivery) and not lib.pn_delivery_pending(delivery):
                self.on_updated(delivery)
            return
        if self.stream is not None or _partial(delivery):
            self._on_partial(delivery)
            self._count_untaken()
            return
        size = _recv(self.link, MESSAGE_C, MESSAGE_BYTES)
        if size == MESSAGE_BYTES or size < _EOS or self.forward is None:
            self._on_unusual(delivery, size)
            return
        if _remote_state(delivery) and size > 0 and self.core is not None and self.core.relays_states:
            self._begin(delivery, size)  # a stream keeps the state while the message waits
            if self.untaken:
                self._count_untaken()
            return
        _advance(self.link)
        if _remote_state(delivery):
            if self.core is not None and self.core.refuses(delivery):
                return
            if self.on_updated is not None and not _is_settled(delivery):
                self.on_updated(delivery)  # now, since the message may be settled once it is forwarded
        self.forward(self.core, self.address, delivery, size if size > 0 else 0)
        if self.untaken:
            self._count_untaken()

    def _count_untaken(self) -> None:
        """Charges for what the engine holds on this link and its session."""
        session, untaken = self.session, int(_queued(self.link))
        session.untaken += untaken - self.untaken
        self.untaken = untaken
        session.charge_incoming()
        if untaken:
            # proton reports nothing that arrives for a delivery after the one that is being read.
            self.engine.watch(session)

    def _on_partial(self, delivery: Pointer) -> None:
        if self.stream is not None:
            self.stream.more()
        elif self.forward is None:
            self._on_unusual(delivery, 0)
        elif lib.pn_delivery_pending(delivery) >= STREAM_AT_BYTES:
            self._begin(delivery, _recv(self.link, MESSAGE_C, MESSAGE_BYTES))
        elif self.session.is_full:
            self.session.widen()

    def _begin(self, delivery: Pointer, size: int) -> None:
        assert self.begin is not None
        if self.pay is not None:
            self.pay(size)
        if _remote_state(delivery) and self.core is not None and self.core.refuses(delivery):
            return
        self.begin(self.core, self.address, delivery, size)

    def _on_unusual(self, delivery: Pointer, size: int) -> None:
        if self.forward is None:
            # The link was refused or closed while transfers were on their way: no receiver may get them.
            if _partial(delivery):
                self._throw_away()
            else:
                _update(delivery, RELEASED)
                _settle(delivery)
        elif size == MESSAGE_BYTES:
            self._begin(delivery, size)
        else:
            # Aborted before any of it was forwarded: receivers have seen nothing of it, and the sender gets its credit
            # back.
            _settle(delivery)
            if self.core is not None:
                self.core.on_aborted()

    def catch_up(self) -> None:
        _exhaust(self._catching_up())

    def _catching_up(self, *, needs_credit: bool = False) -> Iterator[None]:
        """Takes the deliveries that arrived while a streamed message blocked them, one in each step.

        needs_credit  True to take only deliveries that have credit, and to settle the others
        """
        seen = ffi.NULL
        while self.forward is not None:
            delivery = lib.pn_link_current(self.link)
            if not delivery or delivery == seen:
                break
            seen = delivery
            if needs_credit and _credit(self.link) <= 0:
                _settle(delivery)
            else:
                self.on_delivery(delivery)
            yield
        if self.untaken:
            self._count_untaken()

    def tag(self, delivery: Handle) -> bytes:
        tag = lib.pn_delivery_tag(delivery)
        return bytes(ffi.buffer(tag.start, tag.size)) if tag.size else b""

    def state(self, delivery: Handle) -> DeliveryState | None:
        code = _remote_state(delivery)
        if code <= MODIFIED:
            return DeliveryState(code, b"") if code else None
        return DeliveryState(code, encoded_data(lib.pn_disposition_data(lib.pn_delivery_remote(delivery))))

    def read(self) -> int:
        """Reads what has arrived of the current delivery into MESSAGE.

        Returns its bytes, or 0 if nothing waits or it has ended.
        """
        size = int(_recv(self.link, MESSAGE_C, STREAM_AT_BYTES))
        self._count_untaken()
        return max(size, 0)


class ConfirmedWire(IncomingWire):
    """A link whose sender asks for rcv-settle-mode second: a delivery is settled after its sender has settled it.

    The sender gets its credit back only then. Attack: a sender that settles nothing, so that the engine keeps its
    deliveries.
    """

    __slots__ = ("_concluded", "_withheld")

    def __init__(self, engine: Holder, link: Pointer, owner: LinkOwner) -> None:
        super().__init__(engine, link, owner)
        self._concluded: set[Handle] = set()  # deliveries that have an outcome and are not settled
        self._withheld = 0  # credit that is not granted because of such deliveries

    def _agree_on_settlement(self) -> None:
        super()._agree_on_settlement()
        lib.pn_link_set_rcv_settle_mode(self.link, lib.PN_RCV_SECOND)

    def settle(self, delivery: Handle) -> None:
        # For a routed link, the mode comes from the container's answer to the Attach.
        is_second = lib.pn_link_rcv_settle_mode(self.link) == lib.PN_RCV_SECOND
        if is_second and self.told(delivery) and not _is_settled(delivery):
            self._concluded.add(delivery)
        else:
            _settle(delivery)

    def accept_delivery(self, delivery: Handle) -> None:
        _update(delivery, ACCEPTED)
        self.settle(delivery)

    def grant(self, credit: int) -> None:
        more = min(credit, len(self._concluded) - self._withheld)
        self._withheld += more
        super().grant(credit - more)

    def on_delivery(self, delivery: Pointer) -> None:
        if delivery not in self._concluded:
            super().on_delivery(delivery)
        elif _is_settled(delivery):
            self._concluded.discard(delivery)
            _settle(delivery)
            if self._withheld:
                self._withheld -= 1
                super().grant(1)
                self.engine.touch()


class OutgoingWire(_Wire):
    """A link on which the router sends."""

    __slots__ = ("drain_limit", "next_tag", "on_accepted", "on_credit", "on_delivery", "place")

    def __init__(self, engine: Holder, link: Pointer, owner: LinkOwner) -> None:
        super().__init__(engine, link, owner)
        # The delivery-count that the receiver's credit reaches, if the receiver drains the link and waits for our
        # answer.
        self.drain_limit: int | None = None
        self.place: tuple[int, int] | None = None  # channel and handle of our Attach, once it is written
        self.next_tag: bytes | None = None  # of the next delivery; None: the engine chooses a tag
        self.on_delivery = self.on_accepted = _settle
        self.on_credit: Callable[[], None] | None = None

    def admit(
        self,
        core: object,
        *,
        on_delivery: Callable[[Handle], None],
        on_accepted: Callable[[Handle], None],
        on_credit: Callable[[], None],
    ) -> None:
        """Sets the callbacks of the core, which the engine calls from now on.

        on_delivery  the receiver sent a disposition
        on_accepted  the receiver accepted and settled: the most frequent disposition, and hot
        on_credit    the receiver granted credit, or asks to drain
        """
        self.core = core
        self.on_delivery = on_delivery
        self.on_accepted = on_accepted
        self.on_credit = on_credit

    def session_cores(self) -> Iterator[object]:
        return (wire.core for wire in self.session.wires.values())

    def release_core(self) -> None:
        """Detaches the link from the core: later dispositions are settled and ignored."""
        self.core = self.on_credit = None
        self.on_delivery = self.on_accepted = _settle_or_abort

    def _agree_on_settlement(self) -> None:
        """Agrees to send only settled messages if the receiver wants that.

        If it asks for `unsettled`, each message's sender decides.
        """
        if self.wants_settled:
            lib.pn_link_set_snd_settle_mode(self.link, lib.PN_SND_SETTLED)
        if lib.pn_link_remote_rcv_settle_mode(self.link) == lib.PN_RCV_SECOND:
            lib.pn_link_set_rcv_settle_mode(self.link, lib.PN_RCV_SECOND)

    @property
    def is_congested(self) -> bool:
        """True if the session already holds too many bytes that wait for the peer's window: nothing may be added."""
        return self.session.is_congested

    @property
    def backlog_bytes(self) -> int:
        """The bytes of the link's session that have not left."""
        return self.session.backlog_bytes

    @property
    def wants_settled(self) -> bool:
        return bool(lib.pn_link_remote_snd_settle_mode(self.link) == lib.PN_SND_SETTLED)

    def send(self, size: int) -> Handle:
        """Sends the first `size` bytes of MESSAGE as one delivery. The caller settles it or keeps the handle."""
        return _send_whole(self.link, size)

    def send_bytes(self, payload: bytes) -> Handle:
        delivery = self.begin()
        _send(self.link, payload, len(payload))
        _advance(self.link)
        return delivery

    def begin(self) -> Handle:
        """Starts a delivery that grows by `append` until `finish`."""
        tag, self.next_tag = self.next_tag, None
        made: Handle
        if tag is None:
            made = _new_delivery(self.link)
        else:
            held = ffi.from_buffer(tag)
            its = ffi.new("pn_delivery_tag_t *", [len(tag), ffi.cast("char *", held)])
            made = lib.pn_delivery(self.link, its[0])
        if not made:
            raise MemoryError
        return made

    def send_as(self, size: int, origin: Handle) -> Handle:
        """Sends like `send`, with the tag of another delivery."""
        return _send_as(self.link, size, origin)

    def inserting(self) -> Callable[[int, int, bytes, int], Handle]:
        """Returns a function (size, at, inserted, its length) that sends like `send`, with `inserted` before byte `at`.

        `at` must not be greater than `size`.
        """
        return partial(_send_with, self.link)

    def give_state(self, delivery: Handle, state: DeliveryState) -> None:
        if state.data:
            frame = lib.pn_transport_get_remote_max_frame(self.engine.transport)
            # Attack: see `relay_state`.
            if frame and len(state.data) > frame - OTHER_FIELDS_BYTES:
                return
            put_encoded(lib.pn_disposition_data(lib.pn_delivery_local(delivery)), state.data)
        self.update(delivery, state.code)

    def append(self, payload: bytes, at: int, size: int) -> None:
        """Adds `size` bytes of `payload`, from `at` on, to the delivery that has begun."""
        _send(self.link, ffi.from_buffer(payload) + at if at else payload, size)

    def finish(self) -> None:
        _advance(self.link)

    def abort(self, delivery: Handle) -> None:
        """Ends a growing delivery so that the peer does not take it for a complete message. Settles it."""
        lib.pn_delivery_abort(delivery)

    def cut_short(self) -> None:
        """Aborts the delivery that has begun.

        Otherwise proton settles it with the link, and the peer takes it as complete.
        """
        growing = lib.pn_link_current(self.link)
        if growing:
            lib.pn_delivery_abort(growing)

    def drop_unsent(self, latest: Iterable[Handle]) -> None:
        """Frees the unsent unsettled deliveries of a link that is about to be released: they can never leave.

        latest  the unsettled deliveries, the latest first
        """
        for delivery in latest:
            if not lib.pn_delivery_pending(delivery):
                return
            lib.pn_delivery_abort(delivery)

    def buffered(self, delivery: Handle) -> int:
        """Returns the bytes of a growing delivery that are not yet in a frame."""
        return int(lib.pn_delivery_pending(delivery))

    @property
    def is_draining(self) -> bool:
        return bool(lib.pn_link_get_drain(self.link))

    def drained(self) -> None:
        """Gives up the remaining credit, if any, and sends that to the receiver."""
        if lib.pn_link_drained(self.link) > 0:
            self.drain_limit = None
        elif self.drain_limit is not None:
            self.engine.answer_drain(self)
