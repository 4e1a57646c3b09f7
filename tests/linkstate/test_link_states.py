"""RA, LSR and LSU: what routers say of their links, how long it counts, and what follows of it."""

import ast

from one_router import OneRouter


def advertised_at(router: OneRouter, seconds: int) -> list[int]:
    """The ticks of the next `seconds` at which the router advertised itself."""
    found = []
    for second in range(1, seconds + 1):
        before = len(router.of("RA"))
        for tag in router.machine.all_links():
            router.hello(f"R{tag + 1}", tag)
        router.tick()
        found += [second] * (len(router.of("RA")) - before)
    return found


def test_when_a_router_advertises_itself() -> None:
    """network 28"""
    assert advertised_at(OneRouter(), 70) == [1, 31, 61]
    router = OneRouter()
    router.tick()
    router.link(1)
    # The link changes at the first tick; the flux ends after eight seconds.
    assert advertised_at(router, 80) == [1, 5, 9, 39, 69]
    texts = router.texts("ROUTER", level="trace")
    assert [text for text in texts if "Flux" in text] == ["Entered Router Flux Mode", "Exited Router Flux Mode"]


def test_changes_are_advertised_at_once() -> None:
    """network 29: of links, and of addresses."""
    router = OneRouter()
    router.tick(3)
    router.link(1)
    router.hello()
    router.forget()
    router.tick()
    assert [sent.body["ls_seq"] for sent in router.of("RA")] == [1]
    router.appear("M0a")
    router.forget()
    router.tick()
    assert [sent.body["mobile_seq"] for sent in router.of("RA")] == [1]
    assert router.opcodes()[-2:] == ["MAU", "RA"]


def test_a_newer_advertisement_asks_and_a_request_is_answered() -> None:
    """network 31"""
    router = OneRouter()
    router.neighbour()
    router.ra("R2", ls_seq=2)
    assert [(sent.opcode, sent.links) for sent in router.sent] == [("LSR", (1,))]
    router.ra("R2", ls_seq=1)
    assert len(router.sent) == 1
    router.forget()
    router.hear("LSR", {"id": "R2", "pv": 1, "area": "0"})
    (answer,) = router.sent
    assert (answer.opcode, answer.to, answer.links) == ("LSU", "amqp:/_topo/0/R2/qdrouter", (1,))
    assert answer.body["ls_seq"] == 1
    assert answer.body["ls"] == {"id": "R1", "area": "0", "ls_seq": 1, "peers": {"R2": 1}}


def test_an_update_that_is_not_newer_is_ignored() -> None:
    """network 32"""
    router = OneRouter(hello_max_age_s=1000)
    router.neighbour()
    router.lsu("R2", 5, {"R1": 1, "R3": 1})
    router.tick()
    router.forget()
    for sequence in (5, 4, 1):
        router.lsu("R2", sequence, {"R1": 1, "R4": 1})
    router.tick()
    assert router.rows["R2"].link_state == ("R1", "R3")
    assert router.reached() == {"R2": 1, "R3": 1}
    assert "Computed costs" not in str(router.texts("ROUTER_LS"))


def test_who_is_named_is_asked_after_the_next_computation() -> None:
    """network 33"""
    router = OneRouter()
    router.neighbour()
    router.lsu("R2", 2, {"R1": 1, "R3": 1})
    assert router.sent == []
    router.tick()
    assert [(sent.to, sent.links) for sent in router.of("LSR")] == [("amqp:/_topo/0/R3/qdrouter", (1,))]
    assert router.rows["R3"].next_hop == "R2"


def test_an_advertisement_of_a_later_version_is_ignored() -> None:
    """network 34"""
    router = OneRouter()
    router.neighbour()
    for _ in range(2):
        router.hear("RA", {"id": "R9", "pv": 2, "ls_seq": 1, "mobile_seq": 1})
    assert router.texts("ROUTER", level="warning") == ["Received RA at protocol version 2 from R9.  Ignoring."]
    assert "R9" not in router.rows


def test_the_instance_of_a_router_that_restarted() -> None:
    """network 35: by RA."""
    router = OneRouter()
    router.neighbour()
    router.lsu("R2", 2, {"R1": 1, "R3": 1})
    router.tick()
    router.lsu("R3", 9, {"R2": 1}, instance=7)
    router.ra("R3", 9, 1, instance=7)
    router.mau("R3", 1, exist=["M0a"], hints=[3])
    router.forget()
    router.ra("R3", 1, 0, instance=8)
    assert "Detected Restart of Router Node R3" in router.texts("ROUTER", level="info")
    assert [change.unmapped for change in router.changes] == [("M0a",)]
    assert router.opcodes() == ["LSR"]
    router.lsu("R3", 1, {"R2": 1}, instance=8)
    router.tick()
    assert router.rows["R3"].link_state == ("R2",)


