"""HELLO: who is heard, who becomes a neighbour and over which link, and when that ends."""

import pytest
from one_router import INSTANCE, OneRouter


def test_a_hello_goes_to_every_link_at_every_interval() -> None:
    router = OneRouter(hello_interval_s=2)
    router.link(3)
    router.link(5)
    router.tick(5)
    hellos = router.of("HELLO")
    assert len(hellos) == 3
    assert {(sent.to, sent.links) for sent in hellos} == {("amqp:/_local/qdhello", (3, 5))}
    assert hellos[0].body == {"id": "R1", "pv": 1, "area": "0", "instance": INSTANCE, "seen": []}
    assert f"SENT: HELLO(id=R1 pv=1 area=0 inst={INSTANCE} seen=[])" in router.texts("ROUTER_HELLO", level="trace")


def test_a_hello_of_a_later_version_is_not_heard() -> None:
    """network 19: with one warning for each router."""
    router = OneRouter()
    router.link(1)
    for _ in range(5):
        router.hear("HELLO", {"id": "TEST", "pv": 2, "seen": ["R1"]})
        router.tick()
    assert all(sent.body["seen"] == [] for sent in router.of("HELLO"))
    assert router.texts("ROUTER", level="warning") == ["Received HELLO at protocol version 2 from TEST.  Ignoring."]
    assert not router.rows


def test_a_hello_that_does_not_name_us_is_heard_and_makes_no_neighbour() -> None:
    """network 20"""
    router = OneRouter()
    router.link(1)
    router.hello(seen=["R3"])
    router.tick()
    assert router.of("HELLO")[-1].body["seen"] == ["R2"]
    assert router.machine.peers() == {}
    assert not router.rows


def test_a_hello_that_names_us_makes_a_neighbour() -> None:
    """network 21"""
    router = OneRouter()
    router.link(1, cost=3)
    router.tick()
    router.forget()
    router.hello()
    assert router.sent == []
    assert (router.rows["R2"].path, router.rows["R2"].link, router.rows["R2"].index) == (1, 1, 1)
    router.tick()
    assert router.opcodes() == ["HELLO", "LSR", "RA"]
    request, advertisement = router.sent[1:]
    assert (request.links, request.to) == ((1,), "amqp:/_topo/0/R2/qdrouter")
    assert request.body == {"id": "R1", "pv": 1, "area": "0"}
    assert (advertisement.links, advertisement.to) == ((1,), "amqp:/_topo/0/all/qdrouter")
    assert advertisement.body == {
        "id": "R1", "pv": 1, "area": "0", "instance": INSTANCE, "ls_seq": 1, "mobile_seq": 0
    }  # fmt: skip
    assert router.machine.peers() == {"R2": 3}
    assert "Node R2 created: maskbit=1" in router.texts("ROUTER", level="trace")
    assert "Node R2 link set: link_id=1" in router.texts("ROUTER", level="trace")


def test_who_says_no_hello_is_forgotten() -> None:
    """network 22: after helloMaxAge, three seconds."""
    router = OneRouter()
    router.link(1)
    router.hello(seen=[])
    router.tick(3)
    assert router.of("HELLO")[-1].body["seen"] == ["R2"]
    router.tick()
    assert router.of("HELLO")[-1].body["seen"] == []
    assert "HELLO peer expired: R2" in router.texts("ROUTER_HELLO", level="trace")


def test_a_neighbour_that_says_no_hello_is_none_any_more() -> None:
    """network 23: its link stays, and a HELLO makes it one again."""
    router = OneRouter()
    router.link(1)
    router.hello()
    router.tick(3)
    router.forget()
    assert router.reached() == {"R2": 1}
    router.tick()
    assert router.reached() == {}
    assert router.of("RA")[-1].body["ls_seq"] == 2
    assert router.machine.all_links() == (1,)
    assert "Node R2 link removed" in router.texts("ROUTER")
    router.hello()
    assert router.reached() == {"R2": 1}


def test_hellos_that_stop_naming_us_end_a_neighbour() -> None:
    router = OneRouter()
    router.link(1)
    router.hello()
    for _ in range(4):
        router.tick()
        router.hello(seen=[])
    assert router.machine.peers() == {}


