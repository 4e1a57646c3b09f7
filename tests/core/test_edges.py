"""Edge routers and interior routers in memory: links of the uplink, messages between clients of edges, stand-bys, and
what an edge, or a client, may not have.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from memory_net import ACCEPTED, MODIFIED, REJECTED, RELEASED, Fleet, Net, Vhosts, frames
from proton import symbol

from router.amqp.codec import decode_message, encode
from router.connection.edge_messages import encode_service
from router.connection.inspection import wire_of
from router.core.core import NO_ROUTE
from router.core.service_links import ServiceInLink, ServiceOutLink
from router.edge.limits import MAX_MESSAGE_BYTES
from router.edge.messages import Message
from router.values import Described, uint, ulong
from router.values import symbol as sym

EDGE: dict[str, Any] = {"role": "edge"}


def star(*edges: str, interiors: tuple[str, ...] = ("INT",), **options: Any) -> Fleet:
    """Each edge has an uplink to the first interior; interiors are in a line."""
    edges = edges or ("E1", "E2")
    fleet = Fleet(*interiors, edges=edges, **options)
    for one, other in pairwise(interiors):
        fleet.connect(one, other)
    for edge in edges:
        fleet.connect(edge, interiors[0], **EDGE)
    fleet.settle() if len(interiors) > 1 else fleet.tick()
    return fleet


def annotations(payload: bytes | bytearray) -> dict[Any, Any]:
    return dict(decode_message(bytes(payload)).message_annotations)


def spoken(end: Any) -> list[Any]:
    written = bytes(end.recorded)
    return list(frames(written[written.index(b"AMQP\x00") :]))


def peers(fleet: Fleet, router: str, key: str) -> int:
    """How many receivers an address has on a router."""
    live = fleet[router].core.table.addresses.get(key)
    return len(live.out_links) if live is not None else 0


# Links


def test_an_edge_attaches_the_links_of_its_services_in_order() -> None:
    """network 82: on two sessions, with the termini of §14.2."""
    fleet = Fleet("INT", edges=("E1",))
    made, taken = fleet.connect("E1", "INT", **EDGE)
    attaches = [frame for frame in spoken(made) if frame.name == "attach"]
    answers = [frame for frame in spoken(taken) if frame.name == "attach"]

    def end(frame: Any, field: int, capability: int) -> tuple[Any, Any, Any] | None:
        value = frame[field].value if frame[field] is not None else None
        if value is None:
            return None
        value = [*value, *[None] * 12]
        return value[0], bool(value[4]), value[capability]

    shapes = [(frame.channel, frame[2], end(frame, 5, 10), end(frame, 6, 6)) for frame in attaches]
    nowhere, made_up = (None, False, None), (None, True, None)
    down = "qd.router-edge-downlink"
    assert shapes == [
        (0, False, nowhere, nowhere),
        (0, True, ("E1", False, down), (None, False, down)),
        (1, True, ("_$qd.edge_addr_tracking", False, None), nowhere),
        (1, False, None, ("$management", False, None)),
        (1, True, made_up, None),
        (1, False, None, ("_$qd.addr_lookup", False, None)),
        (1, True, made_up, None),
        (1, False, None, ("_$qd.edge_heartbeat", False, None)),
    ]
    assert type(attaches[1][5].value[10]) is sym
    assert all(frame[0].startswith("qdlink.") for frame in attaches)
    dynamic = [answer[5].value[0] for answer in answers if answer[0] in (attaches[4][0], attaches[6][0])]
    assert all(text.startswith("amqp:/_topo/0/INT/temp.") for text in dynamic)
    assert len({*dynamic}) == 2
    credits = {
        (frame.channel, frame[4]): frame[6] for frame in spoken(made) if frame.name == "flow" and frame[4] is not None
    }
    assert sorted(credits.values()) == [32, 100, 250, 250]
    fleet.no_errors()


def test_an_interior_grants_the_credit_that_services_have() -> None:
    fleet = Fleet("INT", edges=("E1",))
    fleet["INT"].core.subscribe("$management", lambda _payload, _link: None)
    _, taken = fleet.connect("E1", "INT", **EDGE)
    granted = [frame[6] for frame in spoken(taken) if frame.name == "flow" and frame[4] is not None]
    assert sorted(granted) == [2, 32, 250, 250]


def test_stand_bys_have_no_links_and_the_oldest_takes_over() -> None:
    """network 80, 81, 83"""
    fleet = Fleet("A", "B", "C", edges=("E1",))
    first, _ = fleet.connect("E1", "A", **EDGE)
    second, _ = fleet.connect("E1", "B", **EDGE)
    fleet.connect("E1", "C", **EDGE)
    assert [len(fleet[name].core.links) for name in "ABC"] == [8, 0, 0]
    uplinks = fleet["E1"].surroundings.uplinks
    assert uplinks is not None
    assert uplinks.active == first.router.connection_id
    first.kill()
    fleet.pump()
    assert uplinks.active == second.router.connection_id
    assert [len(fleet[name].core.links) for name in "ABC"] == [0, 8, 0]
    told = [text for text in fleet["E1"].log_texts() if text.startswith("Edge connection")]
    assert told == [
        "Edge connection (id=1) to interior established",
        "Edge connection (id=1) to interior lost, activating alternate id=2",
    ]
    for end in (*fleet["E1"].ends[1:],):
        end.kill()
    fleet.pump()
    assert fleet["E1"].log_texts()[-1].startswith(("Edge connection (id=3)", "Connection Closed", "[C3]"))
    assert "Edge connection (id=3) to interior lost, no alternate connection available" in fleet["E1"].log_texts()
    fleet.no_errors()


# Addresses


def test_a_receiver_on_an_edge_is_known_to_the_network() -> None:
    """network 84"""
    fleet = star("E1", interiors=("INT", "FAR"))
    receiver = fleet["E1"].client().receiver("orders", credit=10, accepts=True)
    fleet.tick(3)
    assert peers(fleet, "INT", "M0orders") == 1
    assert "M0orders" in fleet["FAR"].core.table.addresses
    sender = fleet["FAR"].client().sender("orders")
    fleet.pump()
    sender.send(b"1")
    fleet.pump()
    assert receiver.bodies == [b"1"]
    assert sender.outcomes == [ACCEPTED]
    receiver.close()
    fleet.tick(3)
    assert peers(fleet, "INT", "M0orders") == 0
    assert "M0orders" not in fleet["INT"].core.table.addresses
    fleet.no_errors()


def test_a_sender_on_an_edge_has_credit_while_somebody_receives() -> None:
    """network 85, 87: its link on the uplink stands and is not used before the interior says so."""
    fleet = star()
    sender = fleet["E1"].client().sender("orders")
    fleet.tick()
    assert sender.credit == 0
    live = fleet["INT"].core.table.addresses["M0orders"]
    assert len(live.in_links) == 1
    receiver = fleet["E2"].client().receiver("orders", credit=10, accepts=True)
    fleet.pump()
    assert sender.credit == 250
    sender.send(b"1")
    fleet.pump()
    assert (receiver.bodies, sender.outcomes) == ([b"1"], [ACCEPTED])
    receiver.close()
    fleet.pump()
    sender.send(b"2")
    fleet.pump()
    assert sender.outcomes == [ACCEPTED, RELEASED]
    fleet.no_errors()


def test_an_outcome_comes_from_the_receiver_on_the_other_edge() -> None:
    """Nothing is accepted that no receiver accepted."""
    fleet = star()
    receiver = fleet["E2"].client().receiver("orders", credit=10)
    sender = fleet["E1"].client().sender("orders")
    fleet.pump()
    for body in (b"1", b"2", b"3"):
        sender.send(body)
    fleet.pump()
    assert sender.outcomes == [None] * 3
    first, second, _ = receiver.complete
    first.give(RELEASED)
    second.accept()
    fleet.pump()
    assert sender.outcomes == [RELEASED, ACCEPTED, None]


@pytest.mark.parametrize("distribution", ["balanced", "closest", "multicast"])
def test_no_message_comes_back_to_the_edge_that_it_came_from(distribution: str) -> None:
    """network 89"""
    fleet = star("E1", "E2", distributions={"a": distribution})
    own = fleet["E1"].client().receiver("a", credit=100, accepts=True)
    other = fleet["E2"].client().receiver("a", credit=100, accepts=True)
    local = fleet["INT"].client().receiver("a", credit=100, accepts=True)
    fleet.pump()
    sender = fleet["E1"].client().sender("a")
    fleet.pump()
    for number in range(30):
        sender.send(str(number).encode())
        fleet.pump()
    got = [len(each.bodies) for each in (own, other, local)]
    assert sender.outcomes == [ACCEPTED] * 30
    if distribution == "multicast":
        assert got == [30, 30, 30]
    else:
        assert sum(got) == 30
        assert all(got)
    uplink = Net.peer(fleet["INT"].ends[0]).attachment
    live = fleet["INT"].core.table.addresses["M0a"]
    assert [link.delivery_count for link in live.out_links if link.attachment is uplink] == [0]
    fleet.no_errors()


def test_a_multicast_of_an_anonymous_sender_goes_up_once() -> None:
    """network 89: whether or not its address has a link of its own on the uplink."""
    fleet = star(distributions={"a": "multicast"})
    clients = {name: fleet[name].client() for name in ("E1", "E2", "INT")}
    receivers = {name: client.receiver("a", credit=100, accepts=True) for name, client in clients.items()}
    fleet.pump()
    anonymous = clients["E1"].sender(None)
    fleet.pump()
    anonymous.send(b"1", address="a")
    fleet.pump()
    clients["E1"].sender("a")
    fleet.pump()
    anonymous.send(b"2", address="a")
    fleet.pump()
    assert {name: each.bodies for name, each in receivers.items()} == {name: [b"1", b"2"] for name in receivers}
    assert anonymous.outcomes == [ACCEPTED] * 2


def test_an_anonymous_sender_reaches_what_its_edge_does_not_know() -> None:
    fleet = star()
    receiver = fleet["E2"].client().receiver("far", credit=10, accepts=True)
    anonymous = fleet["E1"].client().sender(None)
    fleet.pump()
    anonymous.send(b"1", address="far")
    anonymous.send(b"2", address="nowhere")
    fleet.pump()
    assert receiver.bodies == [b"1"]
    assert anonymous.outcomes == [ACCEPTED, RELEASED]


def test_messages_of_an_edge_say_nothing_of_their_way_until_they_are_in_the_network() -> None:
    """network 88"""
    fleet = star("E1", "E2", interiors=("INT", "FAR"))
    shows: dict[str, Any] = {"strips_in": False, "strips_out": False}
    near = fleet["INT"].client(**shows).receiver("near", credit=10, accepts=True)
    other = fleet["E2"].client(**shows).receiver("edge", credit=10, accepts=True)
    fleet.tick(2)
    client = fleet["E1"].client(**shows)
    senders = [client.sender(name) for name in ("near", "edge")]
    fleet.tick(2)
    for sender in senders:
        sender.send_bytes(_message())
    fleet.pump()
    assert annotations(near.complete[0].payload) == {
        "x-opt-qd.to": "near",
        "x-opt-qd.ingress": "0/INT",
        "x-opt-qd.trace": ["0/INT"],
    }
    assert annotations(other.complete[0].payload) == {"x-opt-qd.to": "edge"}


def _message() -> bytes:
    """One that claims to have entered the network elsewhere, and to have been everywhere."""
    claims = {sym("x-opt-qd.ingress"): "0/FAR", sym("x-opt-qd.trace"): ["0/FAR", "0/INT"]}
    return encode(Described(ulong(0x72), claims)) + encode(Described(ulong(0x77), "x"))


def test_a_forged_ingress_or_trace_of_an_edge_counts_for_nothing() -> None:
    """An edge, or its client, that names other routers reaches every receiver all the same, once."""
    fleet = star("E1", interiors=("INT", "FAR"), distributions={"a": "multicast"})
    shows: dict[str, Any] = {"strips_in": False, "strips_out": False}
    receivers = [fleet[name].client(**shows).receiver("a", credit=10, accepts=True) for name in ("INT", "FAR")]
    fleet.tick(3)
    for liar in (fleet["E1"].client(**shows), fleet["INT"].client(**shows, **EDGE)):
        sender = liar.sender("a", name="qdlink.of-an-edge")
        fleet.pump()
        sender.send_bytes(_message())
        fleet.pump()
    assert [len(each.complete) for each in receivers] == [2, 2]
    traces = [annotations(each.payload)["x-opt-qd.trace"] for each in receivers[1].complete]
    assert traces == [["0/INT", "0/FAR"]] * 2


def test_a_sender_on_an_edge_hears_of_receivers_on_other_routers() -> None:
    """network 85, 87: by a MAU."""
    fleet = star("E1", interiors=("INT", "FAR"))
    sender = fleet["E1"].client().sender("orders")
    fleet.tick(2)
    assert sender.credit == 0
    receiver = fleet["FAR"].client().receiver("orders", credit=10, accepts=True)
    fleet.tick(3)
    assert sender.credit == 250
    receiver.close()
    fleet.tick(3)
    (live,) = [live for key, live in fleet["E1"].core.table.addresses.items() if key == "M0orders"]
    assert not live.has_path


def test_what_waits_on_the_uplink_is_released_when_nobody_receives_any_more() -> None:
    """Messages beyond the credit of a link that is used no longer are not kept for ever."""
    fleet = star(capacity=5)
    fleet["E2"].client().receiver("other")  # a turn of the interior for its edge's frames ends here, and not below
    receiver = fleet["E2"].client().receiver("orders")
    senders = [fleet["E1"].client().sender("orders") for _ in range(3)]
    fleet.pump()
    for sender in senders:
        for _ in range(5):
            sender.send(b"x")
    fleet.pump()
    assert {outcome for sender in senders for outcome in sender.outcomes} == {None}
    receiver.close()
    fleet.pump()
    assert {outcome for sender in senders for outcome in sender.outcomes} == {RELEASED}


# Addresses of routers


def test_a_dynamic_address_of_an_edge_is_reached_from_everywhere() -> None:
    """network 90"""
    fleet = star("E1", "E2", interiors=("INT", "FAR"))
    client = fleet["E1"].client()
    receiver = client.receiver(None, credit=100, accepts=True, source={"dynamic": True})
    fleet.tick(3)
    text = receiver.link.remote_source.address
    assert text.startswith("amqp:/_edge/E1/temp.")
    expected = []
    for name in ("E1", "E2", "INT", "FAR"):
        named, anonymous = fleet[name].client().sender(text), fleet[name].client().sender(None)
        fleet.pump()
        assert named.credit == 250
        named.send(f"{name} named".encode())
        anonymous.send(f"{name} anonymous".encode(), address=text)
        fleet.pump()
        expected += [f"{name} named".encode(), f"{name} anonymous".encode()]
        assert [*named.outcomes, *anonymous.outcomes] == [ACCEPTED, ACCEPTED], name
    assert sorted(receiver.bodies) == sorted(expected)
    fleet.no_errors()


def test_a_request_over_two_edges_is_answered() -> None:
    """Neither end knows where the other is."""
    fleet = star("E1", "E2", interiors=("INT", "FAR"))
    asker, server = fleet["E1"].client(), fleet["E2"].client()
    replies = asker.receiver(None, credit=10, accepts=True, source={"dynamic": True})
    requests = server.receiver("service", credit=10, accepts=True)
    answers = server.sender(None)
    fleet.tick(3)
    sender = asker.sender("service")
    fleet.tick(1)
    sender.send(b"question", reply_to=replies.link.remote_source.address)
    fleet.pump()
    answers.send(b"answer", address=requests.complete[0].message.reply_to)
    fleet.pump()
    assert replies.bodies == [b"answer"]


@pytest.mark.parametrize("text", ["_topo/0/FAR/x", "_edge/E2/x", "_local/_edge", "_edge/E1/_edge"])
def test_a_client_of_an_edge_never_receives_what_others_send_into_the_network(text: str) -> None:
    """Attack: a receiver at the address of the uplink, by any of its names."""
    fleet = star()
    client = fleet["E1"].client()
    thief, forger = client.receiver(text, credit=100), client.sender(text)
    fleet.pump()
    assert thief.is_detached
    assert forger.is_detached is text.endswith("/_edge")
    sender = fleet["E1"].client().sender("_topo/0/FAR/x")
    fleet.pump()
    sender.send(b"secret")
    fleet.pump()
    assert thief.received == []
    if not text.endswith("/_edge"):
        assert thief.refusal.name == NO_ROUTE.name


# Loss


def test_what_an_edge_sent_by_a_lost_uplink_has_its_outcome_and_the_stand_by_goes_on() -> None:
    """No message is accepted that no receiver accepted."""
    fleet = Fleet("A", "B", edges=("E1", "E2"))
    fleet.connect("A", "B")
    uplink, _ = fleet.connect("E1", "A", **EDGE)
    fleet.connect("E1", "B", **EDGE)
    fleet.connect("E2", "B", **EDGE)
    fleet.settle()
    receiver = fleet["E2"].client().receiver("orders", credit=10)
    fleet.tick(3)
    sender = fleet["E1"].client().sender("orders")
    fleet.tick(2)
    sender.send(b"1")
    fleet.pump()
    assert len(receiver.complete) == 1
    uplink.kill()
    fleet.pump()
    assert sender.outcomes == [MODIFIED]
    fleet.tick(3)
    receiver.accept_all()
    sender.send(b"2")
    fleet.pump()
    receiver.accept_all()
    fleet.pump()
    assert receiver.bodies == [b"1", b"2"]
    assert sender.outcomes == [MODIFIED, ACCEPTED]
    fleet.no_errors()


def test_an_uplink_whose_session_is_ended_gives_way_to_a_stand_by() -> None:
    """Without it the edge would go on with the half of its links."""
    fleet = Fleet("A", "B", edges=("E1",))
    uplink, taken = fleet.connect("E1", "A", **EDGE)
    fleet.connect("E1", "B", **EDGE)
    receiver = fleet["E1"].client().receiver("orders", credit=10, accepts=True)
    fleet.pump()
    engine = Net.peer(taken).engine
    next(iter(engine.sessions.values())).close()
    fleet["A"].work.touched.add(engine)
    fleet["A"].work.finish()
    fleet.pump()
    assert uplink.is_dead
    assert peers(fleet, "B", "M0orders") == 1
    sender = fleet["B"].client().sender("orders")
    fleet.pump()
    sender.send(b"1")
    fleet.pump()
    assert receiver.bodies == [b"1"]
    fleet.no_errors()


def test_an_edge_without_uplink_works_for_its_own_clients() -> None:
    fleet = Fleet("INT", edges=("E1",))
    client = fleet["E1"].client()
    receiver, sender = client.receiver("a", credit=10, accepts=True), client.sender("a")
    away, anonymous = client.sender("_topo/0/INT/x"), client.sender(None)
    fleet.pump()
    sender.send(b"1")
    anonymous.send(b"2", address="elsewhere")
    fleet.pump()
    assert receiver.bodies == [b"1"]
    assert anonymous.outcomes == [RELEASED]
    assert away.credit == 0
    fleet.connect("E1", "INT", **EDGE)
    assert away.credit == 250


def test_nothing_is_left_of_an_edge_that_is_gone() -> None:
    fleet = star("E1", "E2")
    clients = [fleet[name].client() for name in ("E1", "E2")]
    for client in clients:
        client.receiver("a", credit=10, accepts=True)
        client.sender("a")
        client.sender(None)
    fleet.pump()
    for end in fleet["INT"].ends:
        end.kill()
    fleet.pump()
    interior = fleet["INT"].core
    assert not interior.links
    assert {key for key, live in interior.table.addresses.items() if not live.subscribers} <= {"RINT"}
    services = fleet["INT"].surroundings.edges
    assert services is not None
    assert not services.machine.tracking.is_tracked("M0a")
    assert [services.edge(number) for number in range(10)] == [None] * 10
    for name in ("E1", "E2"):
        fleet[name].nothing_left()


# Heartbeats


def test_a_silent_edge_is_dropped_after_eight_seconds() -> None:
    """network 97: its socket, without an AMQP error."""
    fleet = star("E1")
    fleet.tick(20)
    assert len(fleet["INT"].core.links) == 8
    _, taken = fleet["E1"].ends[0], fleet["INT"].ends[0]
    uplinks = fleet["E1"].surroundings.uplinks
    assert uplinks is not None
    uplinks.on_second = lambda now: None  # type: ignore[method-assign]
    fleet.tick(7)
    assert not taken.router_closed
    fleet.tick(5)
    assert taken.router_closed
    assert any("Lost heartbeat from container E1, closing connection" in text for text in fleet["INT"].log_texts())
    assert not [frame for frame in spoken(taken) if frame.name == "close" and frame[0] is not None]


# What nobody may have


@pytest.mark.parametrize("role", ["normal", "route-container"])
@pytest.mark.parametrize("router", ["INT", "E1"])
@pytest.mark.parametrize("address", ["_$qd.edge_addr_tracking", "_$qd.addr_lookup", "_$qd.edge_heartbeat"])
@pytest.mark.parametrize("prefix", ["", "amqp:/", "/", "amqp://host/"])
def test_a_client_gets_none_of_the_services_of_edges(prefix: str, address: str, router: str, role: str) -> None:
    """network 94, 98: by no spelling. The link is answered with a null terminus, and closed without an error."""
    fleet = star("E1")
    client = fleet[router].client(role=role)
    ends = [client.receiver(prefix + address, credit=10), client.sender(prefix + address)]
    fleet.pump()
    for end in ends:
        assert end.is_detached
        assert end.was_closed
        assert end.condition is None
    assert ends[0].link.remote_source.address is None
    assert ends[1].link.remote_target.address is None
    fleet.tick(15)
    assert not client.is_closed_by_router


def test_services_refuse_links_of_the_wrong_direction() -> None:
    """network 94, 98"""
    fleet = star("E1")
    edge = fleet["INT"].client(**EDGE)
    refused = [
        edge.sender("_$qd.edge_addr_tracking"),
        edge.receiver("_$qd.addr_lookup"),
        edge.receiver("_$qd.edge_heartbeat"),
    ]
    fleet.pump()
    assert all(end.is_detached and end.condition is None for end in refused)
    texts = fleet["INT"].log_texts()
    assert f"Attempt to attach to address lookup server rejected (container={edge.name})" in texts
    assert f"Attempt to attach to heartbeat server rejected (container={edge.name})" in texts


def downlink(client: Any, address: str) -> Any:
    capability = symbol("qd.router-edge-downlink")
    return client.receiver(
        address, credit=10, source={"capabilities": capability}, target={"capabilities": capability, "address": None}
    )


def test_an_edge_gets_messages_for_its_own_id_alone() -> None:
    """Attack: an edge that asks for another's."""
    fleet = star("E1")
    edge = fleet["INT"].client("mallory", **EDGE)
    stolen, own, second = downlink(edge, "E1"), downlink(edge, "mallory"), downlink(edge, "mallory")
    fleet.pump()
    assert stolen.refusal.name == second.refusal.name == "qd:forbidden"
    assert own.is_attached
    assert peers(fleet, "INT", "HE1") == 1
    assert peers(fleet, "INT", "Hmallory") == 1
    client = fleet["INT"].client()
    receiver = client.receiver("_edge/E1/x", credit=10)
    fleet.pump()
    assert receiver.refusal.name == NO_ROUTE.name


