"""What a neighbour can do that lies: it costs reachability to what it claims, and nothing more.

R2 is honest and on link 1, with R3 behind it. The liar is R6, on link 2.
"""

import pytest
from one_router import OneRouter

from router.linkstate.limits import Limits

LIAR = 2


def threatened(**limits: int) -> OneRouter:
    router = OneRouter(Limits(**limits), hello_max_age_s=1000)
    router.neighbour("R2", 1)
    router.neighbour("R6", LIAR)
    router.lsu("R2", 2, {"R1": 1, "R3": 1})
    router.tick()
    router.lsu("R3", 1, {"R2": 1})
    router.ra("R2", 2, 0)
    router.ra("R3", 1, 0, instance=100)
    router.mau("R2", 1, exist=["M0a"], hints=[3])
    router.mau("R3", 1, exist=["M0b"], hints=[3])
    router.tick()
    router.forget()
    return router


def honest(router: OneRouter) -> dict[str, int]:
    return {name: path for name, path in router.reached().items() if name in ("R2", "R3")}


def test_one_link_has_one_router() -> None:
    """Attack: one neighbour that says to be a hundred."""
    router = threatened()
    for index in range(10, 120):
        router.hello(f"R{index}", LIAR)
    router.hello("R2", LIAR)
    router.tick()
    assert router.of("HELLO")[-1].body["seen"] == ["R2", "R6"]
    assert router.machine.peers() == {"R2": 1, "R6": 1}


def test_only_the_admitted_router_speaks_on_a_link() -> None:
    router = OneRouter()
    router.link(1, admitted_id="R2")
    router.hello("R3")
    assert not router.rows
    router.hello("R2")
    assert router.reached() == {"R2": 1}


def test_another_router_than_the_admitted_one_is_told_of_once() -> None:
    """Attack: a router that joined under its own id and then speaks as others; log lines without end."""
    router = OneRouter()
    router.link(1, admitted_id="R2")
    for index in range(3, 50):
        router.hello(f"R{index}")
        router.tick()
    told = [text for module, level, text in router.logs if (module, level) == ("ROUTER_HELLO", "error")]
    assert told == ["HELLO of 'R3' on link_tag=1, admitted as 'R2': ignored"]
    assert router.of("HELLO")[-1].body["seen"] == []
    router.hello("R2")
    assert router.reached() == {"R2": 1}


def test_a_new_link_that_claims_a_neighbour_does_not_get_it() -> None:
    """While the neighbour's own link is as cheap and lives."""
    router = threatened()
    router.link(3)
    for _ in range(3):
        router.hello("R2", 3, instance=100)
        router.hello("R2", 1, instance=100)
        router.tick()
    assert router.rows["R2"].link == 1
    assert not router.changes


def test_invented_routers_keep_nobody_else_out() -> None:
    """Attack: the table has room for 127 others."""
    router = threatened()
    for start in range(0, 300, 100):
        router.lsu("R6", 10 + start, {"R1": 1, **{f"X{index}": 1 for index in range(start, start + 100)}}, LIAR)
    for index in range(300):
        router.ra(f"Y{index}", 1, 1, tag=LIAR)
    router.tick()
    assert len(router.rows) >= 127
    assert honest(router) == {"R2": 1, "R3": 1}
    router.lsu("R3", 2, {"R2": 1, "R4": 1, "R5": 1}, 1)
    router.link(3)
    router.hello("R7", 3)
    router.tick()
    assert {name: router.reached()[name] for name in ("R4", "R5", "R7")} == {"R4": 1, "R5": 1, "R7": 3}
    errors = router.texts("ROUTER", level="error")
    assert "Exception in control message processing\nExceeded Maximum Router Count" in errors
    assert len(errors) <= 2 * Limits().complaints_per_link_and_tick


def test_a_forged_sequence_is_not_for_ever() -> None:
    """Attack: an update in another router's name that no update of its own is newer than."""
    router = threatened()
    router.lsu("R3", 2**62, {"R6": 1}, LIAR)
    router.mau("R3", 2**62, LIAR, exist=["M0fake"], hints=[3])
    router.tick()
    router.ra("R3", 1, 1)
    router.ra("R3", 1, 1)
    assert [sent.to for sent in router.sent if sent.opcode == "LSR"] == ["amqp:/_topo/0/R3/qdrouter"]
    router.tick()
    assert [sent.to for sent in router.of("MAR")] == ["amqp:/_topo/0/R3/qdrouter.ma"]
    router.lsu("R3", 1, {"R2": 1})
    router.mau("R3", 1, exist=["M0b"], hints=[3])
    router.tick()
    assert honest(router) == {"R2": 1, "R3": 1}
    assert router.rows["R3"].link_state == ("R2",)
    assert router.changes[-1].unmapped == ("M0fake",)


