"""Routers in memory, connected: links between them, messages over one hop and two, and who may be a router."""

from collections import Counter
from typing import Any

import pytest
from memory_net import ACCEPTED, MODIFIED, REJECTED, RELEASED, Fleet, Net, encoded, frames
from proton import int32, symbol, ulong

from router.amqp.codec import decode_message
from router.core.remotes import DataOutLink
from router.core.trunk_links import ControlInLink, DataInLink
from router.linkstate.limits import Limits
from router.network.envelope import encode_control
from router.values import int_, long
from router.values import symbol as sym

HELLO = bytes.fromhex(
    "005370d0000000050000000142005372c13804a310782d6f70742d71642e696e6772657373a107302f5144522e42a30e"
    "782d6f70742d71642e7472616365c00a01a107302f5144522e42005373d00000001f000000064040a114616d71703a2f"
    "5f6c6f63616c2f716468656c6c6f404040005374d10000001300000002a1066f70636f6465a10548454c4c4f005377d1"
    "000000430000000aa1026964a1055144522e42a10270765401a10461726561a10130a108696e7374616e6365716b003f"
    "3ea1047365656ed00000000b00000001a1055144522e41"
)
MAU = bytes.fromhex(
    "005370d0000000050000000142005372c13804a310782d6f70742d71642e696e6772657373a107302f5144522e41a30e"
    "782d6f70742d71642e7472616365c00a01a107302f5144522e41005373d00000001f000000034040a1175f746f706f2f"
    "302f616c6c2f7164726f757465722e6d61005374d10000001100000002a3066f70636f6465a1034d4155005377d10000"
    "00630000000ea3026964a1055144522e41a30270765501a30461726561a10130a30a6d6f62696c655f7365715502a305"
    "68696e7473d000000006000000015403a303616464d00000000d00000001a1074d306164647231a30364656cd0000000"
    "0400000000"
)


def line(**options: Any) -> Fleet:
    """A - B - C, settled."""
    fleet = Fleet("A", "B", "C", **options)
    fleet.connect("A", "B")
    fleet.connect("B", "C")
    fleet.settle()
    return fleet


def annotations(payload: bytes | bytearray) -> dict[Any, Any]:
    return dict(decode_message(bytes(payload)).message_annotations)


def spoken(end: Any) -> list[Any]:
    """The frames that a router wrote on a connection, its SASL left out."""
    written = bytes(end.recorded)
    return list(frames(written[written.index(b"AMQP\x00") :]))


# Control messages


def test_control_messages_are_those_of_1_20_to_the_byte() -> None:
    """network 18"""
    hello = {"id": "QDR.B", "pv": int_(1), "area": "0", "instance": int_(1795178302), "seen": ["QDR.A"]}
    assert encode_control("0/QDR.B", "amqp:/_local/qdhello", "HELLO", hello) == HELLO
    update: dict[str, Any] = {
        **{sym("id"): "QDR.A", sym("pv"): long(1), sym("area"): "0", sym("mobile_seq"): long(2)},
        **{sym("hints"): [int_(3)], sym("add"): ["M0addr1"], sym("del"): []},
    }
    assert encode_control("0/QDR.A", "_topo/0/all/qdrouter.ma", "MAU", update) == MAU


# Links


def test_the_connector_attaches_a_control_pair_and_ten_data_pairs() -> None:
    """network 6, 7, 8, 9"""
    fleet = Fleet("A", "B")
    made, taken = fleet.connect("A", "B")
    attaches = [frame for frame in spoken(made) if frame.name == "attach"]
    capabilities = [(frame[5].value[10], frame[6].value[6]) for frame in attaches]
    assert capabilities == [("qd.router", "qd.router")] * 2 + [("qd.router-data", "qd.router-data")] * 20
    assert all(type(one) is sym for pair in capabilities for one in pair)
    assert [frame[2] for frame in attaches] == [True, False] * 11  # a receiver, then a sender
    assert all(frame[5].value[0] is None and frame[6].value[0] is None for frame in attaches)
    answers = [frame for frame in spoken(taken) if frame.name == "attach"]
    assert [frame[0] for frame in answers] == [frame[0] for frame in attaches]
    assert [(frame[5].value[10], frame[6].value[6]) for frame in answers] == capabilities
    for net in fleet.nets.values():
        incoming = [link for link in net.core.links.values() if isinstance(link, ControlInLink | DataInLink)]
        assert [link.wire.credit for link in incoming] == [250] * 11
    fleet.no_errors()