def test_a_client_gets_no_downlink() -> None:
    fleet = star("E1")
    end = downlink(fleet["INT"].client("E1"), "E1")
    fleet.pump()
    assert end.refusal.name == "qd:forbidden"


def policy(**group: Any) -> Vhosts:
    """INT is the vhost of edges, `open` that of clients."""
    everything = {"sources": "*", "targets": "*", "allowAnonymousSender": True, "allowDynamicSource": True}
    edges = {"allowUnknownUser": True, "groups": {"$default": {"remoteHosts": "*", **everything, **group}}}
    clients = {"allowUnknownUser": True, "groups": {"$default": {"remoteHosts": "*", **everything}}}
    return Vhosts({"INT": edges, "open": clients})


def test_an_edge_gets_what_its_vhost_permits() -> None:
    """network 15: the interior's vhost judges the addresses of the edge's clients, nobody judges the uplink."""
    fleet = star("E1", vhosts=policy(sources="orders,E1,_$qd.*", targets="orders,_$qd.*,$management"))
    inside, outside = (fleet[name].client(policy_vhost="open") for name in ("E1", "INT"))
    permitted, denied = inside.receiver("orders", credit=10), inside.receiver("secret", credit=10)
    fleet.pump()
    assert permitted.is_attached
    assert denied.is_attached  # on its edge, where it may
    assert peers(fleet, "INT", "M0orders") == 1
    assert peers(fleet, "INT", "M0secret") == 0
    senders = [outside.sender("orders"), outside.sender("secret")]
    fleet.pump()
    assert [sender.credit for sender in senders] == [250, 0]
    assert len(permitted.complete) == len(denied.complete) == 0
    fleet.tick(10)
    attaches = [frame for frame in spoken(fleet["E1"].ends[0]) if frame.name == "attach"]
    assert len(attaches) == 10, "the edge does not try again and again"


