"""Users' messages between routers: finds the destination of a message from a neighbour, and writes its annotations.

Source: docs/spec/network.md §10.1, §10.2.
"""

from collections.abc import Callable
from typing import Final

from policy.addressing.address import Address, Unclear, phase_in
from router.admission.connection_gate import ConnectionGate, Refusal
from router.amqp import sections
from router.amqp.codec import CodecError, decode, skip
from router.amqp.engine import MESSAGE
from router.amqp.layout import front
from router.amqp.layout.front import AT_SHIFT, PLACE_SHIFT, SIZE_MASK, USUAL
from router.amqp.sections import Envelope, MessageFault, RouterAnnotations
from router.connection.inspection import inspector, to_of
from router.connection.vouching import vouched
from router.core.addresses import LiveAddress
from router.core.core import NO_ADDRESS
from router.core.in_links import Annotations, InLink, Redirected
from router.core.network import Network
from router.core.remotes import DEFAULT_PRIORITY, PRIORITIES
from router.core.transit import Look
from router.core.trunk_links import DataInLink, Passage
from router.values import Handle

_HEADER_START: Final = b"\x00\x53\x70"
_LIST0, _LIST8, _LIST32 = 0x45, 0xC0, 0xD0
_VIEW: Final = memoryview(MESSAGE)
_front: Final = front.FRONT.front_of(MESSAGE)


def priority_of(size: int) -> int:
    """Returns the priority in the header of the message in the buffer; the default if the header cannot be read."""
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


LOOK: Final = Look(_front, priority_of)


class Taken:
    """Annotations of messages from neighbours. Most messages have the same ones, so they are decoded and encoded once.

    passed      the number of routers that the message has passed
    named, key  the address that `to` means and its key in `phase`; None: not looked up yet
    """

    __slots__ = ("_onward", "ingress", "key", "named", "passed", "phase", "reply_to", "to", "trace")

    def __init__(self, own: Annotations) -> None:
        self.to = own.to
        self.phase = own.phase
        self.ingress = own.ingress
        self.trace = own.trace
        self.reply_to = own.reply_to
        self.passed = len(own.trace)
        self.named: Address | None = None
        self.key = ""
        self._onward: list[bytes | None] = [None, None]

    def key_of(self, named: Address) -> str:
        """Stores and returns the key of the address that `to` means."""
        self.named, self.key = named, named.key_in(self.phase)
        return self.key

    def onward(self, node: str, *, vouches: bool) -> bytes:
        """Returns the annotations section of the message as it leaves this router.

        vouches  see heading_of
        """
        section = self._onward[vouches]
        if section is None:
            own = RouterAnnotations(
                to=self.to,
                phase=self.phase,
                ingress=self.ingress or node,
                trace=(*self.trace, node),
                reply_to=self.reply_to if vouches else None,
            )
            section = self._onward[vouches] = sections.section_of(own)
        return section


class Arrivals:
    """Removes the annotations from the messages of one connection.

    Sections that only routers write are remembered, because the messages of one sender all have the same one. The
    number of places, and the length of each section, are bounded because a neighbour chooses the content.
    """

    __slots__ = ("_known", "places")

    def __init__(self) -> None:
        self._known = front.FRONT.known(MESSAGE)
        # What is known of the section at each place.
        self.places: list[Taken | None] = [None] * front.PLACES

    @property
    def peel(self) -> Callable[[int], int]:
        """Finds the place of the section in `places`; see front.Known."""
        return self._known.peel

    def inspector(self, link: DataInLink, gate: ConnectionGate) -> Callable[[Handle, int], int]:
        """Returns the `inspect` function for messages whose annotations are not known."""
        # The router where the message entered has judged what is not a section (routing §10.5); its address is in the
        # annotations. If it is not there, `to_of` refuses the message.
        look_closer = inspector(link, gate, strips=False, may_be_opaque=True)
        known, places = self._known, self.places

        def inspect(delivery: Handle, size: int) -> int:
            at, end = front.annotations_in(MESSAGE, size)
            if end < 0:
                return look_closer(delivery, size)
            section = bytes(_VIEW[at:end])
            rest = look_closer(delivery, size)
            if size - rest == end - at and link.annotations is not None and (place := known.remember(section)) >= 0:
                link.annotations = places[place] = Taken(link.annotations)
            return rest

        return inspect


