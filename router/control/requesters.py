"""The standing of a connection that sends management requests: its rights, and where its replies may go."""

from policy.addressing.address import Address
from policy.decision import Rule
from policy.rights import MANAGEMENT_KEY, NOTHING, UNRESTRICTED, ManagementRights
from router.connection.outgoing import Connector
from router.control.router import Router
from router.core.in_links import InLink
from router.effects import Log, Refused, RequestMembers, audit_event
from router.management.requests import Requester


class Requesters:
    def __init__(self, router: Router, network_rights: ManagementRights) -> None:
        """network_rights  of requests that other routers pass on: where vhost policy is enforced, and to an edge by its
        interior
        """
        self._router = router
        self._network_rights = network_rights

    def requester(self, connection_id: int) -> Requester:
        """A connection's rights of management now.

        Attack: to ask for what takes long, then for a change, and to be gone before its turn. A gone client may not.
        """
        connection = self._router.connections.get(connection_id)
        ruleset = self._router.gate.ruleset
        if connection is None:
            rights = NOTHING if ruleset.is_enabled else UNRESTRICTED
            return Requester(connection_id=connection_id, rights=rights, is_admin_update_allowed=False)
        gate = connection.gate
        gate.catch_up()
        rights, settings = gate.management_rights(), gate.settings
        rule = settings.rule(MANAGEMENT_KEY, rights) if settings is not None and rights.is_set else None
        terms = connection.terms
        is_uplink = isinstance(terms, Connector) and terms.role == "edge" and not terms.allows_management
        if is_uplink or (terms.role == "inter-router" and ruleset.is_enabled):
            # Attack: a router that was taken, or that has another policy or none, asks in the name of anybody.
            rights = self._network_rights
            rule = Rule(item=f"policy, networkManagement: {rights}")
        return Requester(
            connection_id=connection_id,
            rights=rights,
            rule=rule,
            facts={**gate.facts(), "ruleset_digest": ruleset.digest},
            is_admin_update_allowed=gate.may_update_admin_status(),
        )

    def reply_address(self, link: InLink, reply_to: str) -> Address | None:
        """A requester may have replies sent to where it receives itself, or may send anyway.

        Otherwise any client that may use $management could make the router write to any address in its own name.
        """
        connection = self._router.connections.get(link.attachment.connection_id)
        if connection is None or connection.peer is None:
            return None
        address = connection.peer.names.resolve(reply_to)
        if isinstance(address, Address):
            connection.gate.catch_up()
            if connection.gate.may_send_to(address):
                return address
            live = self._router.core.table.find(address)
            if live is not None and any(out.address is live for out in connection.peer.attachment.out_links):
                return address
        text = f"[C{connection.connection_id}] DENY management reply to '{reply_to}'"
        lines, facts = (Log(module="POLICY", level="info", text=text),), connection.gate.facts()
        why = "neither received by the requester nor among its targets"
        detail = f"reply-to is {why}" if isinstance(address, Address) else f"reply-to: {address.why}"
        request: RequestMembers = {"address": reply_to, "detail": detail}
        event = audit_event("management", "deny", "forbidden_operation", facts, request)
        self._router.emit(Refused(stage="management", facts=facts, lines=lines, event=event))
        return None
