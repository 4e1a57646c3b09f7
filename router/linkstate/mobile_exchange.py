"""MAR and MAU: how routers learn each other's addresses. Source: docs/spec/network.md §9."""

from router.linkstate.effects import AddressesChanged
from router.linkstate.messages import (
    ALL_MOBILE_ADDRESS,
    MalformedUpdate,
    MobileAddressRequest,
    MobileAddressUpdate,
    NewerVersion,
    decode_mobile_message,
    mobile_address,
)
from router.linkstate.mobile import Held, LocalAddresses, Payer
from router.linkstate.neighbours import Link
from router.linkstate.output import Output
from router.linkstate.strangers import Strangers
from router.linkstate.topology import Topology


class MobileExchange:
    def __init__(self, router: str, topology: Topology, output: Output, strangers: Strangers) -> None:
        self._strangers = strangers
        self._router = router
        self._topology = topology
        self._output = output
        self._owed: dict[str, None] = {}  # routers whose answer waits for a path, or for a tick with room for it
        self._answered = 0  # the addresses sent in this tick
        self.local = LocalAddresses(router)

    def receive(self, opcode: str, body: object, link: Link) -> MobileAddressUpdate | None:
        """Handles a message. Returns it if it is a well-formed update of a known router."""
        message = decode_mobile_message(opcode, body)
        if message is None or message.id == self._router:
            return None
        if isinstance(message, NewerVersion):
            self._output.warn_of_version("ROUTER_MA", message)
        elif message.id not in self._topology.database.records:
            if self._output.may("complaints", link.tag, self._output.limits.complaints_per_link_and_tick):
                text = f"Received {opcode} from an unknown router with router id {message.id}"
                self._output.log("ROUTER_MA", "warning", text)
        elif isinstance(message, MalformedUpdate):
            if self._output.may("complaints", link.tag, self._output.limits.complaints_per_link_and_tick):
                self._output.log("ROUTER_MA", "error", f"Received malformed MAU from {message.id}")
        elif isinstance(message, MobileAddressRequest):
            self._answer(message)
        elif self._strangers.may_speak(message.id, link):
            self._take(message, link)
            return message
        return None

    def tick(self) -> bool:
        """Announces the changes. Returns True if there is a new sequence to advertise."""
        self._answered = 0
        for router in [router for router in self._owed if router not in self._topology.database.records]:
            del self._owed[router]
        update = self.local.announce()
        if update is None:
            return False
        links = self._topology.flood_links()
        self._output.log(
            "ROUTER_MA",
            "debug",
            f"New mobile sequence: mobile_seq={update.mobile_seq}, addrs_added={len(update.present)}, "
            f"addrs_deleted={len(update.absent)}, fanout={len(links)}",
        )
        self._output.send(links, ALL_MOBILE_ADDRESS, update.OPCODE, update.body())
        return True

    def ask(self, router: str) -> None:
        """Sends the waiting request and the waiting answer to a router, if it can be reached."""
        if router in self._owed:
            self._give(router)
        held = self._topology.addresses.of(router)
        if held.asking.is_wanted:
            self._request(router, held)

    def _request(self, router: str, held: Held) -> bool:
        path = self._topology.path_to(router)
        if path is None:
            return False
        text = f"Send MAR request to router {router}, have_seq={held.mobile_seq}, fanout=1"
        self._output.log("ROUTER_MA", "debug", text)
        request = MobileAddressRequest(id=self._router, have_seq=held.mobile_seq)
        self._output.send((path,), mobile_address(router), request.OPCODE, request.body())
        held.asking.sent()
        return True

    def _answer(self, request: MobileAddressRequest) -> None:
        text = f"Received MAR from {request.id}, have_seq={request.have_seq}"
        self._output.log("ROUTER_MA", "debug", text)
        limits = self._output.limits
        if request.have_seq >= self.local.mobile_seq:
            return
        if not self._output.may("address answers", request.id, limits.address_answers_per_router_and_tick):
            return
        self._owed[request.id] = None
        self._give(request.id)

    def _give(self, router: str) -> None:
        """Sends all addresses, unless that must wait."""
        path = self._topology.path_to(router)
        if path is None or self._answered >= self._output.limits.answered_addresses_per_tick:
            return
        del self._owed[router]
        self._answered += len(self.local)
        update = self.local.all_announced()
        self._output.send((path,), mobile_address(router), update.OPCODE, update.body())
        self._output.log("ROUTER_MA", "debug", f"Sent MAU to requestor: mobile_seq={update.mobile_seq}")

    def _take(self, update: MobileAddressUpdate, link: Link) -> None:
        kind = "absolute" if update.is_absolute else "differential"
        text = f"Received MAU ({kind}) from {update.id}, mobile_seq={update.mobile_seq}"
        self._output.log("ROUTER_MA", "debug", text)
        held = self._topology.addresses.of(update.id)
        if not update.is_absolute and update.mobile_seq != held.mobile_seq + 1:
            # A copy or a late update needs no request (network §20.2).
            if update.mobile_seq > held.mobile_seq and not held.has_gap:
                held.has_gap = self._request(update.id, held)
            return
        difference = self._topology.addresses.apply(held, update, Payer(link.tag, link.order))
        if difference.mapped or difference.unmapped:
            effect = AddressesChanged(router=update.id, mapped=difference.mapped, unmapped=difference.unmapped)
            self._output.add(effect)
        if held.left_out and self._output.may("complaints", link.tag, self._output.limits.complaints_per_link_and_tick):
            self._output.log("ROUTER_MA", "warning", f"No room for all addresses of router {update.id}")
