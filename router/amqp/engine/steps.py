"""The steps that every message takes through proton, each as one call: compiled where that is there, else in Python.

The compiled code (steps.c) spares the interpreter some twenty calls a message. It decides nothing. It is tested
against the functions here, which do the same. `PALISADE_ENGINE=python` in the environment chooses them.
"""

import os
from collections.abc import Callable
from itertools import count
from struct import Struct
from time import monotonic_ns
from typing import Any, Final, NamedTuple

from router.amqp.engine.library import MESSAGE_BYTES, MESSAGE_C, OUTPUT_BYTES, OUTPUT_C, OUTPUT_VIEW, Pointer, ffi, lib
from router.values import Handle

# The answers of `first_event` and `next_event`. Those of CONTROL are their proton number, which is positive;
# any other is passed over.
NOTHING: Final = 0
MESSAGE: Final = -1  # a complete message of less than MESSAGE_BYTES, without a state
OUTCOME: Final = -2  # the receiver has accepted and settled
TRANSFER: Final = -3  # any other change of a delivery
FLOW: Final = -4
CONTROL: Final = (
    lib.PN_CONNECTION_REMOTE_OPEN,
    lib.PN_SESSION_REMOTE_OPEN,
    lib.PN_SESSION_REMOTE_CLOSE,
    lib.PN_LINK_REMOTE_OPEN,
    lib.PN_LINK_REMOTE_DETACH,
    lib.PN_LINK_REMOTE_CLOSE,
    lib.PN_CONNECTION_REMOTE_CLOSE,
    lib.PN_TRANSPORT_ERROR,
)
# `pull` has taken everything when it took less than this. Proton gives no more at once than the peer takes in a frame,
# and no less than that while it has more.
PULLS_ALL_BYTES: Final = 8 * 1024
_FEWEST_BYTES, _SHORTEST_FLOW, _LONGEST_FLOW = 8, 24, 64  # of a frame
_FLOW_CODE, _GONE = b"\x00\x53\x13", b"\x70\xff\xff\xff\xfe"  # proton's handle of a link that it has detached
_ROOM: Final = 512
_u32_at = Struct(">I").unpack_from


class Steps(NamedTuple):
    """step         after MESSAGE, OUTCOME and TRANSFER: `step.link`, `step.delivery`; after FLOW: `step.link`; after
                 NOTHING: `step.is_late` says whether it was the time that has run out, and there are more
    set_slice    (nanoseconds) → from now on `next_event` stops that long after `first_event`; 0: never
    first_event  (collector) → what the next event is
    next_event   (collector) → the same, after taking off the event before
    take         (link) → bytes of its current message, which is now in the message buffer; the next is current
    new_delivery (link) → a delivery with a tag of its own, to be filled
    send_whole   (link, bytes) → a delivery with the first bytes of the message buffer, complete
    send_as      (link, bytes, origin) → the same with the tag of the delivery `origin`
    send_with    (link, bytes, at, inserted, its bytes) → as send_whole, with `inserted` before the byte at `at` ≤ bytes
    accept       (delivery): accept and settle it
    pull         (transport, left) → bytes put into the output buffer; ≤ 0 when there are none. `left` of them belong to
                 | a frame that has begun before; `step.left` says how many of the next ones do.
                 | A Flow of a link that has gone becomes its session's own; one of a session that has gone is left out:
                 | proton tells of a session's window by a link of which a delivery is settled, even where it has
                 | detached that, and a peer closes the connection for a handle, or a channel, that it does not know
    """

    step: Any
    set_slice: Callable[[int], None]
    first_event: Callable[[Pointer], int]
    next_event: Callable[[Pointer], int]
    take: Callable[[Pointer], int]
    new_delivery: Callable[[Pointer], Handle]
    send_whole: Callable[[Pointer, int], Handle]
    send_as: Callable[[Pointer, int, Handle], Handle]
    send_with: Callable[[Pointer, int, int, bytes, int], Handle]
    accept: Callable[[Handle], None]
    pull: Callable[[Pointer, int], int]


class _Step:
    __slots__ = ("deadline_ns", "delivery", "is_late", "left", "link", "slice_ns")
    link: Pointer
    delivery: Pointer

    def __init__(self) -> None:
        self.is_late = False
        self.slice_ns = self.deadline_ns = self.left = 0


_step = _Step()
# One tag for all outgoing deliveries: proton copies it. Unique per process, so per link.
_tag = ffi.new("pn_delivery_tag_t *")
_tag_bytes = ffi.new("uint64_t *")
_tag.size, _tag.start = 8, ffi.cast("char *", _tag_bytes)
_next_tag = count(1).__next__