def test_opens_say_who_is_a_router_and_what_the_way_costs() -> None:
    """network 1, 2, 3, 4"""
    fleet = Fleet("A", "B")
    made, taken = fleet.connect("A", "B", cost=3)
    for end, name in ((made, "A"), (taken, "B")):
        opened = spoken(end)[0]
        assert opened[0] == name
        assert (
            list(opened[7])
            == list(opened[8])
            == [
                "ANONYMOUS-RELAY",
                "qd.streaming-links",
                "palisade.reply-to",
            ]
        )
        assert opened[9]["product"] == "qpid-dispatch-router"
        assert opened[9]["qd.annotations-version"] == opened[9]["qd.conn-id"] == 1
        assert opened[9]["qd.inter-router-cost"] == 3
    fleet.settle()
    assert fleet["A"].host is not None
    assert fleet["A"].host.own_links == {"B": 3}
    plain = Fleet("A", "B")
    made, _ = plain.connect("A", "B")
    assert "qd.inter-router-cost" not in spoken(made)[0][9]


@pytest.mark.parametrize("role", ["inter-router", "edge"])
def test_both_routers_log_the_version_of_the_others_annotations(role: str) -> None:
    """management 35"""
    fleet = Fleet("A", edges=("B",)) if role == "edge" else Fleet("A", "B")
    fleet.connect("B", "A", role=role)
    for net in fleet.nets.values():
        lines = [entry for entry in net.logs if entry.text.startswith("Remote router annotations")]
        assert [(line.module, line.level, line.text) for line in lines] == [
            ("ROUTER", "debug", "Remote router annotations version: 1")
        ]


def test_a_client_says_nothing_of_routers_annotations() -> None:
    """management 35: neither by leaving the property out nor by having it."""
    net = Net(router_id="A")
    client = net.client(opens=False)
    client.connection.properties = {symbol("qd.annotations-version"): int32(1)}
    client.open()
    net.pump()
    assert net.peer(client).is_open
    assert not [text for text in net.log_texts("ROUTER") if "annotations" in text]


@pytest.mark.parametrize("version", [None, "1", ulong(1), [1]])
def test_a_version_of_annotations_that_is_no_int_is_passed_over(version: Any) -> None:
    """management 35: the peer joins all the same."""
    net = Net(router_id="A")
    client = net.client(opens=False, role="inter-router")
    client.connection.properties = {symbol("qd.annotations-version"): version}
    client.open()
    net.pump()
    assert len(net.core.network.trunks) == 1  # type: ignore[union-attr]
    assert not [text for text in net.log_texts("ROUTER") if "annotations" in text]


@pytest.mark.parametrize("capability", ["qd.router", "qd.router-data"])
def test_a_client_never_gets_a_neighbours_links(capability: str) -> None:
    """network 11"""
    net = Net(router_id="A")
    client = net.client()
    receiver = client.receiver(None, source={"capabilities": symbol(capability)})
    sender = client.sender(None, target={"capabilities": symbol(capability)})
    net.pump()
    for end in (receiver, sender):
        assert (end.refusal.name, end.refusal.description) == (
            "qd:forbidden",
            "Connectivity to the node is forbidden",
        )
    assert not net.core.network.trunks  # type: ignore[union-attr]


def test_ordinary_links_of_a_neighbour_need_its_control_link() -> None:
    """network 12"""
    net = Net(router_id="A")
    early, late = net.client(role="inter-router"), net.client(role="inter-router")
    refused = early.sender("a")
    late.receiver(None, source={"capabilities": symbol("qd.router")})
    admitted = late.sender("a")
    net.pump()
    assert refused.refusal.name == "qd:connection-role"
    assert refused.refusal.description == "Link attach forbidden on inter-router connection"
    assert admitted.is_attached
    assert not admitted.is_detached


# Messages


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("distribution", ["balanced", "closest", "multicast"])
def test_a_message_finds_its_receiver_and_its_outcome_the_way_back(hops: int, distribution: str) -> None:
    """network 45, 60, 61"""
    fleet = line(distributions={"a": distribution})
    far = "ABC"[hops]
    receiver = fleet[far].client(strip="no").receiver("a", credit=10, accepts=True)
    fleet.tick(2)
    sender = fleet["A"].client().sender("a")
    fleet.pump()
    assert sender.credit == 250
    sending = sender.send(b"hello")
    fleet.pump()
    assert receiver.bodies == [b"hello"]
    assert sending.outcome == ACCEPTED
    assert annotations(receiver.complete[0].payload) == {
        "x-opt-qd.to": "a",
        "x-opt-qd.ingress": "0/A",
        "x-opt-qd.trace": [f"0/{name}" for name in "ABC"[: hops + 1]],
    }
    fleet.no_errors()


