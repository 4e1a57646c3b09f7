"""HELLO, RA, LSR and LSU: how routers find each other and learn each other's links.

Source: docs/spec/network.md §7.2-§7.6.
"""

from router.linkstate.database import Record
from router.linkstate.messages import (
    ALL_ROUTERS_ADDRESS,
    HELLO_ADDRESS,
    Hello,
    LinkStateRequest,
    LinkStateUpdate,
    Malformed,
    NewerVersion,
    RouterAdvertisement,
    RouterMessage,
    decode_router_message,
    router_address,
)
from router.linkstate.neighbours import Link
from router.linkstate.output import Output, shortened
from router.linkstate.settings import Settings
from router.linkstate.strangers import Strangers
from router.linkstate.topology import Topology

# Ticks come a little early or late. An interval is over at the tick nearest to its end.
JITTER_S = 0.25


class RouterExchange:
    def __init__(self, settings: Settings, topology: Topology, output: Output, strangers: Strangers) -> None:
        self._settings = settings
        self._id = settings.router_id
        self._topology = topology
        self._neighbours = topology.neighbours
        self._output = output
        self._strangers = strangers
        self._ticks_since_hello = settings.hello_interval_s
        self._last_ra: float | None = None
        self._saw_duplicate = False

    def say_hello(self, now: float) -> None:
        for router in self._neighbours.forget(now):
            self._output.log("ROUTER_HELLO", "trace", f"HELLO peer expired: {router}")
        self._ticks_since_hello += 1
        if self._ticks_since_hello >= self._settings.hello_interval_s:
            self._ticks_since_hello = 0
            hello = Hello(id=self._id, instance=self._settings.instance, seen=self._neighbours.heard())
            self._output.send(tuple(self._neighbours.links), HELLO_ADDRESS, hello.OPCODE, hello.body())
            self._output.log("ROUTER_HELLO", "trace", f"SENT: {hello}")

    def is_advertisement_due(self, now: float, *, is_in_flux: bool) -> bool:
        settings = self._settings
        interval = settings.ra_interval_flux_s if is_in_flux else settings.ra_interval_s
        return self._last_ra is None or now - self._last_ra >= interval - JITTER_S

    def advertise(self, now: float, mobile_seq: int) -> None:
        self._last_ra = now
        advertisement = RouterAdvertisement(
            id=self._id,
            instance=self._settings.instance,
            ls_seq=self._neighbours.ls_seq,
            mobile_seq=mobile_seq,
        )
        links = self._topology.flood_links()
        self._output.send(links, ALL_ROUTERS_ADDRESS, advertisement.OPCODE, advertisement.body())
        self._trace(f"SENT: {advertisement}")

    def ask(self, record: Record) -> None:
        """Sends the waiting answer and the waiting request to a router, if it can be reached."""
        if record.is_owed:
            self._answer(record)
        if record.asking.is_wanted:
            self._request(record)

    def _request(self, record: Record) -> None:
        path = self._topology.path_to(record.id)
        limit = self._output.limits.link_state_requests_per_router_and_tick
        if path is None or not self._output.may("requests", record.id, limit):
            record.asking.is_wanted = True
            return
        record.asking.sent()
        request, to = LinkStateRequest(id=self._id), router_address(record.id)
        self._output.send((path,), to, request.OPCODE, request.body())
        self._trace(f"SENT: {request} to: {to}")

    def receive(self, opcode: str, body: object, link: Link, now: float) -> RouterAdvertisement | None:
        """Handles a message. Returns it if it is the advertisement of another router."""
        try:
            message = decode_router_message(opcode, body)
        except Malformed as fault:
            self._output.complain(
                link.tag,
                f"Exception in control message processing\n{fault}",
                f"Control message error: opcode={opcode} body={shortened(body)}",
            )
            return None
        if isinstance(message, NewerVersion):
            self._output.warn_of_version("ROUTER", message)
        elif isinstance(message, Hello):
            self._output.log("ROUTER_HELLO", "trace", f"RCVD: {message}")
            self._hear(message, link, now)
        elif message is not None:
            self._trace(f"RCVD: {message}")
            if message.id != self._id and self._take(message, link, now) and isinstance(message, RouterAdvertisement):
                return message
        return None

    def _hear(self, hello: Hello, link: Link, now: float) -> None:
        if hello.id == self._id:
            if hello.instance != self._settings.instance and not self._saw_duplicate:
                self._saw_duplicate = True
                text = f"Detected Neighbor Router with a Duplicate ID - {hello.id}"
                self._output.log("ROUTER_HELLO", "critical", text)
            return
        if not self._neighbours.hear(link, hello.id, now):
            self._blame(link, hello.id)
            return
        if self._id not in hello.seen:
            return
        record = self._topology.known(hello.id, link.tag)
        if record is None:
            return
        record.version = hello.version
        link.qualified_at = now
        self._topology.choose_link(record, now)
        if self._neighbours.in_use.get(record.id) == link.tag:
            self._look_at_instance(record, hello.instance)
        self._topology.show(record)

    def _blame(self, link: Link, router: str) -> None:
        """Reports, once for a link, that another router than the admitted one uses it. Its HELLOs are ignored."""
        if link.admitted_id not in (None, router) and not link.is_blamed:
            link.is_blamed = True
            where = f"link_tag={link.tag}, admitted as {shortened(link.admitted_id)}"
            self._output.log("ROUTER_HELLO", "error", f"HELLO of {shortened(router)} on {where}: ignored")

    def _take(self, message: RouterMessage, link: Link, now: float) -> bool:
        """Handles a message. Returns False if it does not count, and must not be forwarded."""
        is_known = message.id in self._topology.database.records
        record = self._topology.known(message.id, link.tag)
        if record is None or (is_known and not self._may_say(message, record, link)):
            return False
        before = record.version, record.instance
        record.version = message.version
        if isinstance(message, RouterAdvertisement):
            if not self._advertised(record, message, link, now):
                return False
            if before == (record.version, record.instance):
                # The most frequent case: no row has changed.
                return True
        elif isinstance(message, LinkStateRequest):
            self._answer(record)
        elif isinstance(message, LinkStateUpdate):
            self._update(record, message, link, now)
        self._topology.show(record)
        return True

    def _may_say(self, message: RouterMessage, record: Record, link: Link) -> bool:
        """Returns True if the router's messages count on this link.

        A requested link state counts: it may be the delayed one that contains the link. A router that no other router
        names expires, and then has no link state that contradicts the link.
        """
        if isinstance(message, LinkStateRequest) or self._strangers.may_speak(message.id, link):
            return True
        return isinstance(message, LinkStateUpdate) and record.asking.is_outstanding

    def _advertised(self, record: Record, advertisement: RouterAdvertisement, link: Link, now: float) -> bool:
        own_link = self._neighbours.in_use.get(record.id)
        if own_link not in (None, link.tag) and self._is_other_instance(record, advertisement.instance):
            # A neighbour itself reports its restart. Attack: another router reports it.
            return False
        self._look_at_instance(record, advertisement.instance)
        record.confirmed_at = now
        record.compare_sequence(advertisement.ls_seq)
        if advertisement.ls_seq > record.ls_seq:
            self._request(record)
        self._topology.compare_addresses(record, advertisement.mobile_seq)
        return True

    def _answer(self, record: Record) -> None:
        limit = self._output.limits.link_state_answers_per_router_and_tick
        path = self._topology.path_to(record.id)
        record.is_owed = path is None
        if path is not None and self._output.may("link state answers", record.id, limit):
            state = self._neighbours.state()
            update = LinkStateUpdate(id=self._id, instance=self._settings.instance, state=state)
            self._output.send((path,), router_address(record.id), update.OPCODE, update.body())
            self._trace(f"SENT: {update}")

    def _update(self, record: Record, update: LinkStateUpdate, link: Link, now: float) -> None:
        if self._is_other_instance(record, update.instance):
            # It is from before the restart, or the first one after it. An advertisement or a HELLO will show which.
            return
        record.asking.answered()
        if update.state.ls_seq <= record.ls_seq:
            return
        record.peers, record.ls_seq, record.lower = update.state.peers, update.state.ls_seq, 0
        record.confirmed_at = now
        # Otherwise, if a restart is reported late, this state would stay with the sequence of the new instance.
        record.instance = record.instance or update.instance or None
        self._topology.is_outdated = True
        for peer in update.state.peers:
            if peer != self._id:
                self._topology.known(peer, link.tag)

    def _look_at_instance(self, record: Record, instance: int) -> None:
        if self._is_other_instance(record, instance):
            self._topology.restart(record)
        elif instance and record.instance is None:
            # Updates do not contain the instance, so the earlier ones are requested again.
            self._topology.addresses.of(record.id).mobile_seq = 0
        if instance:
            record.instance = instance

    def _is_other_instance(self, record: Record, instance: int) -> bool:
        """Returns True if the instance differs. A message without an instance does not count."""
        return bool(instance) and record.instance not in (None, instance)

    def _trace(self, text: str) -> None:
        self._output.log("ROUTER_LS", "trace", text)
