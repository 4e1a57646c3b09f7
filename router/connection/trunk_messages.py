"""Users' messages between routers: where one that comes from a neighbour goes, and what one that leaves carries.

Source: docs/spec/network.md §10.1, §10.2.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from policy.addressing.address import Address, Unclear
from router.admission.connection_gate import ConnectionGate, Refusal
from router.amqp import sections
from router.amqp.codec import CodecError, decode, skip
from router.amqp.engine import MESSAGE
from router.amqp.sections import Envelope, MessageFault, RouterAnnotations
from router.connection.inspection import inspector
from router.core.addresses import LiveAddress
from router.core.core import NO_ADDRESS
from router.core.in_links import Annotations, InLink
from router.core.network import Network
from router.core.remotes import DEFAULT_PRIORITY, PRIORITIES
from router.core.selection import AnonymousInLink
from router.values import Handle

Route = Callable[[Handle, int], tuple[LiveAddress, int] | None]

# Sections that are remembered: of how many senders' messages, and how long ones.
MAX_REMEMBERED: Final = 256
MAX_REMEMBERED_BYTES: Final = 512

_HEADER_START: Final = b"\x00\x53\x70"
_HEADER: Final = 0x005370
_ANNOTATIONS: Final = frozenset((0x005371, 0x005372))
_SMALL_ANNOTATIONS, _LARGE_ANNOTATIONS = 0x005372C1, 0x005372D1
_LIST0, _LIST8, _LIST32 = 0x45, 0xC0, 0xD0
_LEAST_BYTES: Final = 8  # of a message, or of what stands behind a section, that is worth a quick look
_u32_at = Struct(">I").unpack_from
_VIEW: Final = memoryview(MESSAGE)


def priority_of(size: int) -> int:
    """The priority in the header of the message in the buffer. Of a header that cannot be read, the default."""
    if size < 8 or not MESSAGE.startswith(_HEADER_START):
        return DEFAULT_PRIORITY
    form = MESSAGE[3]
    if form == _LIST0:
        return DEFAULT_PRIORITY
    at, count = (6, MESSAGE[5]) if form == _LIST8 else (12, int.from_bytes(MESSAGE[8:12], "big"))
    if form not in (_LIST8, _LIST32) or count < 2 or at + 2 >= size:
        return DEFAULT_PRIORITY
    try:
        value, _ = decode(memoryview(MESSAGE)[: min(size, at + 64)], skip(MESSAGE, at))
    except (CodecError, IndexError):
        return DEFAULT_PRIORITY
    return min(value, PRIORITIES - 1) if isinstance(value, int) and value >= 0 else DEFAULT_PRIORITY


class Taken:
    """The annotations of messages from neighbours, which are the same for most: taken apart once, and put on once."""

    __slots__ = ("_onward", "ingress", "phase", "to", "trace")

    def __init__(self, own: Annotations) -> None:
        self.to = own.to
        self.phase = own.phase
        self.ingress = own.ingress
        self.trace = own.trace
        self._onward: bytes | None = None

    def onward(self, node: str) -> bytes:
        """The section of the message as it leaves this router."""
        if self._onward is None:
            own = RouterAnnotations(
                to=self.to, phase=self.phase, ingress=self.ingress or node, trace=(*self.trace, node)
            )
            self._onward = sections.section_of(own)
        return self._onward


class Arrivals:
    """Takes the annotations off the messages of one connection.

    Sections that routers alone have written are remembered, since those of one sender's messages are all the same.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, Taken] = {}

    def inspector(self, link: AnonymousInLink, gate: ConnectionGate) -> Callable[[Handle, int], int]:
        look_closer = inspector(link, gate, strips=False, may_be_opaque=False)
        known = self._known

        def inspect(delivery: Handle, size: int) -> int:
            at, end = _annotations_place(size)
            if end < 0 or end - at > MAX_REMEMBERED_BYTES:
                return look_closer(delivery, size)
            section = bytes(_VIEW[at:end])
            taken = known.get(section)
            if taken is None:
                rest = look_closer(delivery, size)
                if size - rest == end - at and link.annotations is not None:
                    if len(known) >= MAX_REMEMBERED:
                        known.clear()
                    known[section] = Taken(link.annotations)
                return rest
            rest = size - end + at
            _VIEW[at:rest] = MESSAGE[end:size]
            link.annotations = taken
            try:
                if sections.find_properties(MESSAGE, rest) == sections.LOOK_CLOSER:
                    sections.find(MESSAGE, rest)
            except MessageFault as fault:
                link.refuse(delivery, fault.condition)
                return -1
            return rest

        return inspect