def test_a_restart_is_noticed_if_only_an_update_told_the_instance_before() -> None:
    """Attack and accident: a state that stays because the new instance counts as far as the old one did."""
    router = OneRouter()
    router.neighbour()
    router.lsu("R2", 2, {"R1": 1, "R3": 1})
    router.tick()
    router.lsu("R3", 1, {"R2": 1, "R4": 1}, instance=7)
    router.ra("R3", 1, 0, instance=8)
    router.lsu("R3", 1, {"R2": 1, "R4": 1}, instance=7)
    assert not router.rows["R3"].link_state
    router.lsu("R3", 1, {"R2": 1}, instance=8)
    assert router.rows["R3"].link_state == ("R2",)


def test_a_router_that_advertises_nothing_is_forgotten() -> None:
    """network 36: its link state after 60 s, itself three ticks later if nobody names it."""
    router = OneRouter(hello_max_age_s=1000)
    router.neighbour()
    router.lsu("R2", 2, {"R1": 1, "R3": 1})
    router.lsu("R3", 1, {"R2": 1})
    router.mau("R3", 1, exist=["M0a"], hints=[3])
    router.tick()
    router.lsu("R2", 3, {"R1": 1})
    router.tick()
    assert "R3" not in router.reached()
    for _ in range(58):
        router.ra("R2", 3)
        router.tick()
    assert router.rows["R3"].link_state == ("R2",)
    assert not any(change.unmapped for change in router.changes)
    gone: list[tuple[int, str]] = []
    for second in range(5):
        router.ra("R2", 3)
        router.forget()
        router.tick()
        assert not router.rows["R3"].link_state
        gone += [(second, text) for text in router.texts("ROUTER") if "R3" in text]
        if router.changes:
            assert router.changes[0].unmapped == ("M0a",)
    assert gone == [(2, "Remote destinations flushed from router R3"), (2, "Node R3 deleted")]


def test_our_own_messages_come_back_and_are_ignored() -> None:
    """network 37"""
    router = OneRouter()
    router.neighbour()
    router.ra("R1", 9, 9, instance=5, trace=("R1", "R2"))
    router.lsu("R1", 9, {"R2": 1})
    router.hear("LSR", {"id": "R1"})
    router.mau("R1", 9, exist=["M0a"], hints=[3])
    router.hear("MAR", {"id": "R1", "have_seq": 0})
    assert router.sent == []
    assert router.floods == []
    assert not router.changes
    assert "R1" not in router.rows


def test_four_lines_say_what_was_computed() -> None:
    """network 40"""
    router = OneRouter()
    router.neighbour()
    router.lsu("R2", 2, {"R1": 1, "R3": 3})
    router.tick()
    lines = router.texts("ROUTER_LS", level="info")
    assert [line.partition(":")[0] for line in lines] == [
        "Computed next hops",
        "Computed costs",
        "Computed valid origins",
        "Computed radius",
    ]
    maps = [ast.literal_eval(line[line.index("{") :]) for line in lines[:3]]
    assert maps == [{"R2": "R2", "R3": "R2"}, {"R2": 1, "R3": 4}, {"R2": [], "R3": []}]
    assert lines[3] == "Computed radius: 2"


def test_paths_change_within_a_second() -> None:
    """network 41: when a link comes or goes."""
    router = OneRouter()
    router.neighbour("R2", 1, cost=10)
    router.neighbour("R3", 2, cost=1)
    router.hello("R2", 1)
    router.lsu("R2", 2, {"R1": 10, "R3": 1}, 1)
    router.lsu("R3", 2, {"R1": 1, "R2": 1}, 2)
    router.tick()
    row = router.rows["R2"]
    assert (row.path, row.next_hop, row.cost, row.link) == (2, "R3", 2, 1)
    router.lose(2)
    router.tick()
    row = router.rows["R2"]
    assert (row.path, row.next_hop, row.cost) == (1, None, 10)
    assert router.rows["R3"].next_hop == "R2"


def test_a_router_that_cannot_be_reached_is_shown_as_it_was() -> None:
    router = OneRouter()
    router.neighbour()
    router.lsu("R2", 2, {"R1": 1, "R3": 1})
    router.tick()
    shown = router.rows["R3"]
    router.lose(1)
    router.tick()
    row = router.rows["R3"]
    assert row.path is None
    assert (row.next_hop, row.cost, row.valid_origins) == (shown.next_hop, shown.cost, shown.valid_origins)


def test_a_request_without_an_answer_is_repeated_a_few_times() -> None:
    """Which an answer that is lost on the way would else wait half a minute for."""
    router = OneRouter(hello_max_age_s=1000)
    router.link(1)
    router.hello()
    asked = []
    for second in range(40):
        router.forget()
        router.tick()
        asked += [second] * len(router.of("LSR"))
    assert asked == [0, 1, 3, 7, 15]


def test_a_request_is_answered_when_there_is_a_way() -> None:
    router = OneRouter()
    router.neighbour()
    router.hear("LSR", {"id": "R3"})
    assert router.sent == []
    router.lsu("R2", 2, {"R1": 1, "R3": 1})
    router.tick()
    assert [sent.to for sent in router.of("LSU")] == ["amqp:/_topo/0/R3/qdrouter"]
