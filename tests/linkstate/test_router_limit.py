"""A network of more routers than the protocol has room for. Source: docs/spec/network.md §1, §8."""

from one_router import OneRouter

FULL = "Exception in control message processing\nExceeded Maximum Router Count"


def in_network_of(count: int) -> OneRouter:
    """R1 with its neighbour R2, which has links with so many others: count routers in all."""
    router = OneRouter()
    router.link(1)
    router.hello()
    router.lsu("R2", 1, others(count))
    router.tick()
    return router


def others(count: int) -> dict[str, int]:
    return {"R1": 1, **{f"R{number}": 1 for number in range(3, count + 1)}}


def complaints(router: OneRouter) -> list[str]:
    return [text for _, level, text in router.logs if level == "error"]


def test_128_routers_have_their_place_and_no_129th_has() -> None:
    """network 108: R1 has index 0, the others have the rest."""
    router = in_network_of(128)
    assert sorted(row.index for row in router.rows.values()) == list(range(1, 128))
    assert all(row.cost is not None for row in router.rows.values())
    assert complaints(router) == []
    router.ra("R129", 1, 1)
    router.tick()
    assert "R129" not in router.rows
    assert complaints(router) == [FULL]


def test_the_others_stay_as_they_are() -> None:
    """network 108: what is told of the 129th changes no way to any other router."""
    router = in_network_of(128)
    before = dict(router.rows)
    router.lsu("R2", 2, others(129))
    router.lsu("R129", 1, {"R2": 1, "R3": 1})
    router.tick(2)
    known = {name: (row.index, row.cost, row.next_hop) for name, row in router.rows.items()}
    assert known == {name: (row.index, row.cost, row.next_hop) for name, row in before.items()}


def test_the_place_of_a_router_that_has_gone_is_the_next_ones() -> None:
    """network 108: nobody names R128 any more; R129 gets its index."""
    router = in_network_of(128)
    index = router.rows["R128"].index
    router.lsu("R2", 2, {name: cost for name, cost in others(129).items() if name != "R128"})
    for _ in range(8):
        router.hello()
        router.tick()
    router.ra("R129", 1, 1)
    router.tick()
    assert router.rows["R129"].index == index