def test_a_lost_link_ends_a_neighbour_at_once() -> None:
    """network 24"""
    router = OneRouter()
    router.neighbour("R2", 7)
    router.lose(7)
    assert router.texts("ROUTER_LS", level="info") == ["Link to Neighbor Router Lost - link_tag=7"]
    assert router.reached() == {}
    assert router.sent == []
    router.tick()
    assert [sent.body["ls_seq"] for sent in router.of("RA")] == [2]
    assert router.machine.peers() == {}


def test_our_own_id_on_another_router_is_told_once() -> None:
    """network 25: and that of a connection to ourselves never."""
    router = OneRouter()
    router.link(1)
    router.hello("R1", instance=INSTANCE)
    assert not router.logs or not router.texts("ROUTER_HELLO", level="critical")
    for _ in range(3):
        router.hello("R1", instance=5)
    assert router.texts("ROUTER_HELLO", level="critical") == ["Detected Neighbor Router with a Duplicate ID - R1"]
    router.tick()
    assert router.of("HELLO")[-1].body["seen"] == []
    assert not router.rows


def test_a_hello_without_seen_is_an_error_that_changes_nothing() -> None:
    """network 26"""
    router = OneRouter()
    router.link(1)
    router.hear("HELLO", {"id": "R2", "pv": 1})
    errors = router.texts("ROUTER", level="error")
    assert errors[0].splitlines() == ["Exception in control message processing", "seen is missing"]
    assert errors[1] == "Control message error: opcode=HELLO body={'id': 'R2', 'pv': 1}"
    assert {effect for effect in router.effects if not hasattr(effect, "text")} == set()
    router.hello()
    assert router.reached() == {"R2": 1}


@pytest.mark.parametrize("properties", [None, {}, {"opcode": 7}, [("opcode", "RA")]])
def test_a_message_without_opcode_is_an_error_that_changes_nothing(properties: object) -> None:
    from router.linkstate.machine import ReceivedControl

    router = OneRouter()
    router.link(1)
    received = ReceivedControl(link=1, key="Lqdrouter", properties=properties, body={"id": "R2"}, trace=())
    router.take(router.machine.receive(received, router.now))
    assert router.texts("ROUTER", level="error")[0] == "Exception in raw message processing"
    assert router.texts("ROUTER", level="error")[1].startswith("Exception in raw message processing: properties=")
    assert not router.rows


def test_the_cheapest_of_several_links_is_used_then_the_oldest() -> None:
    router = OneRouter()
    router.link(1, cost=5)
    router.link(2, cost=3)
    router.link(3, cost=3)
    for tag in (1, 3, 2, 1, 3):
        router.hello(tag=tag)
    assert router.reached() == {"R2": 2}
    assert router.machine.peers() == {"R2": 3}
    for tag in (1, 2, 3):
        router.hello(tag=tag)
    router.forget()
    router.tick()
    for tag in (3, 2, 1):
        router.hello(tag=tag)
    assert "link set" not in str(router.texts("ROUTER"))


def test_another_link_takes_over_at_once() -> None:
    router = OneRouter()
    router.link(1, cost=1)
    router.link(2, cost=4)
    router.hello(tag=1)
    router.hello(tag=2)
    router.tick()
    router.lose(1)
    assert router.reached() == {"R2": 2}
    assert router.machine.peers() == {"R2": 4}
    router.tick()
    assert router.of("RA")[-1].body["ls_seq"] == 2


def test_another_link_takes_over_from_one_that_fell_silent() -> None:
    router = OneRouter()
    router.link(1)
    router.link(2)
    router.hello(tag=1)
    for _ in range(4):
        router.hello(tag=2)
        router.tick()
    assert router.reached() == {"R2": 2}


def test_the_instance_of_a_neighbour_that_restarted() -> None:
    """network 35: by HELLO."""
    router = OneRouter()
    router.neighbour()
    router.mau("R2", 1, exist=["M0a"], hints=[3])
    router.forget()
    router.hello(instance=101)
    assert "Detected Restart of Router Node R2" in router.texts("ROUTER", level="info")
    assert [change.unmapped for change in router.changes] == [("M0a",)]
    router.tick()
    assert len(router.of("LSR")) == 1
    assert router.rows["R2"].instance == 101