def test_an_edge_that_no_vhost_admits_is_closed() -> None:
    """network 15"""
    rules = Vhosts({"other": {"groups": {"$default": {"remoteHosts": "*"}}}})
    fleet = Fleet("INT", edges=("E1",), vhosts=rules)
    _, taken = fleet.connect("E1", "INT", **EDGE)
    (close,) = [frame for frame in spoken(taken) if frame.name == "close"]
    assert close[0].value[0] == "amqp:resource-limit-exceeded"
    assert close[0].value[1] == "connection disallowed by local policy"
    assert not fleet["INT"].core.links


def test_another_users_edge_does_not_share_an_id() -> None:
    """Attack: an edge with a login of its own that calls itself as another, and gets every other message for it."""
    fleet = star("E1")
    interior = fleet["INT"]
    thief = interior.client("E1", **EDGE)
    fleet.pump()
    peer = Net.peer(thief)
    peer.gate.identity = replace(peer.gate.identity, user="mallory", mechanism="PLAIN")
    stolen = downlink(thief, "E1")
    fleet.pump()
    assert stolen.refusal.name == "qd:forbidden"
    assert peers(fleet, "INT", "HE1") == 1
    assert any("Edge downlink of 'E1' forbidden to the edge router 'E1'" in text for text in interior.log_texts())


