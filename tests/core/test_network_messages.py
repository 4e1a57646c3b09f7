"""What a router does with each message that a neighbour sends, and which way it chooses."""

import random
from typing import Any

import pytest
from memory_net import (
    ACCEPTED,
    MODIFIED,
    REJECTED,
    RELEASED,
    Client,
    End,
    Fleet,
    Net,
    Receiver,
    Sender,
    Vhosts,
    encoded,
    frames,
)
from proton import symbol
from test_streaming import raw_stream

from router.amqp.codec import decode_message, encode
from router.core.addresses import Treatment
from router.core.in_links import InLink
from router.core.out_links import OutLink
from router.core.remotes import DataOutLink
from router.core.views import address_row
from router.linkstate.effects import AddressesChanged
from router.network.envelope import encode_control
from router.values import int_
from router.values import symbol as sym


class FakeNeighbour:
    """A client that came by an inter-router listener and speaks for the router TEST, with one data pair."""

    def __init__(self, net: Net, *, has_data: bool = True) -> None:
        self.net = net
        self.client: Client = net.client("TEST", role="inter-router", strip="no")
        self.control_in = self._receiver("qd.router")
        self.control_out = self._sender("qd.router")
        if has_data:
            self.data_in = self._receiver("qd.router-data")
            self.data_out = self._sender("qd.router-data")
        net.pump()

    def _receiver(self, capability: str) -> Receiver:
        kind = {"capabilities": symbol(capability)}
        return self.client.receiver(None, credit=1000, accepts=True, source=kind, target=kind)

    def _sender(self, capability: str) -> Sender:
        kind = {"capabilities": symbol(capability)}
        return self.client.sender(None, source=kind, target=kind)

    def say(self, opcode: str, body: dict[str, Any], to: str = "_local/qdhello") -> Any:
        return self.control_out.send_bytes(encode_control("0/TEST", to, opcode, {"id": "TEST", **body}))

    def tick(self, seconds: int = 1) -> None:
        """Answer each HELLO, for so long."""
        for _ in range(seconds):
            self.net.advance(1.0, step=1.0)
            assert self.net.host is not None
            self.net.host.on_second(self.net.now)
            self.net.pump()
            self.say("HELLO", {"pv": 1, "instance": int_(100), "seen": [self.net.core.router_id]})
            self.net.pump()

    def heard(self) -> list[str]:
        """The opcodes of the control messages that came."""
        messages = [decode_message(bytes(item.payload)) for item in self.control_in.complete]
        return [str(message.application_properties["opcode"]) for message in messages]

    def send(self, annotations: dict[Any, Any], *, to: str | None = None) -> Any:
        plain = encoded(b"body", **({"address": to} if to else {}))
        cut = plain.index(b"\x00\x53\x73")
        section = b"\x00\x53\x72" + encode({sym(f"x-opt-qd.{key}"): value for key, value in annotations.items()})
        sending = self.data_out.send_bytes(plain[:cut] + section + plain[cut:])
        self.net.pump()
        return sending


@pytest.fixture
def net() -> Net:
    return Net(router_id="A")


@pytest.fixture
def neighbour(net: Net) -> FakeNeighbour:
    fake = FakeNeighbour(net)
    fake.tick(3)
    return fake


# The fake neighbour of network §21.1


def test_a_neighbour_with_the_control_pair_alone_takes_part_in_the_protocol(net: Net) -> None:
    """network 13, 21, 27: it gets no users' messages"""
    fake = FakeNeighbour(net, has_data=False)
    fake.tick(5)
    assert fake.heard().count("HELLO") == 5
    assert "LSR" in fake.heard()
    assert "RA" in fake.heard()
    assert net.host is not None
    assert net.host.own_links == {"TEST": 1}
    fake.say("MAU", {"mobile_seq": 1, "add": ["M0a"], "del": [], "hints": [int_(3)]}, "_topo/0/all/qdrouter.ma")
    net.pump()
    sender = net.client().sender("a")
    net.pump()
    sending = sender.send()
    net.pump()
    assert sending.outcome == RELEASED