# One global name per C function, looked up once.
_peek, _pop, _kind_of = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_type
_event_delivery, _event_link, _delivery_link = lib.pn_event_delivery, lib.pn_event_link, lib.pn_delivery_link
_is_receiver, _is_readable, _is_partial = lib.pn_link_is_receiver, lib.pn_delivery_readable, lib.pn_delivery_partial
_is_aborted, _is_settled, _pending = lib.pn_delivery_aborted, lib.pn_delivery_settled, lib.pn_delivery_pending
_remote_state, _update, _settle = lib.pn_delivery_remote_state, lib.pn_delivery_update, lib.pn_delivery_settle
_recv, _send, _advance, _delivery = lib.pn_link_recv, lib.pn_link_send, lib.pn_link_advance, lib.pn_delivery
_output_pending, _output_peek = lib.pn_transport_pending, lib.pn_transport_peek
_output_pop = lib.pn_transport_pop
_DELIVERY, _LINK_FLOW, _ACCEPTED = lib.PN_DELIVERY, lib.PN_LINK_FLOW, lib.PN_ACCEPTED


def _set_slice(nanoseconds: int) -> None:
    _step.slice_ns = nanoseconds


def _first_event(events: Pointer) -> int:
    _step.is_late = False
    if _step.slice_ns:
        _step.deadline_ns = monotonic_ns() + _step.slice_ns
    return _look(events)


def _next_event(events: Pointer) -> int:
    _pop(events)
    if _step.slice_ns and monotonic_ns() >= _step.deadline_ns:
        _step.is_late = bool(_peek(events))
        return NOTHING
    return _look(events)


def _look(events: Pointer) -> int:
    while event := _peek(events):
        kind: int = _kind_of(event)
        if kind == _DELIVERY:
            return _of_delivery(event)
        if kind == _LINK_FLOW:
            _step.link = _event_link(event)
            return FLOW
        if kind in CONTROL:
            return kind
        _pop(events)
    return NOTHING


def _of_delivery(event: Pointer) -> int:
    delivery = _step.delivery = _event_delivery(event)
    link = _step.link = _delivery_link(delivery)
    if not _is_receiver(link):
        is_outcome = _is_settled(delivery) and _remote_state(delivery) == _ACCEPTED
        return OUTCOME if is_outcome else TRANSFER
    is_whole = (
        _is_readable(delivery)
        and not _is_partial(delivery)
        and not _is_aborted(delivery)
        and 0 < _pending(delivery) < MESSAGE_BYTES
        and not _remote_state(delivery)
    )
    return MESSAGE if is_whole else TRANSFER


def _take(link: Pointer) -> int:
    size: int = _recv(link, MESSAGE_C, MESSAGE_BYTES)
    _advance(link)
    return size


def _new_delivery(link: Pointer) -> Pointer:
    _tag_bytes[0] = _next_tag()
    return _delivery(link, _tag[0])


def _send_whole(link: Pointer, size: int) -> Pointer:
    delivery = _new_delivery(link)
    _send(link, MESSAGE_C, size)
    _advance(link)
    return delivery


def _send_as(link: Pointer, size: int, origin: Pointer) -> Pointer:
    delivery = _delivery(link, lib.pn_delivery_tag(origin))
    _send(link, MESSAGE_C, size)
    _advance(link)
    return delivery


def _send_with(link: Pointer, size: int, at: int, inserted: bytes, inserted_size: int) -> Pointer:
    delivery = _new_delivery(link)
    if at:
        _send(link, MESSAGE_C, at)
    _send(link, inserted, inserted_size)
    _send(link, MESSAGE_C + at, size - at)
    _advance(link)
    return delivery


def _accept(delivery: Pointer) -> None:
    _update(delivery, _ACCEPTED)
    _settle(delivery)


def _pull(transport: Pointer, left: int) -> int:
    _step.left, size = left, 0
    while True:
        pending = int(_output_pending(transport))
        if pending <= 0:
            return size or pending
        room = min(pending, OUTPUT_BYTES - size)
        _output_peek(transport, OUTPUT_C + size, room)
        kept, used = _tidy(OUTPUT_VIEW[size : size + room])
        if not used:
            kept = used = room  # proton has no more of it, and is about to end
        _output_pop(transport, used)
        size += kept
        if (kept == used == room and room < PULLS_ALL_BYTES) or OUTPUT_BYTES - size < _ROOM:
            return size


def _tidy(data: memoryview) -> tuple[int, int]:
    """Tidy the frames in `data`, of which the first `step.left` bytes belong to one that has begun before.

    Returns how many bytes of them stay, and how many were looked at: a short beginning of a frame was not.
    """
    size = len(data)
    at = to = min(_step.left, size)
    _step.left -= at
    while at < size:
        rest = size - at
        frame = _u32_at(data, at)[0] if rest >= 4 else 0
        if not _FEWEST_BYTES <= frame <= rest:
            if rest < _LONGEST_FLOW:
                break
            _step.left = 0 if frame < _FEWEST_BYTES else frame - rest
            frame = kept = rest
        else:
            kept = frame
            if frame >= _SHORTEST_FLOW and data[at + 8 : at + 11] == _FLOW_CODE:
                kept = _mended(data[at : at + frame])
        if to != at:
            data[to : to + kept] = bytes(data[at : at + kept])
        to += kept
        at += frame
    return to, at