# An edge that attacks its interior


def test_a_look_up_is_answered_to_its_asker_alone() -> None:
    """network 92, 93. Attack: a reply-to of somebody else's, so that the router writes there."""
    fleet = star("E1")
    victim = fleet["INT"].client().receiver(None, credit=10, source={"dynamic": True})
    edge = fleet["INT"].client(**EDGE)
    own = edge.receiver(None, credit=10, source={"dynamic": True})
    asking = edge.sender("_$qd.addr_lookup")
    fleet.pump()
    for reply_to in (victim.link.remote_source.address, "orders", own.link.remote_source.address):
        request = Message(
            body=["orders", True],
            application_properties={"version": uint(1), "opcode": uint(1)},
            reply_to=reply_to,
            correlation_id="c",
        )
        asking.send_bytes(encode_service(request, "0/x"))
    fleet.pump()
    assert victim.received == []
    (reply,) = own.complete
    decoded = decode_message(bytes(reply.payload))
    assert (decoded.body, decoded.correlation_id) == ([False, False], "c")
    assert decoded.application_properties == {"version": 1, "opcode": 1, "status": 3}


@pytest.mark.parametrize("size", [MAX_MESSAGE_BYTES - 1000, MAX_MESSAGE_BYTES + 1, 100_000, 200_000])
@pytest.mark.parametrize("service", ["_$qd.addr_lookup", "_$qd.edge_heartbeat"])
def test_a_service_takes_no_message_over_the_limit_however_it_comes(service: str, size: int) -> None:
    """Attack: a message without end, in one piece, which is decoded, and its texts held."""
    fleet = star("E1")
    edge = fleet["INT"].client(**EDGE)
    own = edge.receiver(None, credit=10, source={"dynamic": True})
    asking = edge.sender(service)
    fleet.pump()
    request = Message(
        body=["orders", True],
        application_properties={"version": uint(1), "opcode": uint(1), "filling": "x" * size},
        reply_to=own.link.remote_source.address,
        correlation_id="c",
    )
    sending = asking.send_bytes(encode_service(request, "0/x"))
    fleet.pump()
    assert sending.outcome == (ACCEPTED if size < MAX_MESSAGE_BYTES else REJECTED)
    if size > MAX_MESSAGE_BYTES:
        assert sending.updates[-1].refusal.name == "amqp:link:message-size-exceeded"
    assert bool(own.complete) is (service == "_$qd.addr_lookup" and size < MAX_MESSAGE_BYTES)
    fleet.no_errors()


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x00",
        b"\x00Sw\xa1\xff",
        encode_service(Message(body=["orders", True]), "0/x"),
        encode_service(Message(body=[0] * 300, application_properties={"version": 1, "opcode": 1}), "0/x"),
        encode_service(Message(body=["a", True], application_properties={"version": 1, "opcode": 1}), "0/x")
        + bytes(20_000),
        encode_service(Message(body=b"x" * 400_000), "0/x"),
    ],
)
def test_a_malformed_look_up_costs_the_edge_its_message(payload: bytes) -> None:
    """network 93; also one that is too long to be read."""
    fleet = star("E1")
    edge = fleet["INT"].client(**EDGE)
    asking = edge.sender("_$qd.addr_lookup")
    fleet.pump()
    for _ in range(100):
        if asking.credit:
            asking.send_bytes(payload)
        fleet.pump()
    assert set(asking.outcomes) == {REJECTED}
    assert not edge.is_closed_by_router
    assert asking.is_attached
    errors = [entry for entry in fleet["INT"].logs if entry.level == "error"]
    assert len(errors) <= 8


