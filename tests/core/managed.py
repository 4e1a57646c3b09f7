"""The management agent of a router in memory, for the link routes that peers make for themselves."""

from memory_net import Net

from policy.addressing.address import Address
from policy.configuration.schema import load_schema
from policy.rights import UNRESTRICTED
from router.connection.peer import Peer
from router.control.connection_link_routes import ConnectionLinkRoutes
from router.control.management_service import ManagementService
from router.core.in_links import InLink
from router.io.host_names import KnownNames
from router.management.agent import Agent, Requester
from router.management.entities import EntityStore


def manage(net: Net) -> None:
    """From now on the router answers requests about link routes of connections."""

    def peer_of(connection_id: int) -> Peer | None:
        found = (each.router.peer for each in net.peers if not each.is_dead)
        return next((peer for peer in found if peer is not None and peer.gate.connection_id == connection_id), None)

    def requester_of(connection_id: int) -> Requester:
        return Requester(connection_id=connection_id, rights=UNRESTRICTED)

    def reply_address(link: InLink, text: str) -> Address | None:
        peer = peer_of(link.attachment.connection_id)
        address = peer.names.resolve(text) if peer is not None else None
        return address if isinstance(address, Address) else None

    schema = load_schema()
    store = EntityStore(schema, net.effects.append, net.core.next_identity)
    store.own(ConnectionLinkRoutes(net.surroundings.link_routes, net.core.next_identity, peer_of).owner)
    agent = Agent(schema, store, net.effects.append)
    ManagementService(net.core, agent, requester_of, reply_address, net.effects.append, net.work.finish, KnownNames())