def test_a_hello_is_presettled_and_names_its_address(neighbour: FakeNeighbour) -> None:
    """network 17"""
    hellos = [item for item in neighbour.control_in.complete if b"HELLO" in item.payload]
    assert len(hellos) == 3
    assert all(item.came_settled for item in hellos)
    assert {decode_message(bytes(item.payload)).to for item in hellos} == {"amqp:/_local/qdhello"}


def test_mutated_control_messages_change_nothing_of_other_routers() -> None:
    """Attack: a neighbour whose control messages are torn, cut and mixed."""
    chance = random.Random(14)
    fleet = Fleet("A", "B")
    fleet.connect("A", "B")
    fleet.settle()
    net = fleet["A"]
    assert net.host is not None
    fake = FakeNeighbour(net)
    fake.tick(1)
    router = net.host.rows["B"]
    good = [
        encode_control("0/TEST", "_local/qdhello", "HELLO", {"id": "TEST", "pv": 1, "instance": 1, "seen": ["A"]}),
        encode_control("0/TEST", "_topo/0/all/qdrouter", "RA", {"id": "TEST", "ls_seq": 1, "mobile_seq": 1}),
        encode_control(
            "0/TEST",
            "_topo/0/A/qdrouter",
            "LSU",
            {"id": "TEST", "ls_seq": 1, "ls": {"id": "TEST", "ls_seq": 1, "peers": {"A": 1}}},
        ),
        encode_control("0/TEST", "_topo/0/B/qdrouter.ma", "MAR", {"id": "TEST", "have_seq": 0}),
        encode_control("0/TEST", "_topo/0/A/qdrouter.ma", "MAU", {"id": "TEST", "mobile_seq": 1, "exist": ["M0x"]}),
    ]
    for _ in range(3000):
        torn = bytearray(chance.choice(good))
        for _ in range(chance.randrange(1, 6)):
            torn[chance.randrange(len(torn))] = chance.randrange(256)
        fake.control_out.send_bytes(bytes(torn[: chance.randrange(1, len(torn) + 1)]))
        if chance.random() < 0.1:
            net.pump()
    fleet.pump()
    assert net.peer(fake.client).is_open
    assert not fake.client.is_closed_by_router
    assert net.host.rows["B"] == router
    assert not [entry for entry in net.logs if entry.module == "ERROR"]
    fleet.settle()
    assert net.host.own_links["B"] == 1


def test_one_data_pair_carries_all_priorities(net: Net, neighbour: FakeNeighbour) -> None:
    """network 14"""
    neighbour.say("MAU", {"mobile_seq": 1, "add": ["M0a"], "del": [], "hints": [int_(3)]}, "_topo/0/all/qdrouter.ma")
    net.pump()
    sender = net.client().sender("a")
    net.pump()
    for priority in (0, 4, 9):
        sender.send(b"x", priority=priority)
    net.pump()
    assert sender.outcomes == [ACCEPTED] * 3
    assert len(neighbour.data_in.complete) == 3


def test_a_hint_counts_for_addresses_that_are_new_and_not_configured() -> None:
    """network 55"""
    net = Net({"set": "closest"}, router_id="A")
    fake = FakeNeighbour(net)
    net.client().receiver("here", credit=1)
    fake.tick(3)
    hints = {"add": ["M0set", "M0new", "M0here"], "del": [], "hints": [int_(1), int_(1), int_(1)]}
    fake.say("MAU", {"mobile_seq": 1, **hints}, "_topo/0/all/qdrouter.ma")
    net.pump()
    addresses = net.core.table.addresses.items()
    found = {key: live.distribution for key, live in addresses if live.remotes and not live.is_control}
    assert found == {"RTEST": "closest", "M0set": "closest", "M0new": "multicast", "M0here": "balanced"}


# What comes on a data link


def test_credit_returns_for_each_message_whatever_becomes_of_it(net: Net, neighbour: FakeNeighbour) -> None:
    """network 10: a receiver that settles nothing holds up nobody else"""
    net.client().receiver("slow", credit=1000)
    net.pump()
    for _ in range(400):
        neighbour.send({"to": "slow", "ingress": "0/TEST", "trace": ["0/TEST"]})
    assert 218 <= neighbour.data_out.credit <= 250
    assert set(neighbour.data_out.outcomes) == {None}
    neighbour.client.kill()
    net.nothing_left()