def test_what_an_edge_does_not_want_to_hear_is_not_kept_for_it() -> None:
    """Attack: thousands of senders, and no credit on the link that says which of them may be used."""
    fleet = star("E1")
    edge = fleet["INT"].client(**EDGE)
    edge.receiver("_$qd.edge_addr_tracking")
    for number in range(200):
        edge.sender(f"a{number}")
    fleet.pump()
    local = fleet["INT"].client()
    for _ in range(5):
        receivers = [local.receiver(f"a{number}", credit=1) for number in range(200)]
        fleet.pump()
        for receiver in receivers:
            receiver.close()
        fleet.pump()
    peer = Net.peer(edge)
    (tracking,) = [link for link in peer.attachment.out_links if isinstance(link, ServiceOutLink)]
    assert len(tracking.queue) == 0
    second = edge.receiver("_$qd.edge_addr_tracking", credit=10)
    fleet.pump()
    assert second.is_detached
    edge.kill()
    fleet.pump()
    services = fleet["INT"].surroundings.edges
    assert services is not None
    assert not services.machine.tracking.is_tracked("M0a1")


def test_clients_that_come_and_go_leave_nothing_on_the_uplink() -> None:
    fleet = star("E1")
    client = fleet["E1"].client()
    before = [len(fleet[name].ends[0].router.peer.engine.links) for name in ("E1", "INT")]  # type: ignore[union-attr]
    for round_ in range(20):
        ends = [client.receiver(f"a{number}", credit=1) for number in range(round_, round_ + 30)]
        ends += [client.sender(f"a{number}") for number in range(round_, round_ + 30)]  # type: ignore[misc]
        if round_ % 2:
            fleet.pump()
        else:
            fleet["E1"].carry()
        for end in ends:
            end.close()
        if round_ % 3:
            fleet.pump()
    fleet.pump()
    after = [len(fleet[name].ends[0].router.peer.engine.links) for name in ("E1", "INT")]  # type: ignore[union-attr]
    assert after == before
    assert not [key for key in fleet["INT"].core.table.addresses if key.startswith("M0a")]
    fleet.no_errors()