def test_another_router_cannot_restart_a_neighbour() -> None:
    """Attack: an advertisement with another instance, which would cost the neighbour its addresses."""
    router = threatened()
    router.ra("R2", 9, 9, instance=7, tag=LIAR)
    assert not router.changes
    assert router.floods == []
    assert not router.texts("ROUTER", level="info")
    router.ra("R2", 2, 1, instance=7, tag=1)
    assert router.changes[0].unmapped == ("M0a",)


def test_addresses_without_end() -> None:
    """Attack: they cost those alone that came by the same link."""
    router = threatened(addresses_per_router=50, addresses_per_link=80, address_characters=64)
    router.mau("R6", 1, LIAR, exist=[f"M0x{index}" for index in range(200)])
    assert len(router.mapped()) == 50
    assert router.texts("ROUTER_MA", level="warning") == ["No room for all addresses of router R6"]
    router.ra("X1", 1, 1, tag=LIAR)
    router.mau("X1", 1, LIAR, exist=[f"M0y{index}" for index in range(200)])
    assert len(router.mapped()) == 80
    router.mau("R3", 2, 1, add=[f"M0z{index}" for index in range(40)], del_=[])
    assert len(router.mapped()) == 120


def test_addresses_that_found_no_room_come_when_there_is() -> None:
    router = threatened(addresses_per_router=3)
    router.mau("R6", 1, LIAR, exist=["M0a", "M0b", "M0c", "M0d"])
    router.forget()
    router.mau("R6", 2, LIAR, add=[], del_=["M0a", "M0b"])
    router.tick()
    (request,) = router.of("MAR")
    assert request.body["have_seq"] == 0
    router.mau("R6", 2, LIAR, exist=["M0c", "M0d"])
    assert router.mapped() == [("M0d", None)]
    assert not router.texts("ROUTER_MA", level="warning")


def test_long_addresses_count_by_their_length() -> None:
    router = threatened(address_characters=1000, address_bytes_per_link=2500)
    router.mau("R6", 1, LIAR, exist=[f"M0{index}{'x' * 900}" for index in range(5)] + ["M0" + "x" * 999])
    assert len(router.mapped()) == 2


@pytest.mark.parametrize("key", ["", "M", "M0", "Mxa", "Lqdhello", "Tqdrouter", "RR2", "A1", "x"])
def test_what_is_no_mobile_address_is_not_mapped(key: str) -> None:
    """Attack: the router's own and its control addresses."""
    router = threatened()
    router.mau("R6", 1, LIAR, exist=[key, "M0ok"], hints=[3, 2])
    assert router.mapped() == [("M0ok", 2)]


def test_a_flood_of_messages_stops_at_its_link() -> None:
    router = threatened(messages_per_link_and_tick=100)
    for index in range(1000):
        router.ra("R6", 1, index, tag=LIAR)
    assert router.texts("ROUTER", level="warning") == [
        "Control messages are dropped until the next second: more than 100 on link_tag=2"
    ]
    assert len(router.floods) <= Limits().floods_per_router_and_tick
    router.forget()
    router.ra("R3", 2, 1)
    assert router.opcodes() == ["LSR"]
    router.tick()
    router.forget()
    router.ra("R6", 7, tag=LIAR)
    assert router.opcodes() == ["LSR"]


def test_complaints_have_an_end() -> None:
    """Attack: a log that is full of malformed messages, and large ones."""
    router = threatened()
    for _ in range(100):
        router.hear("RA", {"id": "R6", "ls_seq": "x" * 100_000, "list": [["y" * 1000] * 1000] * 1000}, LIAR)
    lines = router.texts("ROUTER", level="error")
    assert len(lines) == 2 * Limits().complaints_per_link_and_tick
    assert max(map(len, lines)) < 2000