def test_a_message_without_an_address_is_rejected(neighbour: FakeNeighbour) -> None:
    """network 65"""
    sending = neighbour.send({"ingress": "0/TEST", "trace": ["0/TEST"]})
    assert sending.outcome == REJECTED
    condition = sending.updates[-1].condition
    assert (condition.name, condition.description) == (
        "amqp:precondition-failed",
        "Routing failure: no address present",
    )


def test_a_message_that_was_at_more_routers_than_there_are_on_any_way_is_released(
    net: Net, neighbour: FakeNeighbour
) -> None:
    """network 66"""
    receiver = net.client().receiver("a", credit=10, accepts=True)
    net.pump()
    assert neighbour.send({"to": "a", "trace": ["0/X", "0/TEST"]}).outcome == ACCEPTED
    assert neighbour.send({"to": "a", "trace": ["0/X", "0/Y", "0/TEST"]}).outcome == RELEASED
    assert len(receiver.complete) == 1


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({"to": sym("a")}, "to-override not a valid string type"),
        ({"to": "a", "trace": "0/X"}, "trace annotation is not a list"),
        ({"to": "a", "ingress": int_(1)}, "ingress router not a string type"),
    ],
)
def test_annotations_of_wrong_types_are_rejected(neighbour: FakeNeighbour, annotations: Any, text: str) -> None:
    """network 67"""
    sending = neighbour.send(annotations)
    assert sending.outcome == REJECTED
    condition = sending.updates[-1].condition
    assert (condition.name, condition.description) == ("amqp:invalid-field", text)


@pytest.mark.parametrize("key", ["qdhello", "qdrouter", "qdrouter.ma"])
def test_a_data_link_reaches_no_control_address(net: Net, neighbour: FakeNeighbour, key: str) -> None:
    """network 72"""
    assert neighbour.send({"to": f"_local/{key}"}).outcome == RELEASED
    assert neighbour.send({"to": f"_topo/0/all/{key}"}).outcome == RELEASED
    net.no_errors()


def test_a_message_with_a_phase_goes_to_that_phase(net: Net, neighbour: FakeNeighbour) -> None:
    """network 63"""
    plain = net.client().receiver("a", credit=10, accepts=True)
    net.pump()
    assert neighbour.send({"to": "a", "phase": int_(3)}).outcome == RELEASED
    assert neighbour.send({"to": "a"}).outcome == ACCEPTED
    assert len(plain.complete) == 1


def test_phases_other_than_the_first_are_written() -> None:
    """network 63"""
    fleet = Fleet("A", "B")
    for net in fleet.nets.values():
        net.core.table.treatment_of = lambda _name: Treatment(ingress_phase=2, egress_phase=2)
    fleet.connect("A", "B")
    fleet.settle()
    receiver = fleet["B"].client(strip="no").receiver("a", credit=10, accepts=True)
    fleet.tick(2)
    sender = fleet["A"].client().sender("a")
    fleet.pump()
    sending = sender.send()
    fleet.pump()
    assert sending.outcome == ACCEPTED
    assert decode_message(bytes(receiver.complete[0].payload)).message_annotations["x-opt-qd.phase"] == 2


def test_users_annotations_stand_before_the_routers() -> None:
    """network 62"""
    fleet = Fleet("A", "B")
    fleet.connect("A", "B")
    fleet.settle()
    receiver = fleet["B"].client(strip="no").receiver("a", credit=10, accepts=True)
    fleet.tick(2)
    sender = fleet["A"].client().sender("a")
    fleet.pump()
    plain = encoded(b"body")
    cut = plain.index(b"\x00\x53\x73")
    sender.send_bytes(plain[:cut] + b"\x00\x53\x72" + encode({sym("x-user"): "u", sym("x-more"): [1]}) + plain[cut:])
    fleet.pump()
    found = decode_message(bytes(receiver.complete[0].payload)).message_annotations
    assert list(found) == ["x-user", "x-more", "x-opt-qd.to", "x-opt-qd.ingress", "x-opt-qd.trace"]


# Which way