def test_the_address_in_a_message_takes_the_place_of_a_target() -> None:
    """network 60: of an anonymous sender nothing is added"""
    fleet = line()
    receiver = fleet["C"].client(strip="no").receiver("a", credit=10, accepts=True)
    fleet.tick(2)
    sender = fleet["A"].client().sender(None)
    fleet.pump()
    sending = sender.send(b"hello", address="a")
    fleet.pump()
    assert sending.outcome == ACCEPTED
    assert "x-opt-qd.to" not in annotations(receiver.complete[0].payload)


@pytest.mark.parametrize(("state", "local"), [(REJECTED, {}), (RELEASED, {}), (MODIFIED, {"undeliverable": True})])
def test_outcomes_cross_with_what_they_say(state: int, local: dict[str, Any]) -> None:
    """network 73"""
    fleet = line()
    receiver = fleet["C"].client().receiver("a", credit=10)
    fleet.tick(2)
    sender = fleet["A"].client().sender("a")
    fleet.pump()
    sending = sender.send(b"hello")
    fleet.pump()
    receiver.complete[0].give(state, **local)
    fleet.pump()
    assert sending.outcome == state
    assert sending.updates[-1].undeliverable == local.get("undeliverable", False)


def test_a_message_takes_the_data_link_of_its_priority() -> None:
    """network 64: 0 to 9; more counts as 9, none as 4"""
    fleet = line()
    fleet["C"].client().receiver("a", credit=100, accepts=True)
    fleet.tick(2)
    sender = fleet["A"].client().sender("a")
    fleet.pump()
    for priority in (0, 3, 9, 200):
        sender.send(b"x", priority=priority)
    sender.send_bytes(b"\x00\x53\x75\xa0\x01x")
    fleet.pump()
    out = {link.slot: link.delivery_count for link in fleet["B"].core.links.values() if isinstance(link, DataOutLink)}
    used = Counter({slot: count for slot, count in out.items() if count})
    assert used == {0: 1, 3: 1, 9: 2, 4: 1}
    assert sender.outcomes == [ACCEPTED] * 5


def test_a_dynamic_address_is_reached_from_every_router() -> None:
    """network 57: as a request and its reply over two hops"""
    fleet = line()
    service = fleet["C"].client().receiver("service", credit=10, accepts=True)
    fleet.tick(2)
    client = fleet["A"].client()
    replies = client.receiver(None, credit=10, accepts=True, source={"dynamic": True})
    requests = client.sender("service")
    answers = fleet["C"].client().sender(None)
    fleet.pump()
    reply_to = replies.link.remote_source.address
    assert reply_to.startswith("amqp:/_topo/0/A/temp.")
    requests.send(b"question", reply_to=reply_to)
    fleet.pump()
    assert service.bodies == [b"question"]
    sending = answers.send(b"answer", address=reply_to)
    fleet.pump()
    assert replies.bodies == [b"answer"]
    assert sending.outcome == ACCEPTED


def test_a_large_message_streams_over_two_hops() -> None:
    """network 70"""
    fleet = line()
    receiver = fleet["C"].client().receiver("a", credit=10, accepts=True)
    fleet.tick(2)
    sender = fleet["A"].client().sender("a")
    fleet.pump()
    payload = encoded(bytes(range(256)) * 8192)
    sending = sender.start()
    for at in range(0, len(payload), 100_000):
        sender.append(payload[at : at + 100_000])
        fleet.pump()
    sender.finish()
    fleet.pump()
    assert receiver.bodies == [bytes(range(256)) * 8192]
    assert sending.outcome == ACCEPTED
    fleet.no_errors()


