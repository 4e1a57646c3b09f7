"""`exchange` and `binding`. Sources: docs/spec/routing.md §18; docs/spec/management.md §6.5, §8.7."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from policy.addressing.address import Unclear
from router.connection.inspection import subject_of
from router.core.core import Core
from router.core.exchanges import MAX_NEXT_HOPS, Binding, Exchange, Hop, Terms
from router.effects import Emit, log
from router.management.owners import Owner
from router.management.query import Rows
from router.management.requests import ManagementError

EXPERIMENTAL: Final = "The Exchange/Binding feature is currently EXPERIMENTAL. Its functionality may change"


class ExchangeEntities:
    def __init__(self, core: Core, emit: Emit) -> None:
        self._core = core
        self._emit = emit
        self._is_announced = False
        self._exchanges: dict[str, Exchange] = {}  # by identity
        self._by_name: dict[str, Exchange] = {}
        self._bindings: dict[str, tuple[Exchange, Binding]] = {}  # by identity

    @property
    def owners(self) -> tuple[Owner, Owner]:
        return (
            Owner(type="exchange", rows=Rows(self.rows), create=self.create, delete=self.delete),
            Owner(type="binding", rows=Rows(self.binding_rows), create=self.bind, delete=self.unbind),
        )

    def create(self, attributes: Mapping[str, Any]) -> dict[str, object]:
        """Creates an exchange. Errors: ManagementError; there is no exchange then."""
        at = self._hop("exchange address", attributes["address"], attributes["phase"])
        alternate = None
        if attributes.get("alternateAddress"):
            alternate = self._hop("alternateAddress", attributes["alternateAddress"], attributes["alternatePhase"])
        taken = self._core.table.addresses.get(at.key)
        if taken is not None and taken.exchange is not None:
            text = f"exchange address '{attributes['address']}': another exchange has it under another spelling"
            raise ManagementError(400, text)
        if not self._is_announced:
            self._is_announced = True
            log(self._emit, "AGENT", "warning", EXPERIMENTAL)
        terms = Terms(at=at, alternate=alternate, method=attributes["matchMethod"])
        exchange = Exchange(self._core, terms, subject_of)
        identity = str(self._core.next_identity())
        self._exchanges[identity] = self._by_name[str(attributes["name"])] = exchange
        exchange.open()
        return {"identity": identity}

    def delete(self, attributes: Mapping[str, Any]) -> None:
        """Deletes an exchange; its bindings are deleted next."""
        del self._by_name[str(attributes["name"])]
        self._exchanges.pop(str(attributes["identity"])).close()

    def bind(self, attributes: Mapping[str, Any]) -> dict[str, object]:
        """Creates a binding. Errors: ManagementError; there is no binding then."""
        exchange = self._by_name[str(attributes["exchangeName"])]
        pattern = str(attributes["bindingKey"])
        if not exchange.is_valid(pattern):
            raise ManagementError(400, "The binding key pattern is invalid")
        hop = self._hop("nextHopAddress", attributes["nextHopAddress"], attributes["nextHopPhase"])
        if not exchange.has_room_for(hop):
            text = f"exchange '{attributes['exchangeName']}' has {MAX_NEXT_HOPS} next hops, which is as many as can be"
            raise ManagementError(400, text)
        binding = Binding(pattern=pattern, hop=hop)
        identity = str(self._core.next_identity())
        self._bindings[identity] = exchange, binding
        exchange.bind(binding)
        return {"identity": identity}

    def unbind(self, attributes: Mapping[str, Any]) -> None:
        exchange, binding = self._bindings.pop(str(attributes["identity"]))
        exchange.unbind(binding)

    def _hop(self, what: str, text: object, phase: object) -> Hop:
        """Returns a hop.

        No exchange leads into the router. Errors: ManagementError for an address that clients do not use.
        """
        address = self._core.resolve(str(text))
        if isinstance(address, Unclear):
            raise ManagementError(400, f"{what} '{text}': {address.why}")
        is_inside = address.is_management or self._core.is_in_process(address)
        if not address.is_mobile or address.is_dynamic or is_inside:
            raise ManagementError(400, f"{what} '{text}': expected an address that clients use")
        return Hop(address, int(str(phase or 0)))

    def rows(self) -> Iterator[Mapping[str, Any]]:
        for identity, exchange in list(self._exchanges.items()):
            terms = exchange.terms
            yield {
                "identity": identity,
                "bindingCount": len(terms.bindings),
                "receivedCount": terms.received,
                "droppedCount": terms.dropped,
                "forwardedCount": terms.forwarded,
                "divertedCount": terms.diverted,
            }

    def binding_rows(self) -> Iterator[Mapping[str, Any]]:
        for identity, (_, binding) in list(self._bindings.items()):
            yield {"identity": identity, "matchedCount": binding.matched}
