"""The inspection of messages before they are routed. A link chooses its inspection once, when it attaches.

A link pays only for what it needs: a message that begins with neither annotations nor properties passes after a check
of eight bytes. Sources: docs/spec/routing.md §9.5, §11; docs/spec/policy-and-auth.md §3.9.
"""

from collections.abc import Callable

from policy.addressing.address import FALLBACK_PHASE, Address, Unclear, phase_in
from router.admission.connection_gate import ConnectionGate, Refusal
from router.amqp import layout, sections
from router.amqp.engine import MESSAGE, STREAM_AT_BYTES, IncomingWire, OutgoingWire, load_message, message_bytes
from router.amqp.layout import MALFORMED, NOTHING
from router.amqp.sections import ROUTER_PREFIX, MessageFault, RouterAnnotations
from router.amqp.terminus import Condition
from router.connection.vouching import vouched
from router.core.addresses import LiveAddress
from router.core.core import NO_ADDRESS, Core
from router.core.in_links import Annotations, InLink, Redirected
from router.core.out_links import OutLink
from router.values import Handle


def condition_of(refusal: Refusal) -> Condition:
    return Condition(name=refusal.condition, description=refusal.description)


def wire_of(link: InLink | OutLink) -> IncomingWire | OutgoingWire:
    """Returns the engine's link; the core knows only the part of its interface that it uses."""
    wire = link.wire
    assert isinstance(wire, IncomingWire | OutgoingWire)
    return wire


def target_of(link: InLink) -> str | None:
    """Returns a sender's target address as its peer wrote it."""
    target = wire_of(link).target
    return target.address if target is not None else None


_LAYOUT = layout.CompiledWalk(MESSAGE)  # of whole messages


def inspector(link: InLink, gate: ConnectionGate, *, strips: bool, may_be_opaque: bool) -> Callable[[Handle, int], int]:
    """Returns the `inspect` function of a link with a target. It returns the message's size, or -1 after a refusal.

    may_be_opaque  messages are not checked: one without AMQP sections is forwarded as it is (routing §10.5)
    """
    limit = link.max_message_bytes
    own_user = (gate.identity.user or "").encode() if gate.checks_user_id else None
    target = target_of(link)
    is_plain, find_properties, look_at = sections.is_plain, sections.find_properties, _LAYOUT.whole

    def inspect(delivery: Handle, size: int) -> int:
        if limit and size > limit and link.on_oversize(delivery, size, 0):
            return -1
        link.annotations = None
        if is_plain(MESSAGE, size):
            return size
        properties_at = find_properties(MESSAGE, size)
        if own_user is None and properties_at != sections.LOOK_CLOSER:
            return size
        return look_closer(delivery, size, properties_at)

    def look_closer(delivery: Handle, size: int, properties_at: int) -> int:
        try:
            envelope = None
            if properties_at == sections.LOOK_CLOSER:
                envelope = sections.find(MESSAGE, size, may_be_opaque=may_be_opaque)
                properties_at = envelope.properties_at
            if own_user is not None:
                claimed = sections.user_id(MESSAGE, size, properties_at)
                if claimed and not may_claim(delivery, claimed):
                    return -1
            if envelope is not None and envelope.annotations_at >= 0:
                return _take_annotations(link, envelope, strips=strips)
        except MessageFault as fault:
            link.refuse(delivery, fault.condition)
            return -1
        return size

    def inspect_strictly(delivery: Handle, size: int) -> int:
        """Checks the whole message. Of a message that streams, checks the rest as it comes."""
        if limit and size > limit and link.on_oversize(delivery, size, 0):
            return -1
        link.annotations = None
        if size < STREAM_AT_BYTES:
            seen = look_at(size)
            return size if seen == NOTHING else judge(delivery, size, seen, _LAYOUT)
        if size < len(MESSAGE) and not link.wire.is_partial(delivery):
            return judge(delivery, size, look_at(size), _LAYOUT)
        streamed = layout.CompiledWalk(MESSAGE)
        link.rest = _Rest(streamed, record)
        return judge(delivery, size, streamed.first(size), streamed)

    def judge(delivery: Handle, size: int, seen: int, walk: layout.Walk) -> int:
        try:
            if seen == MALFORMED:
                raise _fault_in(size)
            envelope = None if walk is _LAYOUT else sections.find(MESSAGE, size)
            found = walk.found
            if (start := found.user_id_at) >= 0:
                claimed = bytes(MESSAGE[start : start + found.user_id_size])
                if claimed and not may_claim(delivery, claimed):
                    return -1
            start = found.annotations_at
            if start >= 0 and MESSAGE.find(ROUTER_PREFIX, start, found.annotations_end) >= 0:
                return _take_annotations(link, envelope or sections.find(MESSAGE, size), strips=strips)
        except MessageFault as fault:
            record()
            link.refuse(delivery, fault.condition)
            return -1
        return size

    def may_claim(delivery: Handle, claimed: bytes) -> bool:
        """Returns True if the message may have this user-id. Refuses the message if not."""
        refusal = gate.refuse_user_id(claimed, link.identity, target) if claimed != own_user else None
        if refusal is not None:
            link.refuse(delivery, condition_of(refusal))
        return refusal is None

    def record() -> None:
        gate.record_malformed(link.identity, target)

    return inspect_strictly if gate.refuses_user_ids else inspect


