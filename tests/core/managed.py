"""The management agent of a router in memory, for the link routes that peers make for themselves."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from memory_net import Net

from policy.addressing.address import Address
from policy.configuration.schema import load_schema
from policy.rights import UNRESTRICTED, read_rights
from router.connection.peer import Peer
from router.control.link_route_entity import container_owners
from router.control.management_service import ManagementService
from router.control.requesters import Requesters
from router.core.in_links import InLink
from router.io.host_names import KnownNames
from router.management.agent import Agent, Requester
from router.management.entities import EntityStore

if TYPE_CHECKING:
    from router.control.router import Router


class _Connections:
    def __init__(self, net: Net) -> None:
        self._net = net

    def get(self, connection_id: int) -> Any:
        found = (each.router for each in self._net.peers if not each.is_dead)
        return next((each for each in found if each.connection_id == connection_id), None)


def manage(net: Net, network: str | None = None) -> None:
    """From now on the router answers requests about link routes.

    network  the policy's networkManagement, where the requesters have their rights by policy; None: all have all
    """

    def peer_of(connection_id: int) -> Peer | None:
        found = (each.router.peer for each in net.peers if not each.is_dead)
        return next((peer for peer in found if peer is not None and peer.gate.connection_id == connection_id), None)

    def requester_of(connection_id: int, *, is_direct: bool) -> Requester:
        return Requester(connection_id=connection_id, rights=UNRESTRICTED, is_direct=is_direct)

    def reply_address(link: InLink, reply_to: str) -> Address | None:
        peer = peer_of(link.attachment.connection_id)
        address = peer.names.resolve(reply_to) if peer is not None else None
        return address if isinstance(address, Address) else None

    if network is not None:
        router = SimpleNamespace(connections=_Connections(net), gate=net.gate, core=net.core, emit=net.emit)
        requesters = Requesters(cast("Router", router), read_rights([network]))
        requester_of, reply_address = requesters.requester, requesters.reply_address
    schema = load_schema()
    store = EntityStore(schema, net.emit, net.core.next_identity)
    for owner in container_owners(net.surroundings, peer_of):
        store.own(owner)
    agent = Agent(schema, store, net.emit)
    ManagementService(net.core, agent, requester_of, reply_address, net.emit, net.work.finish, KnownNames())