def _header_end(size: int) -> int:
    """Where the header ends, 0 without one; -1: look closer."""
    if size < _LEAST_BYTES:
        return -1
    word = _u32_at(MESSAGE, 0)[0]
    if word >> 8 != _HEADER:
        return 0
    if word & 0xFF == _LIST0:
        return 4
    if word & 0xFF == _LIST8:
        return 5 + MESSAGE[4]
    return 8 + int(_u32_at(MESSAGE, 4)[0]) if word & 0xFF == _LIST32 else -1


def _annotations_place(size: int) -> tuple[int, int]:
    """Where the message-annotations begin and end, when nothing but a header stands before them; else an end of -1."""
    at = _header_end(size)
    if at < 0 or at + _LEAST_BYTES > size:
        return 0, -1
    word = _u32_at(MESSAGE, at)[0]
    if word == _SMALL_ANNOTATIONS:
        end = at + 5 + MESSAGE[at + 4]
    elif word == _LARGE_ANNOTATIONS:
        end = at + 8 + int(_u32_at(MESSAGE, at + 4)[0])
    else:
        return 0, -1
    return (at, end) if end + _LEAST_BYTES <= size else (0, -1)


def router_for(
    link: AnonymousInLink,
    gate: ConnectionGate,
    network: Network,
    arrivals: Arrivals,
    resolve: Callable[[str], Address | Unclear],
) -> Route:
    """The `route` of a neighbour's data link. A message without an address is refused, one without a way released."""
    inspect = arrivals.inspector(link, gate)
    addresses = network.core.table.addresses

    def route(delivery: Handle, size: int) -> tuple[LiveAddress, int] | None:
        size = inspect(delivery, size)
        if size < 0:
            return None
        own = link.annotations
        to, phase = (own.to, own.phase) if own is not None else (None, 0)
        if to is None:
            phase = 0
            try:
                to = sections.to(MESSAGE, size, sections.find(MESSAGE, size).properties_at)
            except MessageFault as fault:
                link.refuse(delivery, fault.condition)
                return None
        if not to:
            link.refuse(delivery, NO_ADDRESS)
            return None
        named = gate.known_target(to)
        if named is None:
            judged = gate.judge_target(resolve(to), link.identity)
            if isinstance(judged, Refusal):
                link.release_undeliverable(delivery)
                return None
            named = judged
        address = addresses.get(named.key_in(phase))
        # Attack, or a network that has not settled: a message that goes round in a circle.
        if address is None or (own is not None and len(own.trace) > network.radius + 1):
            link.release_undeliverable(delivery)
            return None
        return address, size

    return route


def composer(node: str) -> Callable[[InLink | None, int], bytes]:
    """The `compose` of a link to a neighbour: the message in the buffer with what routers write into it.

    node  this router
    """
    begun: dict[tuple[str | None, str], bytes] = {}  # target and phase of a client's link -> section

    def compose(link: InLink | None, size: int) -> bytes:
        taken = link.annotations if link is not None else None
        named = link.wire.named if link is not None else None
        at = _header_end(size)
        if at < 0 or at + 4 > size or _u32_at(MESSAGE, at)[0] >> 8 in _ANNOTATIONS:
            envelope = sections.find(MESSAGE, size, may_be_opaque=True)
            return _annotated(MESSAGE, envelope, _annotations_of(link, node))
        if type(taken) is Taken and named is None:
            section = taken.onward(node)
        elif taken is None and link is not None:
            key = named.full if named is not None else None, link.address.key[:2] if link.address is not None else ""
            known = begun.get(key)
            if known is None:
                if len(begun) >= MAX_REMEMBERED:
                    begun.clear()
                known = begun[key] = sections.section_of(_annotations_of(link, node))
            section = known
        else:
            section = sections.section_of(_annotations_of(link, node))
        return b"".join((_VIEW[:at], section, _VIEW[at:size]))

    return compose


def _annotations_of(link: InLink | None, node: str) -> RouterAnnotations:
    taken = link.annotations if link is not None else None
    named = link.wire.named if link is not None else None
    key = link.address.key if link is not None and link.address is not None else ""
    to = named.full if named is not None else None
    phase = int(key[1]) if key[:1] == "M" and key[1:2].isdecimal() else 0
    if taken is None:
        return RouterAnnotations(to=to, phase=phase, ingress=node, trace=(node,))
    return RouterAnnotations(
        to=to if to is not None else taken.to,
        phase=phase or taken.phase,
        ingress=taken.ingress if taken.ingress is not None else node,
        trace=(*taken.trace, node),
    )


def _annotated(buffer: sections.Buffer, envelope: Envelope, own: RouterAnnotations) -> bytes:
    return sections.put_together(buffer, envelope, sections.take_apart(buffer, envelope), own)


def stamper(node: str) -> Callable[[bytes], bytes]:
    """(message that this router made) → the same as it leaves for another router."""
    own = RouterAnnotations(ingress=node, trace=(node,))
    return lambda payload: _annotated(payload, sections.find(payload, len(payload)), own)
