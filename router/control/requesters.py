"""The rights of a connection that sends management requests, and the addresses that its replies may go to."""

from typing import Final

from policy.addressing.address import Address
from policy.decision import Rule
from policy.rights import MANAGEMENT_KEY, NOTHING, UNRESTRICTED, ManagementRights, common, with_type_of
from router.connection.outgoing import Connector
from router.connection.peer import Peer
from router.connection.vouching import reply_address
from router.control.router import Router
from router.core.in_links import InLink
from router.effects import Log, Refused, RequestMembers, audit_event
from router.management.requests import Requester

# The type of the link routes that an edge makes for its own connection.
OWN_LINK_ROUTES: Final = "router.connection.linkRoute"


class Requesters:
    def __init__(self, router: Router, network_rights: ManagementRights) -> None:
        """network_rights  rights of requests that other routers pass on: where vhost policy is enforced, and on edges
        for requests from the interior
        """
        self._router = router
        self._network_rights = network_rights

    def requester(self, connection_id: int, *, is_direct: bool) -> Requester:
        """Returns a connection's present management rights.

        is_direct  see Requester

        Attack: a client sends a request that takes long and then a change, and disconnects before its turn. With policy
        on, a client that is gone has no rights.
        """
        connection = self._router.connections.get(connection_id)
        ruleset = self._router.gate.ruleset
        if connection is None:
            rights = NOTHING if ruleset.is_enabled else UNRESTRICTED
            return Requester(
                connection_id=connection_id, rights=rights, is_admin_update_allowed=False, is_direct=is_direct
            )
        gate = connection.gate
        gate.catch_up()
        rights, settings = gate.management_rights(), gate.settings
        rule = settings.rule(MANAGEMENT_KEY, rights) if settings is not None and rights.is_set else None
        terms = connection.terms
        is_of_edge = terms.role == "edge" and not isinstance(terms, Connector)
        is_limited = ruleset.is_enabled and (is_of_edge or terms.role == "inter-router")
        if isinstance(terms, Connector) and terms.role == "edge":
            is_limited = not terms.allows_management
        if is_limited:
            # Attack: a router that was taken over, or that has another policy or none, asks in the name of any user.
            group, rights = rights, self._network_rights
            rule = Rule(item=f"policy, networkManagement: {rights}")
            if is_of_edge:
                rights = common(rights, group)  # the edge's vhost also limits it
                if is_direct:
                    rights = with_type_of(rights, group, OWN_LINK_ROUTES)
        return Requester(
            connection_id=connection_id,
            rights=rights,
            rule=rule,
            facts={**gate.facts(), "ruleset_digest": ruleset.digest},
            is_admin_update_allowed=gate.may_update_admin_status(),
            is_direct=is_direct,
        )

    def reply_address(self, link: InLink, reply_to: str) -> Address | None:
        """Returns the address of a reply. A requester may only use addresses that it receives from or may send to.

        Otherwise any client that may use $management could make the router write to any address in the router's name.
        """
        connection = self._router.connections.get(link.attachment.connection_id)
        if connection is None or connection.peer is None:
            return None
        address = connection.peer.names.resolve(reply_to)
        if isinstance(address, Address):
            connection.gate.catch_up()
            if self._may_have(link, connection.peer, address, reply_to):
                return address
        text = f"[C{connection.connection_id}] DENY management reply to '{reply_to}'"
        lines, facts = (Log(module="POLICY", level="info", text=text),), connection.gate.facts()
        why = "neither received by the requester nor among its targets"
        detail = f"reply-to is {why}" if isinstance(address, Address) else f"reply-to: {address.why}"
        request: RequestMembers = {"address": reply_to, "detail": detail}
        event = audit_event("management", "deny", "forbidden_operation", facts, request)
        self._router.emit(Refused(stage="management", facts=facts, lines=lines, event=event))
        return None

    def _may_have(self, link: InLink, peer: Peer, address: Address, reply_to: str) -> bool:
        router, attachment = self._router, peer.attachment
        if router.core.owner_of(address, attachment, is_ingress=True) == "own":
            return True
        if attachment.is_neighbour and router.gate.ruleset.is_enabled:
            # The requester is a client of another router, and may have fewer rights than that router.
            return reply_address(router.core, link, reply_to, peer.names.resolve) is not None
        live = router.core.table.find(address)
        is_receiver = live is not None and any(out.address is live for out in attachment.out_links)
        return is_receiver or peer.gate.may_send_to(address)