def passage_for(
    link: DataInLink,
    gate: ConnectionGate,
    network: Network,
    arrivals: Arrivals,
    resolve: Callable[[str], Address | Unclear],
) -> Passage:
    """Returns the passage of a neighbour's data link.

    A message without an address is refused. A message that cannot be delivered is released.
    """
    inspect, peel, places = arrivals.inspector(link, gate), arrivals.peel, arrivals.places
    addresses, known_target = network.core.table.addresses, gate.known_target

    def is_whole(delivery: Handle, size: int) -> bool:
        """Checks the sections of an unusual message after its annotations are removed. Refuses a malformed message."""
        try:
            sections.find(MESSAGE, size, may_be_opaque=True)
        except MessageFault as fault:
            link.refuse(delivery, fault.condition)
            return False
        return True

    def address_of(delivery: Handle, size: int) -> tuple[Address, int] | None:
        """Returns the address of a message and its phase; None after the message was refused or released."""
        own = link.annotations
        to, phase = (own.to, own.phase) if own is not None else (None, 0)
        if to is None:
            phase = 0
            try:
                to = to_of(size)
            except MessageFault as fault:
                link.refuse(delivery, fault.condition)
                return None
        if not to:
            link.refuse(delivery, NO_ADDRESS)
            return None
        named = known_target(to)
        if named is None:
            judged = gate.judge_target(resolve(to), link.identity)
            if isinstance(judged, Refusal):
                link.release_undeliverable(delivery)
                return None
            named = judged
        return named, phase

    def way_of(delivery: Handle, size: int, found: int) -> tuple[LiveAddress, int] | None:
        """Returns the address of a message, and its size; None after it was refused or released.

        found  the result of `peel`
        """
        own: Annotations | None
        if found >= 0:
            own = link.annotations = places[found >> PLACE_SHIFT]
            size = found & SIZE_MASK
            if not found & USUAL and not is_whole(delivery, size):
                return None
        else:
            size = inspect(delivery, size)
            if size < 0:
                return None
            own = link.annotations
        meant = address_of(delivery, size)
        if meant is None:
            return None
        named, phase = meant
        address = network.core.table.find(named, phase)
        # Attack, or a network whose routes are still changing: a message travels in a circle.
        if address is None or (own is not None and len(own.trace) > network.radius + 1):
            link.release_undeliverable(delivery)
            return None
        return address, size

    def forward(link: DataInLink, _address: None, delivery: Handle, size: int) -> None:
        link.arrived += 1
        if link.arrived > link.most and not link.owed:  # see `arrive`
            link.arrive(0)
        found = peel(size)
        if found >= 0 and found & USUAL:
            # Messages of one sender in sequence: the same as `way_of`, without a call.
            taken = link.annotations = places[found >> PLACE_SHIFT]
            if taken is not None and taken.to and (named := known_target(taken.to)) is not None:
                address = addresses.get(taken.key if named is taken.named else taken.key_of(named))
                if address is not None and taken.passed <= network.radius + 1:
                    address.forward(link, address, delivery, found & SIZE_MASK)
                    return
        way = way_of(delivery, size, found)
        if way is not None:
            address, size = way
            address.forward(link, address, delivery, size)

    return Passage(forward, lambda delivery, size: way_of(delivery, size, peel(size)))


Heading = Callable[[InLink | None, int], bytes]


def heading_of(node: str, *, vouches: bool) -> Heading:
    """Returns the `heading` of a link to a neighbour.

    It makes the annotations for a message of the given size in the buffer. The link is the one that the message came
    on; None: the router made the message.

    node     this router
    vouches  the neighbour receives reply-tos
    """

    def heading(link: InLink | None, size: int) -> bytes:
        if link is None:
            return sections.section_of(_annotations_of(None, node))
        taken, reply_to = link.annotations, vouched(link, size) if vouches else None
        if taken is None and reply_to is None:
            # INVARIANT: the link's target stays the same as long as messages come on it.
            if link.heading is None:
                link.heading = sections.section_of(_annotations_of(link, node))
            return link.heading
        if type(taken) is Taken and link.wire.named is None and link.vouch is None:
            return taken.onward(node, vouches=vouches and link.attachment.vouches)
        return sections.section_of(_annotations_of(link, node, reply_to))

    return heading


def composer(node: str, heading: Heading, *, vouches: bool) -> Callable[[InLink | None, int], bytes]:
    """Returns the `compose` of a link to a neighbour: the message in the buffer with the routers' annotations.

    node     this router
    heading  the heading of the same link
    vouches  see heading_of
    """

    def compose(link: InLink | None, size: int) -> bytes:
        found = _front(size)
        if found < 0:
            envelope = sections.find(MESSAGE, size, may_be_opaque=True)
            return _annotated(MESSAGE, envelope, _annotations_of(link, node, vouched(link, size) if vouches else None))
        at = found >> AT_SHIFT
        return b"".join((_VIEW[:at], heading(link, size), _VIEW[at:size]))

    return compose


def _annotations_of(link: InLink | None, node: str, reply_to: str | None = None) -> RouterAnnotations:
    taken = link.annotations if link is not None else None
    if isinstance(taken, Redirected):
        ingress = taken.ingress if taken.ingress is not None else node
        trace = (*taken.trace, node)
        return RouterAnnotations(to=taken.to, phase=taken.phase, ingress=ingress, trace=trace, reply_to=reply_to)
    named = link.wire.named if link is not None else None
    key = link.address.key if link is not None and link.address is not None else ""
    to = named.full if named is not None else None
    phase = phase_in(key) if key[:1] == "M" else 0
    if taken is None:
        return RouterAnnotations(to=to, phase=phase, ingress=node, trace=(node,), reply_to=reply_to)
    return RouterAnnotations(
        to=to if to is not None else taken.to,
        phase=phase if named is not None else taken.phase,
        ingress=taken.ingress if taken.ingress is not None else node,
        trace=(*taken.trace, node),
        reply_to=reply_to,
    )


def _annotated(buffer: sections.Buffer, envelope: Envelope, own: RouterAnnotations) -> bytes:
    return sections.put_together(buffer, envelope, sections.take_apart(buffer, envelope), own)


def stamper(node: str) -> Callable[[bytes], bytes]:
    """Returns a function that adds annotations to a message of this router before it leaves for another router."""
    own = RouterAnnotations(ingress=node, trace=(node,))
    return lambda payload: _annotated(payload, sections.find(payload, len(payload)), own)