def test_a_large_message_passes_over_two_edges() -> None:
    fleet = star()
    receiver = fleet["E2"].client().receiver("big", credit=10, accepts=True)
    sender = fleet["E1"].client().sender("big")
    fleet.pump()
    body = bytes(range(256)) * 8192
    sender.send(body)
    sender.send(b"small")
    fleet.pump()
    assert receiver.bodies == [body, b"small"]
    assert sender.outcomes == [ACCEPTED, ACCEPTED]


def test_an_edge_that_may_send_to_nobody_sends_to_nobody() -> None:
    """network 15: the vhost of an edge judges each message of its anonymous link."""
    fleet = star("E1", vhosts=policy(sources="*", targets="orders,_$qd.*,$management"))
    receivers = {
        name: fleet["INT"].client(policy_vhost="open").receiver(name, credit=10, accepts=True)
        for name in ("orders", "secret")
    }
    anonymous = fleet["E1"].client(policy_vhost="open").sender(None)
    fleet.pump()
    for name in receivers:
        anonymous.send(name.encode(), address=name)
    fleet.pump()
    assert {name: each.bodies for name, each in receivers.items()} == {"orders": [b"orders"], "secret": []}
    assert anonymous.outcomes == [ACCEPTED, REJECTED]


@pytest.mark.parametrize(("management", "is_reached"), [("observer", False), ("administrator", True)])
@pytest.mark.parametrize("target", ["_topo/0/INT/$management", "_edge/E2/$management"])
@pytest.mark.parametrize("is_anonymous", [True, False])
def test_a_client_of_an_edge_manages_other_routers_with_all_rights_or_not_at_all(
    is_anonymous: bool, target: str, management: str, is_reached: bool
) -> None:
    """Attack: the right to read here; the others would take its requests for those of the edge."""
    rights = {"sources": "*", "targets": "*", "allowAnonymousSender": True, "allowDynamicSource": True}
    groups = {"$default": {"remoteHosts": "*", **rights, "management": management}}
    edges = {"$default": {"remoteHosts": "*", **rights}}
    vhosts = Vhosts(
        {"$default": {"allowUnknownUser": True, "groups": groups}, "INT": {"allowUnknownUser": True, "groups": edges}}
    )
    fleet = Fleet("INT", edges=("E1", "E2"), vhosts=vhosts)
    got: list[bytes] = []
    for name in ("INT", "E2"):
        fleet[name].core.subscribe("_local/$management", lambda payload, _link: got.append(payload))
    for name in ("E1", "E2"):
        fleet.connect(name, "INT", **EDGE, reaches_in_process=True)
    sender = fleet["E1"].client(policy_vhost="$default").sender(None if is_anonymous else target)
    fleet.pump()
    if is_anonymous or is_reached:
        sender.send(b"request", address=target)
        fleet.pump()
    assert len(got) == is_reached
    if not is_reached:
        reasons = {event["reason"] for event in fleet["E1"].audits if event["decision"] == "deny"}
        assert reasons == {"management_not_allowed"}


