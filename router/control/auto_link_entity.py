"""`autoLink`: the configured auto links. Sources: docs/spec/routing.md §14.2; docs/spec/management.md §6.5."""

from collections.abc import Iterator, Mapping
from typing import Any

from policy.addressing.address import FALLBACK_PHASE, Unclear
from router.connection.auto_links import AutoLink, AutoLinks, Place
from router.core.core import Core
from router.management.owners import Owner
from router.management.query import Rows
from router.management.requests import ManagementError


class AutoLinkEntities:
    def __init__(self, core: Core, auto_links: AutoLinks) -> None:
        self._core = core
        self._auto_links = auto_links
        self._by_identity: dict[str, AutoLink] = {}

    @property
    def owner(self) -> Owner:
        return Owner(type="autoLink", rows=Rows(self.rows), create=self.create, delete=self.delete)

    def create(self, attributes: Mapping[str, Any]) -> dict[str, object]:
        """Creates an auto link. Errors: ManagementError; nothing is attached then."""
        text = str(attributes["address"])
        address = self._core.resolve(text)
        if isinstance(address, Unclear):
            raise ManagementError(400, f"autoLink address '{text}': {address.why}")
        if not address.is_mobile or address.is_management:
            raise ManagementError(400, f"autoLink address '{text}': expected an address that clients use")
        identity = str(self._core.next_identity())
        auto = AutoLink(
            name=str(attributes.get("name") or identity),
            place=place_of(attributes),
            address=address,
            is_in=attributes["direction"] == "in",
            phase=FALLBACK_PHASE if attributes["fallback"] else int(attributes["phase"]),
            external=str(attributes.get("externalAddress") or text),
        )
        self._by_identity[identity] = auto
        self._auto_links.add(auto)
        return {"identity": identity}

    def delete(self, attributes: Mapping[str, Any]) -> None:
        self._auto_links.remove(self._by_identity.pop(str(attributes["identity"])))

    def rows(self) -> Iterator[Mapping[str, Any]]:
        for identity, auto in list(self._by_identity.items()):
            yield {
                "identity": identity,
                "linkRef": str(auto.link) if auto.link is not None else None,
                "operStatus": auto.status,
                "lastError": auto.last_error,
            }


def place_of(attributes: Mapping[str, Any]) -> Place | None:
    if attributes.get("containerId"):
        return Place(kind="container", text=str(attributes["containerId"]))
    if attributes.get("connection"):
        return Place(kind="connection", text=str(attributes["connection"]))
    return None
