"""The state machine that admits the frames of one connection's peer. Pure.

A peer's frames must follow from its earlier frames. There is one Open, which comes first. Channels must be begun,
handles attached, and delivery-ids in order, and nothing may follow a Close. Answers must follow from our own frames: a
Begin on our channel, an Attach of that name. The AMQP engine does not check any of this. Some orders of frames make it
use memory that it has freed.

Sources: AMQP 1.0 §2.3 to §2.8; docs/spec/routing.md §1. Conditions and descriptions are those of qdrouterd 1.20 where
it closes the connection too.
"""

from typing import Final

from router.amqp.buffers import MAX_OPEN_BYTES
from router.amqp.decoding import Buffer
from router.amqp.guard import states
from router.amqp.guard.begun import Begun, CannotBegin
from router.amqp.guard.performatives import (
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FRAME_HEADER_BYTES,
    FRAMING,
    MAX_TAG_BYTES,
    NAMES,
    OPEN,
    TRANSFER,
    Performative,
    Refused,
    read_frame,
)
from router.amqp.guard.tables import (
    HAS_ID,
    HAS_MORE,
    IS_SENDER,
    MAX_CREDIT,
    MAX_SPAN,
    CompiledTables,
    Entry,
    Tables,
    link_key,
    session_key,
)

_HEADER: Final = b"AMQP\x00\x01\x00\x00"
_MAX_UINT: Final = 0xFFFFFFFF
_MAX_AHEAD: Final = 0x7FFFFFFF  # serial numbers (RFC 1982) further apart than this have no order
_MAX_HANDLE: Final = 0x7FFFFFFF  # the handle-max that the engine's Begin offers
MAX_CHANNEL: Final = 32767  # the engine uses higher numbers as marks of its own
_DEFAULT_CHANNEL_MAX: Final = 65535
_NOT_ALLOWED, _INVALID_FIELD = "amqp:not-allowed", "amqp:invalid-field"
# Handles up to here may be chosen freely. Higher ones may be up to this many times the number of links of their
# session. Attack: handles that all fall into one place of the engine's hash table. Each frame would search through
# thousands of links.
_FREE_HANDLES: Final = 0xFFFF
_SPARSE: Final = 4
# Each of these creates something in the engine that stays until its answer has left.
_ANSWERED: Final = frozenset((BEGIN, ATTACH, DETACH, END))
# This number of deliveries named by Dispositions costs a connection's turn as much as one control frame.
_SPAN_PER_FRAME: Final = 128
_BYTES_PER_FRAME: Final = 1024  # the same for the size of a control frame
# The same for objects that the engine searches: the session's links for an Attach, and the sessions for a Begin.
_HELD_PER_FRAME: Final = 2000