def _mended(flow: memoryview) -> int:
    """The bytes of a Flow that are sent."""
    if flow[6] & 0x80:
        return 0
    head = {0xC0: 14, 0xD0: 20}.get(flow[11])
    if head is None:
        return len(flow)
    end = head
    for _ in range(4):
        if end >= len(flow):
            return len(flow)
        end += 5 if flow[end] >= 0x70 else 2 if flow[end] >= 0x50 else 1
    if flow[end : end + 5] != _GONE:
        return len(flow)
    flow[2:4] = end.to_bytes(2, "big")
    if head == 14:
        flow[12], flow[13] = end - 13, 4
    else:
        flow[15], flow[19] = end - 16, 4
    return end


# In the order of the struct in steps.c.
PROTOTYPES: Final = {
    "pn_collector_peek": "struct pn_event_t *(*)(struct pn_collector_t *)",
    "pn_collector_pop": "_Bool(*)(struct pn_collector_t *)",
    "pn_event_type": "pn_event_type_t(*)(struct pn_event_t *)",
    "pn_event_delivery": "struct pn_delivery_t *(*)(struct pn_event_t *)",
    "pn_event_link": "struct pn_link_t *(*)(struct pn_event_t *)",
    "pn_delivery_link": "struct pn_link_t *(*)(struct pn_delivery_t *)",
    "pn_link_is_receiver": "_Bool(*)(struct pn_link_t *)",
    "pn_delivery_readable": "_Bool(*)(struct pn_delivery_t *)",
    "pn_delivery_partial": "_Bool(*)(struct pn_delivery_t *)",
    "pn_delivery_aborted": "_Bool(*)(struct pn_delivery_t *)",
    "pn_delivery_pending": "size_t(*)(struct pn_delivery_t *)",
    "pn_delivery_settled": "_Bool(*)(struct pn_delivery_t *)",
    "pn_delivery_remote_state": "uint64_t(*)(struct pn_delivery_t *)",
    "pn_delivery_update": "void(*)(struct pn_delivery_t *, uint64_t)",
    "pn_delivery_settle": "void(*)(struct pn_delivery_t *)",
    "pn_link_recv": "ssize_t(*)(struct pn_link_t *, char *, size_t)",
    "pn_link_send": "ssize_t(*)(struct pn_link_t *, char *, size_t)",
    "pn_link_advance": "_Bool(*)(struct pn_link_t *)",
    "pn_delivery": "struct pn_delivery_t *(*)(struct pn_link_t *, struct pn_bytes_t)",
    "pn_transport_pending": "ssize_t(*)(struct pn_transport_t *)",
    "pn_transport_peek": "ssize_t(*)(struct pn_transport_t *, char *, size_t)",
    "pn_transport_pop": "void(*)(struct pn_transport_t *, size_t)",
    "pn_delivery_tag": "struct pn_bytes_t(*)(struct pn_delivery_t *)",
}


def _bind() -> Steps | None:
    """The compiled steps; None where they were not compiled, or for a proton whose functions are not those.

    Raises ImportError where they were compiled from other sources than those beside this file.
    """
    try:
        from router.amqp.engine._steps import ffi as steps_ffi
        from router.amqp.engine._steps import lib as steps
    except ImportError:
        return None
    functions = [ffi.addressof(lib, name) for name in PROTOTYPES]
    if [ffi.typeof(function).cname for function in functions] != list(PROTOTYPES.values()):
        return None
    table = steps_ffi.new("void *[]", [ffi.cast("void *", function) for function in functions])
    try:
        step = steps.bind(
            table, len(table), lib.PN_DELIVERY, lib.PN_LINK_FLOW, sum(1 << kind for kind in CONTROL), lib.PN_ACCEPTED,
            MESSAGE_C, MESSAGE_BYTES, OUTPUT_C, OUTPUT_BYTES,
        )  # fmt: skip
        if not step:
            return None
        return Steps(
            step, steps.set_slice, steps.first_event, steps.next_event, steps.take, steps.new_delivery,
            steps.send_whole, steps.send_as, steps.send_with, steps.accept, steps.pull,
        )  # fmt: skip
    except (AttributeError, TypeError):
        text = "router.amqp.engine._steps was compiled from older sources: run `make`, or install the router anew"
        raise ImportError(text) from None


PYTHON: Final = Steps(
    _step,
    _set_slice,
    _first_event,
    _next_event,
    _take,
    _new_delivery,
    _send_whole,
    _send_as,
    _send_with,
    _accept,
    _pull,
)
COMPILED: Final = _bind()
CHOSEN: Final = COMPILED if COMPILED is not None and os.environ.get("PALISADE_ENGINE") != "python" else PYTHON