def test_balanced_shares_by_load_and_cost() -> None:
    """network 4, 68: two receivers behind ways that cost 1 and 5, none of which settles"""
    fleet = Fleet("A", "B", "C")
    fleet.connect("A", "B")
    fleet.connect("A", "C", cost=5)
    fleet.settle()
    near = fleet["B"].client().receiver("a", credit=100)
    far = fleet["C"].client().receiver("a", credit=100)
    fleet.tick(2)
    sender = fleet["A"].client().sender("a")
    fleet.pump()
    for _ in range(4):
        sender.send()
        fleet.pump()
    assert (len(near.complete), len(far.complete)) == (4, 0)
    for _ in range(16):
        sender.send()
        fleet.pump()
    assert (len(near.complete), len(far.complete)) == (12, 8)
    live = fleet["A"].core.table.addresses["M0a"]
    row = address_row(live)
    assert (row["transitOutstanding"], row["trackedDeliveries"]) == ([12, 8, *[0] * 126], 20)
    assert address_row(fleet["B"].core.table.addresses["M0a"])["transitOutstanding"] is None
    near.accept_all()
    far.accept_all()
    fleet.pump()
    assert sender.outcomes == [ACCEPTED] * 20
    assert not live.outstanding
    row = address_row(live)
    assert (row["transitOutstanding"], row["trackedDeliveries"]) == ([0] * 128, 0)


@pytest.mark.parametrize(("is_settled", "flows"), [(False, 4), (True, 1)])
def test_credit_of_a_trunk_returns_with_outcomes_or_for_half_of_the_window(*, is_settled: bool, flows: int) -> None:
    """A Flow by itself costs both routers a write and a read. network §4.2"""
    fleet = Fleet("A", "B", capacity=80)
    _, taken = fleet.connect("A", "B")
    fleet.settle()
    receiver = fleet["B"].client().receiver("a", credit=1000, accepts=True)
    fleet.tick(2)
    sender = fleet["A"].client().sender("a")
    fleet.pump()
    taken.recorded.clear()
    for _ in range(4):
        for _ in range(11):  # more than an eighth; four times that is more than half
            sender.send(is_settled=is_settled)
        fleet.pump()
    assert len(receiver.complete) == 44
    assert len([frame for frame in frames(bytes(taken.recorded)) if frame.name == "flow"]) == flows


def flooded(capacity: int = 10) -> tuple[Fleet, End, Sender, Receiver]:
    """A sender at A with a receiver at B, which has stopped reading after the first window was sent, presettled."""
    fleet = Fleet("A", "B", capacity=capacity)
    _, taken = fleet.connect("A", "B")
    fleet.settle()
    receiver = fleet["B"].client().receiver("a", credit=1000)
    fleet.tick(2)
    sender = fleet["A"].client().sender("a")
    fleet.pump()
    assert sender.credit == capacity
    taken.is_stuck = True
    for _ in range(capacity):
        sender.send(is_settled=True)
    fleet.pump()
    return fleet, taken, sender, receiver


def test_a_sender_of_presettled_messages_gets_no_more_credit_than_the_way_on_has() -> None:
    """Each that waits here is copied, and accounted for twice."""
    fleet, taken, sender, receiver = flooded()
    (out,) = [link for link in fleet["A"].core.links.values() if isinstance(link, DataOutLink) and link.delivery_count]
    assert (sender.credit, len(out.queue)) == (0, 0)
    taken.is_stuck = False
    fleet.pump()
    assert sender.credit >= 8  # the neighbour returns credit in batches
    for _ in range(20):
        while sender.credit > 0:
            sender.send(is_settled=True)
        fleet.pump()
        assert not out.queue
    assert len(receiver.complete) == len(sender.sent) > 100
    fleet.no_errors()


def test_credit_that_waits_for_a_neighbour_comes_back_when_the_neighbour_is_lost() -> None:
    fleet, taken, sender, _ = flooded()
    taken.kill()
    fleet.pump()
    assert sender.credit == 10
    fleet.no_errors()


def test_a_sender_may_go_while_its_credit_waits_for_a_neighbour() -> None:
    fleet, taken, sender, receiver = flooded()
    sender.close()
    fleet.pump()
    taken.is_stuck = False
    fleet.pump()
    assert len(receiver.complete) == 10
    for net in fleet.nets.values():
        for client in net.clients:
            client.kill()
    fleet.tick(3)
    for net in fleet.nets.values():
        net.nothing_left()


