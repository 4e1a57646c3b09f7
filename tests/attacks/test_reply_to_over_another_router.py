"""Attack: a client's reply-to is an address where it may not write, and a service of another router writes there.

That router cannot know what the client may; the message comes by a trunk, an uplink or an edge. Therefore the router
where the client is connected judges its reply-to, and routers that judge reply-tos pass the result to each other.
"""

from dataclasses import dataclass
from typing import Any

import pytest
from managed import manage
from memory_net import ACCEPTED, Client, Fleet, Sender, Vhosts

from router.amqp.codec import decode_message, encode, encode_message
from router.connection import peer_open
from router.values import Array, Described, symbol, ulong

EDGE: dict[str, Any] = {"role": "edge"}
ROUTER: dict[str, Any] = {"remoteHosts": "*", "sources": "*", "targets": "*", "allowDynamicSource": True}
ROUTER |= {"allowAnonymousSender": True}
ASKER: dict[str, Any] = {"remoteHosts": "*", "targets": "service, board", "sources": "board"}
ASKER |= {"allowDynamicSource": True, "allowAnonymousSender": True}
SERVICE: dict[str, Any] = {"remoteHosts": "*", "sources": "service", "targets": "unused", "allowReplies": True}
# By the routers between asker and service.
PLACINGS = {
    "trunk": ("A", "B"),
    "uplink": ("E1", "A"),
    "edge": ("A", "E1"),
    "two edges": ("E1", "E2"),
    "edge and trunk": ("E1", "B"),
}
FORGED = ["secret", "amqp:/secret", "$management", "_topo/0/A/$management", "_topo/0/B/$management", "_local/x"]
FORGED += ["_edge/E1/$management", "_topo/0/all/temp.AAAAAAAAAAAAAAA"]


def house(**asker: Any) -> Vhosts:
    groups = {"asker": {**ASKER, **asker}, "service": SERVICE, "master": ROUTER}
    return Vhosts(
        {
            name: {"allowUnknownUser": True, "groups": {"$default": group}}
            for name, group in {**groups, "A": ROUTER, "B": ROUTER}.items()
        }
    )


@dataclass
class Placing:
    fleet: Fleet
    asker: Client
    service: Client
    requests: Any
    reply_to: str
    replies: Any

    def ask(self, reply_to: str, *, annotations: dict[Any, Any] | None = None) -> None:
        sender = self.asker.sender("service")
        self.fleet.pump()
        sections: list[tuple[int, Any]] = [(0x72, annotations)] if annotations is not None else []
        sections += [(0x73, [None, None, "service", None, reply_to]), (0x77, "?")]
        sender.send_bytes(b"".join(encode(Described(ulong(code), value)) for code, value in sections))
        self.fleet.pump()
        assert sender.outcomes == [ACCEPTED]

    def replier(self, address: str) -> Sender:
        sender = self.service.sender(address)
        self.fleet.pump()
        return sender


def placed(placing: str, *, listener: dict[str, Any] | None = None, **options: Any) -> Placing:
    one, other = PLACINGS[placing]
    fleet = Fleet("A", "B", edges=("E1", "E2"), vhosts=house(), **options)
    fleet.connect("A", "B")
    for edge in ("E1", "E2"):
        fleet.connect(edge, "A", **EDGE)
    fleet.settle()
    asker = fleet[one].client(hostname="asker", **(listener or {}))
    service = fleet[other].client(hostname="service")
    requests = service.receiver("service", credit=100, accepts=True)
    replies = asker.receiver(None, source={"dynamic": True}, credit=10, accepts=True)
    fleet.tick(3)
    return Placing(fleet, asker, service, requests, replies.link.remote_source.address, replies)


@pytest.mark.parametrize("placing", PLACINGS)
def test_the_honest_one_is_answered(placing: str) -> None:
    """At its dynamic address, and at a queue where it may write itself."""
    made = placed(placing)
    board = made.fleet["B"].client(hostname="asker").receiver("board", credit=10, accepts=True)
    made.fleet.tick(3)
    made.ask(made.reply_to)
    made.ask("board")
    for address in (made.reply_to, "board"):
        replier = made.replier(address)
        assert not replier.is_detached, (address, replier.refusal)
        replier.send(b"the answer")
        made.fleet.pump()
        assert replier.outcomes == [ACCEPTED]
    assert (made.replies.bodies, board.bodies) == ([b"the answer"], [b"the answer"])
    made.fleet.no_errors()


@pytest.mark.parametrize("placing", PLACINGS)
def test_no_service_writes_where_neither_party_may(placing: str) -> None:
    made = placed(placing)
    made.fleet["A"].client(hostname="master").receiver("secret", credit=10)
    made.fleet.tick(3)
    for address in FORGED:
        made.ask(address)
        replier = made.replier(address)
        assert replier.is_detached, address
        assert replier.refusal.name == "amqp:unauthorized-access"


@pytest.mark.parametrize("placing", PLACINGS)
def test_a_reply_address_of_somebody_else_counts_for_nothing(placing: str) -> None:
    made = placed(placing)
    other = made.fleet["A"].client(hostname="master").receiver(None, source={"dynamic": True})
    made.fleet.pump()
    address = other.link.remote_source.address
    made.ask(address)
    assert made.replier(address).is_detached


