"""The steps of router.amqp.engine.steps in Python: what the compiled ones are compared with."""

from itertools import count
from struct import Struct
from time import monotonic_ns
from typing import Final

from router.amqp.engine.library import MESSAGE_BYTES, MESSAGE_C, OUTPUT_BYTES, OUTPUT_C, OUTPUT_VIEW, Pointer, ffi, lib
from router.amqp.engine.steps import CONTROL, FLOW, MESSAGE, NOTHING, OUTCOME, PULLS_ALL_BYTES, TRANSFER, Steps

_FEWEST_BYTES, _SHORTEST_FLOW, _LONGEST_FLOW = 8, 18, 64  # of a frame
_FLOW_CODE, _GONE = b"\x00\x53\x13", b"\x70\xff\xff\xff\xfe"  # proton's handle of a link that it has detached
_ROOM: Final = 512
_u32_at = Struct(">I").unpack_from


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