def test_annotations_with_a_long_descriptor_get_no_second_section(net: Net, neighbour: FakeNeighbour) -> None:
    neighbour.say("MAU", {"mobile_seq": 1, "add": ["M0a"], "del": [], "hints": [int_(3)]}, "_topo/0/all/qdrouter.ma")
    net.pump()
    sender = net.client().sender("a")
    net.pump()
    header, body = b"\x00\x53\x70\x45", b"\x00\x53\x75\xa0\x01x"
    own = b"\x00\x80" + (0x72).to_bytes(8, "big") + encode({sym("x-user"): "u"})
    for before in (b"", header):
        sender.send_bytes(before + own + body)
        net.pump()
        message = decode_message(bytes(neighbour.data_in.complete[-1].payload))
        assert message.message_annotations is not None
        assert list(message.message_annotations) == ["x-user", "x-opt-qd.to", "x-opt-qd.ingress", "x-opt-qd.trace"]


def test_balanced_prefers_a_receiver_here_that_has_nothing_to_do() -> None:
    """network 68: and one elsewhere to one here that is busy"""
    fleet = Fleet("A", "B")
    fleet.connect("A", "B")
    fleet.settle()
    far = fleet["B"].client().receiver("a", credit=100)
    here = fleet["A"].client().receiver("a", credit=100)
    fleet.tick(2)
    sender = fleet["A"].client().sender("a")
    fleet.pump()
    for _ in range(6):
        sender.send()
        fleet.pump()
    assert (len(here.complete), len(far.complete)) == (4, 2)  # the one here has all ties, and the way costs 1


def test_a_message_goes_no_way_that_its_ingress_would_not_take() -> None:
    """network 68: what B got from A for a receiver at A does not go back"""
    fleet = Fleet("A", "B")
    fleet.connect("A", "B")
    fleet.settle()
    fleet["A"].client().receiver("a", credit=100, accepts=True)
    fleet.tick(2)
    (out,) = (link for link in fleet["A"].core.links.values() if isinstance(link, DataOutLink) and link.slot == 4)
    body = encoded(b"x")
    cut = body.index(b"\x00\x53\x73")
    section = encode({sym("x-opt-qd.to"): "a", sym("x-opt-qd.ingress"): "0/A", sym("x-opt-qd.trace"): ["0/A"]})
    out.wire.send_bytes(body[:cut] + b"\x00\x53\x72" + section + body[cut:])
    fleet["A"].work.touched.add(out.engine)
    fleet["A"].work.finish()
    fleet.pump()
    incoming = [link for link in fleet["B"].core.links.values() if link.link_type == "inter-router"]
    assert sum(link.released for link in incoming) == 1


def test_closest_takes_the_cheapest_way_and_a_receiver_here_first() -> None:
    """network 42"""
    fleet = Fleet("A", "B", "C", distributions={"a": "closest"})
    fleet.connect("A", "B", cost=10)
    fleet.connect("A", "C")
    fleet.connect("C", "B")
    fleet.settle()
    far = fleet["B"].client(strip="no").receiver("a", credit=100, accepts=True)
    fleet.tick(2)
    sender = fleet["A"].client().sender("a")
    fleet.pump()
    sender.send()
    fleet.pump()
    trace = decode_message(bytes(far.complete[0].payload)).message_annotations["x-opt-qd.trace"]
    assert trace == ["0/A", "0/C", "0/B"]
    here = fleet["A"].client().receiver("a", credit=100, accepts=True)
    fleet.pump()
    sender.send()
    fleet.pump()
    assert (len(here.complete), len(far.complete)) == (1, 1)


def test_a_dearer_way_that_comes_up_releases_nothing() -> None:
    """network 43"""
    fleet = Fleet("A", "B")
    fleet.connect("A", "B")
    fleet.settle()
    fleet["B"].client().receiver("a", credit=1000, accepts=True)
    fleet.tick(2)
    sender = fleet["A"].client().sender("a")
    fleet.pump()
    for step in range(8):
        if step == 2:
            fleet.connect("A", "B", cost=7)
        sender.send()
        fleet.tick()
    assert sender.outcomes == [ACCEPTED] * 8


# Streams


