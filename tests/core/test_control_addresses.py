"""The routing protocol's own addresses as clients and management see them."""

import pytest
from memory_net import RELEASED, Fleet

from router.core.control_addresses import CONTROL_KEYS
from router.core.remotes import ControlOutLink
from router.core.views import address_row, link_row

CAPACITY = 250


def pair() -> Fleet:
    fleet = Fleet("A", "B")
    fleet.connect("A", "B")
    fleet.settle()
    return fleet


@pytest.mark.parametrize(
    "address",
    [
        "_local/qdhello",
        "_local/qdrouter",
        "_local/qdrouter.ma",
        "_topo/0/all/qdrouter",
        "_topo/0/all/qdrouter.ma",
        "_topo/0/A/qdrouter",
        "_topo/0/B/qdrouter",
    ],
)
@pytest.mark.parametrize("body", [b"x", b"x" * 300_000], ids=["small", "streamed"])
def test_what_a_client_sends_there_is_released_and_its_credit_comes_back(address: str, body: bytes) -> None:
    """network 72"""
    fleet = pair()
    receiver = fleet["A"].client().receiver(address, credit=100) if "/B/" not in address else None
    sender = fleet["A"].client().sender(address)
    fleet.pump()
    assert sender.credit == CAPACITY
    for _ in range(3):
        sender.send(body)
        fleet.pump()
    assert sender.outcomes == [RELEASED] * 3
    assert sender.credit == CAPACITY
    if receiver is not None:
        sender.send(body, is_settled=True)
        fleet.pump()
        assert sender.credit == CAPACITY
        assert not receiver.complete


def test_management_lists_them() -> None:
    """network §2.3, §16.2"""
    fleet = pair()
    addresses = fleet["A"].core.table.addresses
    rows = {key: address_row(addresses[key]) for key in CONTROL_KEYS}
    columns = ("distribution", "inProcess", "subscriberCount", "remoteCount", "remoteHostRouters")
    assert {key: tuple(row[name] for name in columns) for key, row in rows.items()} == {
        "Lqdhello": ("flood", 1, 1, 0, []),
        "Lqdrouter": ("flood", 1, 0, 0, []),
        "Tqdrouter": ("flood", 1, 0, 1, ["B"]),
        "Lqdrouter.ma": ("multicast", 1, 0, 0, []),
        "Tqdrouter.ma": ("multicast", 1, 0, 1, ["B"]),
    }


def test_they_are_there_before_and_after_a_neighbour() -> None:
    fleet = pair()
    network = fleet["A"].core.network
    assert network is not None
    (trunk,) = network.trunks.values()
    network.disconnect(trunk)
    network.drop_router("B")
    rows = [address_row(fleet["A"].core.table.addresses[key]) for key in CONTROL_KEYS]
    assert [(row["subscriberCount"], row["remoteCount"]) for row in rows] == [(0, 0)] * len(CONTROL_KEYS)


def test_a_control_link_shows_the_address_of_hello() -> None:
    """network §4.5"""
    links = pair()["A"].core.links.values()
    assert [link_row(link)["owningAddr"] for link in links if isinstance(link, ControlOutLink)] == ["Lqdhello"]


def test_links_between_routers_have_no_ingress_histogram() -> None:
    """routing 129"""
    fleet = pair()
    fleet["A"].client().receiver("a", credit=1)
    fleet.pump()
    rows = [link_row(link) for link in fleet["A"].core.links.values()]
    assert [row["linkType"] for row in rows if row["ingressHistogram"] is not None] == ["endpoint"]