def _fault_in(size: int) -> MessageFault:
    """Returns the fault of the malformed message in the buffer, as precisely as possible."""
    try:
        sections.take_apart(MESSAGE, sections.find(MESSAGE, size))
    except MessageFault as fault:
        return fault
    return MessageFault(sections.INVALID)


class _Rest:
    """Checks the rest of one message as its stream delivers it (router.core.in_links.Rest)."""

    __slots__ = ("_layout", "_record")

    def __init__(self, layout: layout.Walk, record: Callable[[], None]) -> None:
        self._layout = layout
        self._record = record

    def see(self, size: int) -> Condition | None:
        return self._judge(self._layout.next(size) != MALFORMED)

    def end(self) -> Condition | None:
        return self._judge(self._layout.is_over())

    def _judge(self, is_right: bool) -> Condition | None:
        if is_right:
            return None
        self._record()
        return sections.INVALID


def reply_inspector(
    link: InLink, inspect: Callable[[Handle, int], int], gate: ConnectionGate, target: Address
) -> Callable[[Handle, int], int]:
    """Wraps `inspect` for a link that was attached to reply: refuses a message that comes too late."""

    def look(delivery: Handle, size: int) -> int:
        size = inspect(delivery, size)
        if size < 0:
            return size
        refusal = gate.refuse_reply(target, link.identity)
        if refusal is None:
            return size
        link.refuse(delivery, condition_of(refusal))
        return -1

    return look


See = Callable[[bytes], None]  # receives a message up to its body


def observed(inspect: Callable[[Handle, int], int], see: See) -> Callable[[Handle, int], int]:
    """Wraps `inspect`: passes every admitted message to `see` (messageLoggingComponents)."""

    def look(delivery: Handle, size: int) -> int:
        size = inspect(delivery, size)
        if size >= 0:
            see(_head(MESSAGE, size))
        return size

    return look


def observed_sending(
    compose: Callable[[InLink | None, int], bytes] | None, see: See
) -> Callable[[InLink | None, int], bytes]:
    """Wraps `compose`: passes every sent message to `see`."""

    def look(link: InLink | None, size: int) -> bytes:
        payload = compose(link, size) if compose is not None else message_bytes(size)
        see(_head(payload, len(payload)))
        return payload

    return look


def _head(buffer: bytes | bytearray, size: int) -> bytes:
    try:
        return bytes(buffer[: sections.find(buffer, size).body_at])
    except MessageFault:
        return bytes(buffer[:size])


def router_for(
    link: InLink,
    inspect: Callable[[Handle, int], int],
    gate: ConnectionGate,
    core: Core,
    resolve: Callable[[str], Address | Unclear],
) -> Callable[[Handle, int], tuple[LiveAddress, int] | None]:
    """Returns the `route` function of an anonymous link.

    It inspects the message, asks policy about its address and finds the address.

    resolve  returns the address that the peer means by a text
    """

    def route(delivery: Handle, size: int) -> tuple[LiveAddress, int] | None:
        size = inspect(delivery, size)
        if size < 0:
            return None
        own = link.annotations
        try:
            to = own.to if own is not None and own.to is not None else to_of(size)
        except MessageFault as fault:
            link.refuse(delivery, fault.condition)
            return None
        if to is None:
            link.refuse(delivery, NO_ADDRESS)
            return None
        named = gate.known_target(to)
        if named is None:
            judged = gate.judge_target(resolve(to) if to else None, link.identity)
            if isinstance(judged, Refusal):
                link.refuse(delivery, condition_of(judged))
                return None
            named = judged
        phase = own.phase if own is not None and own.phase and _may_name_phase(link, own, gate) else 0
        address = core.route(link, delivery, named, phase)
        if address is None:
            return None
        if address.far is not None:
            _bind(link, named, phase_in(address.key) if address.key[0] == "M" else phase)
        return address, size

    return route