def test_a_stream_holds_up_no_other_message_and_its_link_is_used_again() -> None:
    """network 70"""
    fleet = Fleet("A", "B")
    fleet.connect("A", "B")
    fleet.settle()
    receiver = fleet["B"].client().receiver("a", credit=100, accepts=True)
    other = fleet["B"].client().receiver("b", credit=100, accepts=True)
    fleet.tick(2)
    sender, quick = fleet["A"].client().sender("a"), fleet["A"].client().sender("b")
    fleet.pump()
    large = encoded(bytes(300_000))
    for round_ in range(2):
        sending = sender.start()
        sender.append(large[:200_000])
        fleet.pump()
        quick.send(b"quick")
        fleet.pump()
        assert len(other.complete) == round_ + 1
        sender.append(large[200_000:])
        sender.finish()
        fleet.pump()
        assert sending.outcome == ACCEPTED
    assert receiver.bodies == [bytes(300_000)] * 2
    links = [link for link in fleet["A"].core.links.values() if isinstance(link, DataOutLink) and link.slot is None]
    assert [link.delivery_count for link in links] == [2]
    fleet.no_errors()


def users_links(fleet: Fleet, router: str) -> list[InLink | OutLink]:
    """The links of a router on which something has passed that a user sent."""
    links = fleet[router].core.links.values()
    return [link for link in links if link.delivery_count and link.link_type in ("endpoint", "inter-router")]


@pytest.mark.parametrize("distribution", ["balanced", "closest", "multicast"])
@pytest.mark.parametrize("receivers", [1, 2])
@pytest.mark.parametrize("how", ["from its first frame on", "at its end", "queued"])
def test_a_settled_stream_is_presettled_on_every_router(how: str, receivers: int, distribution: str) -> None:
    """routing §10.1, §19.1: though the routers between tell each other with the last frame"""
    fleet = Fleet("A", "B", "C", distributions={"a": distribution})
    fleet.connect("A", "B")
    fleet.connect("B", "C")
    fleet.settle()
    credit = 0 if how == "queued" else 10
    got = [fleet["C"].client().receiver("a", credit=credit) for _ in range(receivers)]
    fleet.tick(2)
    sender = fleet["A"].client().sender("a")
    fleet.pump()
    payload = encoded(bytes(600_000))
    if how == "from its first frame on":
        raw_stream(sender.client, bytes(300_000), settled=True, ends=False)
        fleet.pump()
        raw_stream(sender.client, bytes(300_000), settled=True, ends=True, is_first=False)
        fleet.pump()
    else:
        sending = sender.start()
        for at in range(0, len(payload), 100_000):
            sender.append(payload[at : at + 100_000])
            fleet.pump()
        sending.settle()
        fleet.pump()
    for receiver in got:
        receiver.flow(10)
    fleet.pump()
    came = [item for receiver in got for item in receiver.complete]
    assert [item.body for item in came] == [bytes(600_000)] * (receivers if distribution == "multicast" else 1)
    assert all(item.came_settled for item in came)
    for router in "ABC":
        links = users_links(fleet, router)
        assert len(links) >= 2
        for link in links:
            assert (link.presettled, link.delivery_count) == (1, 1), (router, link.link_type)
            assert not link.accepted + link.rejected + link.released + link.modified
            assert not isinstance(link, OutLink) or not (link.load or link.unsettled)
    assert [link.wire.credit for link in users_links(fleet, "A") if link.link_type == "endpoint"] == [250]
    fleet.no_errors()


def test_idle_streaming_links_beyond_the_pool_are_closed() -> None:
    """network 71"""
    fleet = Fleet("A", "B")
    fleet.connect("A", "B")
    fleet.settle()
    fleet["B"].client().receiver("a", credit=100, accepts=True)
    fleet["B"].client().receiver("a", credit=100, accepts=True)
    fleet["B"].client().receiver("a", credit=100, accepts=True)
    fleet.tick(2)
    senders = [fleet["A"].client().sender("a") for _ in range(3)]
    fleet.pump()
    for sender in senders:
        sender.start()
        sender.append(encoded(bytes(300_000))[:200_000])
        fleet.pump()
    for sender in senders:
        sender.append(bytes(100_000 + 9))
        sender.finish()
    fleet.pump()
    network = fleet["A"].core.network
    assert network is not None
    assert len(network.trunks[0].streaming.idle) == 3
    network.trim(spare=2, at_once=10)
    fleet["A"].work.finish()
    fleet.pump()
    assert len(network.trunks[0].streaming.idle) == 2
    assert sum(isinstance(link, DataOutLink) for link in fleet["A"].core.links.values()) == 12
    fleet.no_errors()