class Guard:
    """Decides whether the engine may see a peer's frames.

    Usage: `scan` admits plain frames. For the next frame, `measure` returns its size, `read` its contents, and `admit`
    whether the engine may get it. All raise Refused. After that the guard must not be asked again.
    """

    __slots__ = (
        "acting", "answerable", "begun", "channels", "details", "drain_limit", "highest", "is_open", "max_frame_bytes",
        "offered_channel_max", "peers_channel_max", "replaced", "scan", "stage", "tables", "unanswered", "unwritten",
    )  # fmt: skip

    def __init__(self, *, max_frame_bytes: int, channel_max: int, tables: type[Tables] = CompiledTables) -> None:
        """Starts before the protocol header.

        max_frame_bytes  offered in our Open; 0: no limit
        channel_max      offered in our Open
        """
        self.tables = tables()
        self.scan = self.tables.scan
        self.offered_channel_max = channel_max
        self.peers_channel_max = _DEFAULT_CHANNEL_MAX
        self.channels: dict[int, set[int]] = {}  # begun and not ended -> handles attached and not detached
        # Begun and not ended -> the number of links that its handle-max lets us answer.
        self.answerable: dict[int, int] = {}
        self.highest: dict[int, int] = {}  # begun and not ended -> the highest handle so far; -1: none
        # Channel -> links detached, None -> sessions ended, whose places in the engine may be in use until our answer
        # is written.
        self.unwritten: dict[int | None, int] = {}
        # Channels that the peer began, whose answering Begin may still be in the engine.
        self.unanswered: set[int] = set()
        self.begun = Begun()
        # The latest admitted frame that was not plain, until the engine has acted on it.
        self.acting: Performative | None = None
        self.details = 0  # memory that its state takes for each delivery, in addition to the record
        self.replaced: bytes | None = None  # the engine gets these bytes instead of the frame
        # For the Flow just admitted, if a receiver drains its link: the delivery-count that its credit reaches.
        self.drain_limit: int | None = None
        self.is_open = False  # the peer has sent Open
        self.stage = "header"  # then "open" (awaited), "running", "closed"
        self.max_frame_bytes = max_frame_bytes or _MAX_UINT

    def offer(self, *, max_frame_bytes: int | None = None, channel_max: int | None = None) -> None:
        """Changes the limits of our Open, which is about to be sent."""
        if max_frame_bytes is not None:
            self.max_frame_bytes = max_frame_bytes or _MAX_UINT
        if channel_max is not None:
            self.offered_channel_max = channel_max
        if self.stage == "running":
            self.tables.max_frame = self.max_frame_bytes

    @property
    def channel_max(self) -> int:
        """The highest channel that both Opens and the engine allow."""
        return min(self.offered_channel_max, self.peers_channel_max, MAX_CHANNEL)

    def measure(self, data: Buffer, start: int, end: int) -> int:
        """Returns the size of the frame (or protocol header) at data[start:end].

        If there are too few bytes, returns the number of bytes needed to know the size.
        """
        if self.stage == "header" or end - start < FRAME_HEADER_BYTES:
            return FRAME_HEADER_BYTES
        size = int.from_bytes(data[start : start + 4], "big")
        if size < FRAME_HEADER_BYTES:
            raise Refused(FRAMING, f"a frame of {size} bytes, less than its own header")
        # Limits what one connection makes us hold before a frame is complete.
        limit = self.max_frame_bytes if self.is_open else min(self.max_frame_bytes, MAX_OPEN_BYTES)
        if size > limit:
            raise Refused(FRAMING, f"a frame of {size} bytes is over the limit of {limit}")
        return size

    def read(self, frame: Buffer) -> Performative | None:
        """Reads the frame that `measure` has measured. Returns None for the protocol header and for an empty frame."""
        if self.stage == "header":
            if bytes(frame) != _HEADER:
                raise Refused(FRAMING, "the connection does not begin with the AMQP 1.0 header")
            return None
        return read_frame(frame)

    def is_answered(self, performative: Performative | None) -> bool:
        """Returns True if the engine holds something for the frame until our answer has left."""
        return performative is not None and performative.code in _ANSWERED

    def is_answered_alone(self, performative: Performative | None) -> bool:
        """Returns True if the answer must be written alone: for receivers' Attaches, because it shows our handle."""
        return performative is not None and performative.code == ATTACH and bool(performative.fields["role"])

    def cost(self, performative: Performative | None) -> int:
        """Returns a frame's cost to the connection's turn, in control frames.

        This includes the Dispositions scanned just before it.
        """
        named, size, held = self.tables.span, 0, 0
        if performative is not None and performative.code != TRANSFER:
            fields, size = performative.fields, performative.size_bytes
            if performative.code == DISPOSITION:
                named += min((fields.get("last", fields["first"]) - fields["first"]) & _MAX_UINT, MAX_SPAN)
            elif performative.code == ATTACH:
                held = len(self.channels.get(performative.channel, ()))
            elif performative.code == BEGIN:
                held = len(self.channels)
        return 1 + named // _SPAN_PER_FRAME + size // _BYTES_PER_FRAME + held // _HELD_PER_FRAME

    def is_crowded(self, performative: Performative | None) -> bool:
        """Returns True if the frame may lack one of our channels or handles until earlier answers are written.

        Otherwise the engine would stop writing forever. And if a session has ended, the engine's answer to its Begin no
        longer names the channel that it answers. `written` tells the guard that the answers are written.
        """
        if performative is None:
            return False
        if performative.code == END:
            return performative.channel in self.unanswered
        if not self.unwritten:
            return False
        if performative.code == BEGIN:
            return self._used_channels + self.unwritten.get(None, 0) > self.channel_max
        channel = performative.channel
        if performative.code != ATTACH or channel not in self.channels:
            return False
        return self._used_handles(channel) + self.unwritten.get(channel, 0) >= self.answerable[channel]

    @property
    def _used_channels(self) -> int:
        """Our channels in use, except those of sessions that have ended with an unwritten answer."""
        return len(self.channels) + self.begun.unanswered

    @property
    def channels_left(self) -> int:
        """The number of sessions that may still be begun."""
        return self.channel_max + 1 - self._used_channels - self.unwritten.get(None, 0)

    def handles_left(self, ours: int) -> int:
        """Returns the number of links that may still be attached on the session that we began on the channel `ours`."""
        channel = self.begun.answers.get(ours)
        if channel is None:
            return 0
        return self.answerable[channel] - self._used_handles(channel) - self.unwritten.get(channel, 0)

    def _used_handles(self, channel: int) -> int:
        """Returns our handles in use on a session, except those of detached links with an unwritten answer."""
        return len(self.channels[channel]) + self.begun.awaited_links(channel)

    def written(self) -> None:
        """Notes that all our answers have left the engine."""
        self.unwritten.clear()
        self.unanswered.clear()

    # Our own Begins and Attaches

    def promise_session(self) -> None:
        """Notes that a session will be begun. `begun.sent` then gives its channel. Errors: CannotBegin"""
        if self.stage != "running":
            raise CannotBegin("the connection is not open")
        if self.channels_left <= 0:
            raise CannotBegin("no channel is left")
        self.begun.promised += 1

    def promise_link(self, ours: int, name: bytes, *, peer_sends: bool) -> None:
        """Notes that a link will be attached on the session that we began on the channel `ours`. Errors: CannotBegin"""
        channel = self.begun.answers.get(ours)
        if channel is None or self.stage != "running":
            raise CannotBegin("the session is not open")
        if self.handles_left(ours) <= 0:
            raise CannotBegin("no handle is left")
        self.begun.links[channel].add((name, peer_sends))

    # The peer's frames

    def acted(self) -> None:
        """Notes that the engine has acted on all frames that it got."""
        self.acting = self.drain_limit = self.replaced = None
        self.details = 0

    def admit(self, performative: Performative | None) -> bool:
        """Applies one performative. Returns True if the engine must get it, or the bytes in `replaced`."""
        self.acting = performative
        if self.stage == "header":
            self.stage = "open"
            return True
        if performative is None:
            if self.stage == "open":
                raise Refused(_NOT_ALLOWED, "an empty frame before the open")
            return True
        code = performative.code
        if code == OPEN:
            return self._open(performative)
        if self.stage == "open":
            raise Refused(_NOT_ALLOWED, f"{NAMES[code]} before the open")
        if code == CLOSE:
            self.close()
            return True
        if code == BEGIN:
            return self._begin(performative)
        channel = performative.channel
        session = self.tables.find(session_key(channel))
        if session is None:
            raise Refused(_NOT_ALLOWED, f"no such channel: {channel}")
        if code == END:
            return self._end(channel)
        if code == ATTACH:
            return self._attach(performative)
        if code == DISPOSITION:
            return self._disposition(performative)
        if code == TRANSFER:
            return self._transfer(performative, session)
        if code == DETACH:
            return self._detach(performative)
        return self._flow(performative)

    def close(self) -> None:
        """Ends the connection for the guard: it admits nothing more."""
        self.acted()
        self.stage = "closed"
        self.tables.max_frame = 0

    @property
    def is_over(self) -> bool:
        """True after the peer's Close, or if the connection is over for another reason: further bytes are ignored."""
        return self.stage == "closed"

    # Connections and sessions

    def _open(self, performative: Performative) -> bool:
        if self.stage != "open":
            raise Refused(_NOT_ALLOWED, "a second open on one connection")
        if performative.channel != 0:
            raise Refused(_NOT_ALLOWED, f"open on channel {performative.channel}; it belongs on channel 0")
        self.stage, self.is_open = "running", True
        self.tables.max_frame = self.max_frame_bytes
        self.peers_channel_max = performative.fields.get("channel-max", _DEFAULT_CHANNEL_MAX)
        return True

    def _begin(self, performative: Performative) -> bool:
        channel = performative.channel
        if channel > self.channel_max:
            raise Refused(FRAMING, f"remote channel {channel} is above negotiated channel_max {self.channel_max}.")
        answered = performative.get("remote-channel")
        # INVARIANT: each of our Begins has one answer. A second one would give one session of the engine two channels.
        if answered is not None and answered not in self.begun.awaited:
            raise Refused(_INVALID_FIELD, f"begin reply to unknown channel {answered}.")
        if channel in self.channels:
            raise Refused(_NOT_ALLOWED, f"channel {channel} has a session already")
        if answered is not None:
            self.begun.answered(answered, channel)
        elif self._used_channels > self.channel_max:
            # Our answer needs one of our channels, and sessions that we have begun use them all.
            raise Refused(_NOT_ALLOWED, "begin of more sessions than channel-max lets us answer")
        else:
            self.unanswered.add(channel)
        self.tables.add(session_key(channel))
        self.channels[channel] = set()
        self.highest[channel] = -1
        self.answerable[channel] = min(performative.fields.get("handle-max", _MAX_HANDLE), _MAX_HANDLE) + 1
        return True

    def _end(self, channel: int) -> bool:
        for handle in self.channels.pop(channel):
            self.tables.discard(link_key(channel, handle))
        self.tables.discard(session_key(channel))
        self.begun.ended(channel)
        del self.answerable[channel], self.highest[channel]
        self.unanswered.discard(channel)
        self.unwritten.pop(channel, None)
        self.unwritten[None] = self.unwritten.get(None, 0) + 1
        return True

    # Links

    def _attach(self, performative: Performative) -> bool:
        channel, handle, fields = performative.channel, performative.fields["handle"], performative.fields
        if handle > _MAX_HANDLE:
            raise Refused(FRAMING, f"remote handle {handle} is above handle_max {_MAX_HANDLE}")
        if handle in self.channels[channel]:
            raise Refused("amqp:session:handle-in-use", f"handle {handle} of channel {channel} has a link already")
        if handle > _FREE_HANDLES and handle > _SPARSE * len(self.channels[channel]):
            links = len(self.channels[channel])
            raise Refused(FRAMING, f"remote handle {handle} is too high for a session of {links} links")
        is_answer = self.begun.takes_answer(channel, performative.link_name, peer_sends=not fields["role"])
        if not is_answer and self._used_handles(channel) >= self.answerable[channel]:
            # Our answer needs one of our handles, and all are in use.
            answerable = self.answerable[channel]
            raise Refused(_NOT_ALLOWED, f"attach of more links than the {answerable} that handle-max lets us answer")
        link = self.tables.add(link_key(channel, handle))
        if not fields["role"]:
            link.flags = IS_SENDER
            link.value = fields.get("initial-delivery-count", 0)
        self.channels[channel].add(handle)
        self.highest[channel] = max(self.highest[channel], handle)
        return True

    def _link(self, performative: Performative) -> Entry:
        handle = performative.fields["handle"]
        link = self.tables.find(link_key(performative.channel, handle))
        if link is None:
            raise Refused(_INVALID_FIELD, f"no such handle: {handle}")
        return link

    def _detach(self, performative: Performative) -> bool:
        """Ignores a second Detach of the same link: some clients first detach a link and then close it."""
        channel, handle = performative.channel, performative.fields["handle"]
        if handle not in self.channels[channel] and handle <= self.highest[channel]:
            return False
        self._link(performative)
        self.tables.discard(link_key(channel, handle))
        self.channels[channel].discard(handle)
        self.unwritten[channel] = self.unwritten.get(channel, 0) + 1
        return True

    # Deliveries

    def _transfer(self, performative: Performative, session: Entry) -> bool:
        link, fields = self._link(performative), performative.fields
        if not link.flags & IS_SENDER:
            raise Refused(_NOT_ALLOWED, f"transfer on handle {fields['handle']}, on which the peer receives")
        if states.details_bytes(performative):
            raise states.refusal(performative)
        number = fields.get("delivery-id")
        if link.flags & HAS_MORE:
            if number is not None and number != link.id:
                raise Refused(_INVALID_FIELD, "invalid delivery-id for a continuation transfer")
        else:
            if number is None:
                raise Refused(_INVALID_FIELD, "delivery-id required on the first transfer of a delivery")
            if not 0 <= fields.get("delivery-tag", -1) <= MAX_TAG_BYTES:
                raise Refused(
                    _INVALID_FIELD,
                    f"delivery-tag required on the first transfer of a delivery, of at most {MAX_TAG_BYTES} bytes",
                )
            if session.flags & HAS_ID and number != session.value:
                raise Refused(
                    "amqp:session:invalid-field",
                    f"sequencing error, expected delivery-id {session.value}, got {number}",
                )
            session.value = (number + 1) & _MAX_UINT
            session.flags |= HAS_ID
            link.id = number
            link.value = (link.value + 1) & _MAX_UINT
        goes_on = fields.get("more") and not fields.get("aborted")
        link.flags = link.flags | HAS_MORE if goes_on else link.flags & ~HAS_MORE
        return True

    def _flow(self, performative: Performative) -> bool:
        fields = performative.fields
        if "handle" not in fields:
            return True
        link = self._link(performative)
        if not link.flags & IS_SENDER:
            if fields.get("link-credit", 0) > MAX_CREDIT:
                raise Refused(_INVALID_FIELD, f"flow grants more than {MAX_CREDIT} credit")
            if fields.get("drain"):
                self.drain_limit = (fields.get("delivery-count", 0) + fields.get("link-credit", 0)) & _MAX_UINT
            return True
        count = performative.get("delivery-count")
        if count is None:
            raise Refused(_INVALID_FIELD, "flow of a sender lacks its field delivery-count")
        ahead = (count - link.value) & _MAX_UINT
        # We count a message under way as soon as it has begun. Some senders count it only when it is complete. The
        # engine would give credit for the difference, so it does not get this frame.
        if ahead == _MAX_UINT and link.flags & HAS_MORE:
            return False
        # Attack: the engine takes a count that goes back for new credit, without end.
        if ahead > _MAX_AHEAD:
            raise Refused(_INVALID_FIELD, f"flow sets back the delivery-count of a sender from {link.value} to {count}")
        link.value = count
        return True

    def _disposition(self, performative: Performative) -> bool:
        first = performative.fields["first"]
        last = performative.fields.get("last", first)
        deliveries = ((last - first) & _MAX_UINT) + 1
        if deliveries - 1 > _MAX_AHEAD:
            raise Refused(_NOT_ALLOWED, f"illegal delivery range: {first:x}-{last:x}")
        self.details = states.details_bytes(performative)
        # A sender names a transaction or repeats an outcome: no account pays for more.
        is_senders = not performative.fields["role"]
        if self.details and (is_senders or states.is_too_large(performative, deliveries=deliveries)):
            self.replaced, self.details = states.without_details(performative), 0
        return True