@pytest.mark.parametrize("placing", PLACINGS)
def test_no_client_vouches_for_itself(placing: str) -> None:
    """By the annotations of routers, which its listener honours (stripAnnotations: no)."""
    made = placed(placing, listener={"strips_in": False, "strips_out": False})
    made.fleet["A"].client(hostname="master").receiver("secret", credit=10)
    made.fleet.tick(3)
    made.ask("secret", annotations={symbol("x-opt-qd.reply-to"): "secret", symbol("x-opt-qd.ingress"): "0/A"})
    assert made.replier("secret").is_detached


def test_of_a_router_that_does_not_judge_only_the_dynamic_ones_of_its_own_clients_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one of 1.20 is, whose clients may write any annotation."""
    monkeypatch.setattr(peer_open, "_OF_ROUTERS", Array(symbol, peer_open.CAPABILITIES.values))
    made = placed("trunk", listener={"strips_in": False})
    made.ask(made.reply_to)
    replier = made.replier(made.reply_to)
    replier.send(b"the answer")
    made.fleet.pump()
    assert made.replies.bodies == [b"the answer"]
    for address in (*FORGED, "board", "_topo/0/B/temp.BBBBBBBBBBBBBBB"):
        made.ask(address, annotations={symbol("x-opt-qd.reply-to"): address})
        assert made.replier(address).is_detached, address


def test_reply_addresses_of_one_router_are_told_apart() -> None:
    """Attack: who was asked to reply to one dynamic address of another router writes to all that is there."""
    made = placed("trunk")
    made.ask(made.reply_to)
    for other in ("_topo/0/A/$management", "_topo/0/A/temp.BBBBBBBBBBBBBBB", "_topo/0/A/x"):
        assert made.replier(other).is_detached, other


@pytest.mark.parametrize(("asker", "manager"), [("A", "B"), ("E1", "A"), ("E1", "B")])
def test_management_of_another_router_answers_nowhere_else(asker: str, manager: str) -> None:
    """Attack: a client that may ask has the router write to any address, in the router's name."""
    rights = {"management": "administrator", "targets": "board, _topo/*"}
    fleet = Fleet("A", "B", edges=("E1",), vhosts=house(**rights))
    fleet.connect("A", "B")
    fleet.connect("E1", "A", **EDGE)
    manage(fleet[manager], network="observer")
    fleet.settle()
    near = fleet[asker].client(hostname="asker")
    master = fleet[manager].client(hostname="master")
    replies = near.receiver(None, source={"dynamic": True}, credit=10, accepts=True)
    others = [master.receiver(name, credit=10, accepts=True) for name in ("secret", "board")]
    fleet.tick(3)
    sender = near.sender(f"_topo/0/{manager}/$management")
    fleet.pump()
    for reply_to in ("secret", "board", "_topo/0/B/$management", replies.link.remote_source.address):
        properties = {"operation": "GET-OPERATIONS", "type": "org.amqp.management", "identity": "self"}
        sender.send_bytes(encode_message(to="x", reply_to=reply_to, application_properties=properties, body={}))
    fleet.pump()
    assert [len(each.complete) for each in (*others, replies)] == [0, 1, 1]
    denied = [event["address"] for event in fleet[manager].audits if event["reason"] == "forbidden_operation"]
    assert denied == ["secret", "_topo/0/B/$management"]


def test_an_edge_s_client_has_the_rights_of_the_network() -> None:
    """Attack: a client of an edge, which knows no policy, changes the interior in the edge's name."""
    fleet = Fleet("A", edges=("E1",), vhosts=house())
    fleet["E1"].gate.ruleset = Fleet("X")["X"].gate.ruleset  # no policy there
    fleet.connect("E1", "A", **EDGE)
    manage(fleet["A"], network="observer")
    fleet.pump()
    near = fleet["E1"].client(hostname="asker")
    replies = near.receiver(None, source={"dynamic": True}, credit=10, accepts=True)
    fleet.tick()
    statuses = []
    for target in ("_topo/0/A/$management", None):
        sender = near.sender(target)
        fleet.pump()
        for operation in ("CREATE", "QUERY"):
            properties = {"operation": operation, "type": "org.apache.qpid.dispatch.router.config.linkRoute"}
            properties |= {"entityType": properties["type"], "name": f"r{target}"}
            terms: dict[str, Any] = {"reply_to": replies.link.remote_source.address, "body": {}}
            if operation == "CREATE":
                terms["body"] = {"prefix": "taken", "direction": "in", "containerId": "x"}
            text = "_topo/0/A/$management"
            sender.send_bytes(encode_message(to=text, application_properties=properties, **terms))
            fleet.pump()
    statuses = [decode_message(bytes(each.payload)).application_properties["statusCode"] for each in replies.complete]
    assert statuses == [403, 200, 403, 200]
    assert not fleet["A"].surroundings.link_routes.find("taken", "send")
    (event, _) = [event for event in fleet["A"].audits if event["reason"] == "management_not_allowed"]
    assert event["rule"]["item"] == "policy, networkManagement: observer"
