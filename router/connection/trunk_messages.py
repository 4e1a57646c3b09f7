"""Users' messages between routers: where one that comes from a neighbour goes, and what one that leaves carries.

Source: docs/spec/network.md §10.1, §10.2.
"""

from collections.abc import Callable
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
from router.core.in_links import InLink
from router.core.network import Network
from router.core.remotes import DEFAULT_PRIORITY, PRIORITIES
from router.core.selection import AnonymousInLink
from router.values import Handle

Route = Callable[[Handle, int], tuple[LiveAddress, int] | None]

_HEADER_START: Final = b"\x00\x53\x70"
_LIST0, _LIST8, _LIST32 = 0x45, 0xC0, 0xD0


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


def router_for(
    link: AnonymousInLink, gate: ConnectionGate, network: Network, resolve: Callable[[str], Address | Unclear]
) -> Route:
    """The `route` of a neighbour's data link. A message without an address is refused, one without a way released."""
    inspect = inspector(link, gate, strips=False, may_be_opaque=False)

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
        address = network.core.table.find(named, phase)
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

    def compose(link: InLink | None, size: int) -> bytes:
        envelope = sections.find(MESSAGE, size, may_be_opaque=True)
        return _annotated(MESSAGE, envelope, _annotations_of(link, node))

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