def _bind(link: InLink, named: Address, phase: int) -> None:
    """Tells the next router the address that the message is bound to, if its own text means something else there.

    Attack: a tenant writes an address that is in its own space here, but in another tenant's space on the next router.
    Or it writes a phase that has no effect here.
    """
    own = link.annotations
    if own is None:
        if phase or named.full is not named.written:
            link.annotations = RouterAnnotations(to=named.full, phase=phase)
    elif phase != own.phase or (phase and own.to is None) or named.full is not named.written:
        link.annotations = RouterAnnotations(
            to=named.full, phase=phase, ingress=own.ingress, trace=own.trace, reply_to=own.reply_to
        )


def _may_name_phase(link: InLink, own: Annotations, gate: ConnectionGate) -> bool:
    """Returns True if a message may name its phase: only messages of edges whose links may.

    A phase leads past the waypoints before it.
    """
    settings = gate.settings
    if own.to is None or not link.attachment.is_edge:
        return False
    if settings is None:
        return True
    return settings.allow_fallback_links if own.phase == FALLBACK_PHASE else settings.allow_waypoint_links


def outside(
    link: InLink, route: Callable[[Handle, int], tuple[LiveAddress, int] | None], gate: ConnectionGate
) -> Callable[[Handle, int], tuple[LiveAddress, int] | None]:
    """Wraps `route`: refuses messages to consumers inside the router."""

    def look(delivery: Handle, size: int) -> tuple[LiveAddress, int] | None:
        routed = route(delivery, size)
        if routed is None or not routed[0].subscribers:
            return routed
        link.refuse(delivery, condition_of(gate.refuse_message_in_process(routed[0].key)))
        return None

    return look


def to_of(size: int) -> str | None:
    """Returns properties.to of the message in the buffer, None without it. Errors: MessageFault"""
    properties_at = sections.find_properties(MESSAGE, size)
    if properties_at == sections.LOOK_CLOSER:
        properties_at = sections.find(MESSAGE, size).properties_at
    return sections.to(MESSAGE, size, properties_at)


def subject_of(size: int) -> str | None:
    """Returns the subject of the message in the buffer."""
    return sections.subject(MESSAGE, size)


def _take_annotations(link: InLink, envelope: sections.Envelope, *, strips: bool) -> int:
    """Removes the router annotations from the message in the buffer, and keeps them if they count.

    Returns the new size.
    """
    annotations = sections.take_apart(MESSAGE, envelope)
    if not annotations.routers:
        return envelope.size
    if not strips:
        link.annotations = sections.router_annotations(annotations.routers)
    return load_message(sections.put_together(MESSAGE, envelope, annotations))


def composer(router_id: str, *, vouches: bool) -> Callable[[InLink | None, int], bytes]:
    """Returns the `compose` of a receiver that wants router annotations (stripAnnotations no or in; routing §11.3).

    The message has been inspected, so that composing it cannot find a fault.

    vouches  the receiver is an edge that receives reply-tos
    """
    own_id = f"0/{router_id}"

    def compose(link: InLink | None, size: int) -> bytes:
        taken = link.annotations if link is not None else None
        named = link.wire.named if link is not None else None
        to = named.full if named is not None else None
        reply_to = vouched(link, size) if vouches else None
        if taken is None:
            own = RouterAnnotations(to=to, ingress=own_id, trace=(own_id,), reply_to=reply_to)
        else:
            own = RouterAnnotations(
                to=taken.to if to is None or isinstance(taken, Redirected) else to,
                phase=taken.phase,
                ingress=taken.ingress if taken.ingress is not None else own_id,
                trace=(*taken.trace, own_id),
                reply_to=reply_to,
            )
        envelope = sections.find(MESSAGE, size, may_be_opaque=True)
        return sections.put_together(MESSAGE, envelope, sections.take_apart(MESSAGE, envelope), own)

    return compose