def test_multicast_gives_each_consumer_of_a_ring_one_copy() -> None:
    """network 69"""
    fleet = Fleet("A", "B", "C", "D", distributions={"m": "multicast"})
    for maker, taker in ("AB", "BC", "CD", "DA"):
        fleet.connect(maker, taker)
    fleet.settle()
    receivers = [fleet[name].client().receiver("m", credit=10, accepts=True) for name in "ABCD" for _ in range(2)]
    fleet.tick(3)
    sender = fleet["A"].client().sender("m")
    fleet.pump()
    sending = sender.send(b"news")
    fleet.pump()
    assert [receiver.bodies for receiver in receivers] == [[b"news"]] * 8
    assert sending.outcome == ACCEPTED
    fleet.no_errors()


# The end of connections


def test_a_lost_connection_gives_every_message_an_outcome() -> None:
    """network 24, 74, 75, 76: what was sent is modified, what was not is released"""
    fleet = Fleet("A", "B")
    made, _taken = fleet.connect("A", "B", capacity=2)
    fleet.settle()
    fleet["B"].client().receiver("a", credit=10)
    fleet.tick(2)
    sender = fleet["A"].client().sender("a")
    fleet.pump()
    made.other.is_stuck = True
    sendings = [sender.send(b"x") for _ in range(4)]
    fleet["A"].pump()
    made.kill()
    fleet.pump()
    assert all(sending.outcome in (MODIFIED, RELEASED) for sending in sendings)
    assert any(sending.outcome == MODIFIED for sending in sendings)
    assert "Link to Neighbor Router Lost - link_tag=0" in fleet["A"].log_texts("ROUTER_LS")
    assert fleet["A"].host is not None
    fleet.tick(1)
    assert fleet["A"].host.own_links == {}
    late = sender.send(b"late")
    fleet.pump()
    assert late.outcome == RELEASED
    fleet.no_errors()


def test_an_address_whose_last_consumer_is_gone_is_forgotten_everywhere() -> None:
    """network 46, 58"""
    fleet = line()
    receiver = fleet["C"].client().receiver("a", credit=10)
    fleet.tick(2)
    assert [router.id for router in fleet["A"].core.table.addresses["M0a"].remotes] == ["C"]
    receiver.close()
    fleet.tick(2)
    assert "M0a" not in fleet["A"].core.table.addresses


# Attacks


def test_a_neighbour_that_claims_management_gets_nothing_of_it() -> None:
    """network 59: an address that this router serves itself has no remote destination, whoever claims it"""
    fleet = Fleet("A", "B")
    fleet.connect("A", "B")
    got: list[bytes] = []
    fleet["A"].core.subscribe("$management", lambda payload, _link: got.append(payload))
    fleet["B"].client().receiver("$management", credit=10)
    fleet.settle()
    sender = fleet["A"].client().sender("$management")
    fleet.pump()
    sender.send(b"request")
    fleet.pump()
    assert len(got) == 1
    assert not fleet["A"].core.table.addresses["M0$management"].remotes


@pytest.mark.parametrize("address", ["_topo/0/B/qdrouter", "_topo/0/all/qdrouter", "_local/qdhello"])
def test_control_addresses_take_nothing_from_clients(address: str) -> None:
    """network 72"""
    fleet = Fleet("A", "B")
    fleet.connect("A", "B")
    fleet.settle()
    rows = dict(fleet["B"].host.rows)  # type: ignore[union-attr]
    sender = fleet["A"].client().sender(None)
    fleet.pump()
    sending = sender.send_bytes(
        encode_control("0/A", address, "RA", {"id": "A", "pv": 1, "instance": 9, "ls_seq": 9, "mobile_seq": 9})
    )
    fleet.pump()
    assert sending.outcome == RELEASED
    assert fleet["B"].host.rows == rows  # type: ignore[union-attr]


def test_a_control_message_over_the_limit_is_never_decoded() -> None:
    """Attack: a control message that takes long to decode, or has no end."""
    fleet = Fleet("A", "B")
    fleet["A"].core.network.control_message_bytes = 300_000  # type: ignore[union-attr]
    fleet.connect("A", "B")
    host = fleet["A"].host
    assert host is not None
    host.limits = Limits(control_message_bytes=300_000)
    fleet["B"].core.network.send_control(0, HELLO + bytes(1_000_000))  # type: ignore[union-attr]
    fleet["B"].work.finish()
    fleet.pump()
    fleet.settle()
    assert host.own_links == {"B": 1}
    assert fleet["A"].core.links
    (link,) = (link for link in fleet["A"].core.links.values() if isinstance(link, ControlInLink))
    assert link.passed_over == 1
    assert link.held == 0
    fleet.no_errors()