def test_a_neighbour_that_ends_its_sessions_gets_nothing_more_and_every_message_an_outcome() -> None:
    """network 76: also where it has more links than end at once"""
    fleet = Fleet("A", "B")
    fleet.connect("A", "B")
    fleet.settle()
    fleet["B"].client().receiver("a", credit=1000)
    fleet.tick(2)
    senders = [fleet["A"].client().sender("a") for _ in range(80)]
    fleet.pump()
    sendings = []
    for sender in senders:
        sendings.append(sender.start())
        sender.append(encoded(bytes(300_000))[:200_000])
        fleet.pump()
    sendings.append(senders[0].client.sender("a").send(b"whole"))
    fleet.pump()
    (connection,) = fleet["B"].core.network.trunks.values()  # type: ignore[union-attr]
    engine = connection.attachment.engine
    for session in list(engine.sessions.values()):  # type: ignore[union-attr]
        session.close()
    fleet["B"].work.touched.add(engine)
    fleet["B"].work.finish()
    fleet.pump()
    for sender in senders:
        sender.append(bytes(100_000))
        sender.finish()
    fleet.pump()
    assert all(sending.outcome in (MODIFIED, RELEASED) for sending in sendings)
    assert not [link for link in fleet["A"].core.links.values() if link.link_type != "endpoint"]
    fleet.no_errors()


# Parallel, self


def test_a_second_connection_to_the_same_router_takes_over_when_the_first_is_lost() -> None:
    """network 78"""
    fleet = Fleet("A", "B")
    first, _ = fleet.connect("A", "B")
    fleet.connect("A", "B")
    fleet.settle()
    fleet["B"].client().receiver("a", credit=100, accepts=True)
    fleet.tick(2)
    sender = fleet["A"].client().sender("a")
    fleet.pump()
    sender.send()
    fleet.pump()
    first.kill()
    fleet.pump()
    late = sender.send()
    fleet.pump()
    assert sender.outcomes == [ACCEPTED, ACCEPTED]
    assert late.outcome == ACCEPTED
    fleet.no_errors()


def test_a_connection_to_itself_changes_nothing() -> None:
    """network 79"""
    fleet = Fleet("A", "B")
    fleet.connect("A", "A")
    fleet.connect("A", "B")
    fleet.settle()
    host = fleet["A"].host
    assert host is not None
    assert host.own_links == {"B": 1}
    assert set(host.rows) == {"B"}
    fleet["A"].client().receiver("a", credit=100, accepts=True)
    sender = fleet["A"].client().sender("a")
    fleet.pump()
    sender.send()
    fleet.pump()
    assert sender.outcomes == [ACCEPTED]
    fleet.no_errors()


def test_an_advertisement_passes_three_routers_and_does_not_come_back() -> None:
    """network 30"""
    fleet = Fleet("A", "B", "C", "D")
    for pair in ("AB", "BC", "CD"):
        fleet.connect(*pair)
    fleet.settle()
    for net in fleet.nets.values():
        assert net.host is not None
        assert set(net.host.rows) == set("ABCD") - {net.core.router_id}
    fleet.tick(40)
    fleet.no_errors()


def test_sends_to_what_only_a_lost_router_had_are_released_until_it_expires() -> None:
    """network 36, 77"""
    fleet = Fleet("A", "B")
    made, _ = fleet.connect("A", "B")
    fleet.settle()
    fleet["B"].client().receiver("a", credit=100, accepts=True)
    fleet.tick(2)
    sender = fleet["A"].client().sender("a")
    fleet.pump()
    made.kill()
    fleet.pump()
    fleet.tick(2)
    assert sender.send()
    fleet.pump()
    assert sender.outcomes == [RELEASED]
    assert [router.id for router in fleet["A"].core.table.addresses["M0a"].remotes] == ["B"]
    for _ in range(70):
        fleet["A"].advance(1.0, step=1.0)
        assert fleet["A"].host is not None
        fleet["A"].host.on_second(fleet["A"].now)
    assert "M0a" not in fleet["A"].core.table.addresses  # nor is its sender there any more, which said nothing
    assert "RB" not in fleet["A"].core.table.addresses
    fleet.no_errors()