def test_requests_in_anothers_name_are_answered_a_few_times() -> None:
    """Attack: a small request, a large answer to somebody else."""
    router = threatened()
    router.appear("M0x")
    router.tick()
    router.forget()
    for _ in range(100):
        router.hear("LSR", {"id": "R3"}, LIAR)
        router.hear("MAR", {"id": "R3", "have_seq": 0}, LIAR)
    limits = Limits()
    assert len(router.of("LSU")) == limits.link_state_answers_per_router_and_tick
    assert len(router.of("MAU")) == limits.address_answers_per_router_and_tick


def test_advertisements_ask_a_few_times() -> None:
    router = threatened()
    for index in range(100):
        router.ra("R3", 100 + index, tag=LIAR)
    assert len(router.of("LSR")) == Limits().link_state_requests_per_router_and_tick


def test_a_copy_is_not_forwarded_twice() -> None:
    """Attack, and any network with more than one way: copies multiply with every way there is."""
    router = threatened()
    router.neighbour("R7", 3)
    router.neighbour("R8", 4)
    router.ra("R3", 5, 1, tag=1, trace=("R3", "R2"))
    router.ra("R3", 5, 1, tag=LIAR, trace=("R3", "R6"))
    assert [flood.links for flood in router.floods] == [(2, 3, 4), (1,)]
    router.ra("R3", 5, 1, tag=3, trace=("R3", "R2", "R7"))
    assert len(router.floods) == 2


def test_a_trace_that_names_others_only_delays() -> None:
    """Attack: a message is carried on first, with a trace that keeps others from getting it."""
    router = threatened()
    router.neighbour("R7", 3)
    router.ra("R3", 5, 1, tag=LIAR, trace=("R3", "R7", "R2", "R6"))
    assert router.floods == []
    router.ra("R3", 5, 1, tag=1, trace=("R3", "R2"))
    assert [flood.links for flood in router.floods] == [(2, 3)]


def test_what_is_malformed_or_unknown_is_not_forwarded() -> None:
    router = threatened()
    router.hear("RA", {"id": "R6", "ls_seq": 1}, LIAR, trace=("R6",))
    router.hear("NEWS", {"id": "R6"}, LIAR, "Tqdrouter", trace=("R6",))
    router.hear("MAU", {"id": "R6", "mobile_seq": 2, "add": 1}, LIAR, "Tqdrouter.ma", trace=("R6",))
    assert router.floods == []


def test_a_message_on_a_link_that_is_not_up_changes_nothing() -> None:
    router = threatened()
    router.lose(LIAR)
    router.forget()
    router.hello("R9", LIAR)
    router.ra("R9", 1, 1, tag=LIAR)
    assert router.effects == []


def test_ids_of_later_versions_fill_no_log() -> None:
    router = threatened()
    for index in range(2000):
        router.hear("RA", {"id": f"Z{index}", "pv": 2}, LIAR)
    assert len(router.texts("ROUTER", level="warning")) <= 257


def test_an_id_does_not_choose_the_address_of_an_answer() -> None:
    """Attack: an answer that goes to another address of a router, or to all of them; an id that begins a log line."""
    router = threatened()
    for name in ("R3/x", "all", "R3\nforged line"):
        router.hear("LSR", {"id": name}, LIAR)
        router.ra(name, 5, 5, tag=LIAR)
    router.tick()
    assert [sent for sent in router.sent if sent.opcode in ("LSR", "LSU")] == []
    assert router.rows.keys() == {"R2", "R3", "R6"}


def test_what_it_says_of_itself_is_its_own_affair() -> None:
    router = threatened()
    router.lsu("R6", 2**63 - 1, {"R6": 1, "R1": 1, "X1": 2**31 - 1}, LIAR)
    router.ra("R6", 2**63 - 1, 2**63 - 1, tag=LIAR)
    router.tick()
    assert honest(router) == {"R2": 1, "R3": 1}
    assert not any(change.unmapped for change in router.changes)


@pytest.mark.parametrize("instance", [2**63, 2**64 - 1])
def test_an_instance_that_no_answer_can_carry_is_malformed(instance: int) -> None:
    """Attack: router.node could not be read any more, on every router that the advertisement came to."""
    router = threatened()
    router.hear("HELLO", {"id": "R6", "instance": instance, "seen": ["R1"]}, LIAR, "Lqdhello")
    router.ra("R6", 9, 9, tag=LIAR, instance=instance)
    router.lsu("R6", 9, {"R1": 1}, LIAR, instance=instance)
    router.tick()
    assert router.rows["R6"].instance != instance
    assert router.floods == []
    assert "instance is beyond 2^63" in "".join(router.texts("ROUTER", level="error"))