def test_an_edge_is_managed_through_its_uplink_where_its_connector_says_so() -> None:
    fleet = Fleet("INT", edges=("E1", "E2"))
    got: list[str] = []
    for name in ("E1", "E2"):
        fleet[name].core.subscribe("_local/$management", lambda _payload, _link, name=name: got.append(name))
        fleet.connect(name, "INT", **EDGE, reaches_in_process=name == "E1")
    sender = fleet["INT"].client().sender(None)
    fleet.pump()
    for name in ("E1", "E2"):
        sender.send(b"request", address=f"_edge/{name}/$management")
    fleet.pump()
    assert got == ["E1"]
    assert sender.outcomes == [ACCEPTED, REJECTED]


def test_an_edge_hears_of_a_service_link_that_the_interior_detaches() -> None:
    """§14.2: it is not attached again, and the messages of clients pass."""
    fleet = star("E1")
    end = fleet["INT"].ends[0]
    services = [link for link in fleet["INT"].peer(end).attachment.in_links if isinstance(link, ServiceInLink)]
    for link in services:
        fleet["INT"].peer(end).links.end_link(wire_of(link), NO_ROUTE)
    fleet["INT"].work.finish()
    fleet.pump()
    closed = [text for text in fleet["E1"].log_texts() if "The interior router closed the" in text]
    assert len(closed) == len(services) > 0
    sender, receiver = fleet["E1"].client().sender("a"), fleet["INT"].client().receiver("a", credit=1, accepts=True)
    fleet.pump()
    sending = sender.send(b"hello")
    fleet.pump()
    assert (receiver.bodies, sending.outcome) == ([b"hello"], ACCEPTED)
    fleet.no_errors()