# Rights


@pytest.mark.parametrize(("management", "is_reached"), [("observer", False), ("administrator", True), (None, True)])
@pytest.mark.parametrize("target", ["_topo/0/B/$management", None])
def test_who_may_not_do_all_by_management_here_does_nothing_by_it_elsewhere(
    management: str | None, is_reached: bool, target: str | None
) -> None:
    """Attack: the right to read here, and every target; the other router would take the requests for a neighbour's."""
    group: dict[str, Any] = {"remoteHosts": "*", "sources": "*", "targets": "*", "allowAnonymousSender": True}
    if management is not None:
        group["management"] = management
    fleet = Fleet("A", "B", vhosts=Vhosts({"$default": {"allowUnknownUser": True, "groups": {"$default": group}}}))
    fleet.connect("A", "B")
    got: list[bytes] = []
    fleet["B"].core.subscribe("_local/$management", lambda payload, _link: got.append(payload))
    fleet.settle()
    sender = fleet["A"].client().sender(target)
    fleet.pump()
    if target is None or is_reached:
        sender.send(b"request", address="_topo/0/B/$management")
        fleet.pump()
    assert len(got) == is_reached
    if not is_reached:
        assert {event["reason"] for event in fleet["A"].audits if event["decision"] == "deny"} == {
            "management_not_allowed"
        }


def test_vhost_policy_holds_for_clients_and_not_for_neighbours() -> None:
    """network 15"""
    fleet = Fleet("A", "B", vhosts=Vhosts({"other": {"groups": {}}}))
    fleet.connect("A", "B")
    client = fleet["A"].client()
    fleet.settle()
    assert client.is_closed_by_router
    assert fleet["A"].host is not None
    assert fleet["A"].host.own_links == {"B": 1}


def test_an_address_has_a_way_here_before_others_hear_of_it() -> None:
    """network 45: also while a router has other work to do, which it does in turns"""
    fleet = Fleet("A", "B", "C", is_sliced=True)
    fleet.connect("A", "B")
    fleet.connect("B", "C")
    fleet.settle()
    fleet["C"].client().receiver("a", credit=1000, accepts=True)
    sender = fleet["A"].client().sender("a")
    fleet.pump()
    host = fleet["B"].host
    assert host is not None
    held: list[Any] = []
    fleet["B"].work.later = held.append  # what B puts off, it has no time for
    host._carry_out([AddressesChanged(router="A", mapped=tuple((f"M0{n}", 3) for n in range(1000)), unmapped=())])
    for net in fleet.nets.values():
        assert net.host is not None
        net.host.on_second(net.now)
    fleet.pump()
    sending = sender.send()
    fleet.pump()
    assert sending.outcome is None
    fleet["B"].work.later = fleet["B"].remainders.append
    fleet["B"].remainders.extend(held)
    fleet.pump()
    assert sending.outcome == ACCEPTED
    fleet.no_errors()


def test_bytes_that_are_no_section_are_refused_to_a_neighbour_that_names_no_address(
    net: Net, neighbour: FakeNeighbour
) -> None:
    """routing 95 (§10.5): their way can be in their annotations alone; twice, for those are known then"""
    receiver = net.client().receiver("a", credit=10, accepts=True)
    net.pump()
    outcomes: list[int | None] = []
    for own in ({}, {"x-opt-qd.ingress": "0/TEST"}, {"x-opt-qd.to": "a"}):
        section = b"\x00\x53\x72" + encode({sym(key): value for key, value in own.items()})
        sendings = [neighbour.data_out.send_bytes(section + b"0123456789") for _ in range(2)]
        net.pump()
        outcomes += [sending.outcome for sending in sendings]
    assert outcomes == [REJECTED, REJECTED, REJECTED, REJECTED, ACCEPTED, ACCEPTED]
    assert [bytes(item.payload) for item in receiver.complete] == [b"0123456789"] * 2
