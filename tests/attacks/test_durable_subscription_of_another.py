"""Attack: a client takes the container id and the link name of another client, and gets its durable subscription.

At the broker the subscription had the name `LINK@CONTAINER`. While the other client is connected, the refusal reveals
that such a subscription exists.
"""

from typing import Any

import pytest
from memory_net import Client, Fleet, Net
from memory_net.containers import broker
from proton import Terminus

from auth.identity import Identity
from policy.addressing.patterns import configured_tokens
from router.connection.auto_links import Place
from router.connection.link_routes import LinkRoute, key_of

DURABLE: dict[str, Any] = {
    "address": "q.x",
    "durability": Terminus.DELIVERIES,
    "expiry_policy": Terminus.EXPIRE_NEVER,
}


def served(net: Net, *prefixes: str) -> Client:
    for prefix in prefixes or ("q",):
        tokens = configured_tokens(prefix, None)
        for direction in ("send", "receive"):
            key = key_of(tokens, prefix, is_in=direction == "send")
            place = Place(kind="container", text="broker")
            route = LinkRoute(pattern="/".join(tokens), direction=direction, name=key, key=key, place=place)
            net.surroundings.link_routes.add(route)
    return broker(net)


def login(net: Net, user: str | None, container: str, **terms: Any) -> Client:
    client = net.client(container, **terms)
    net.pump()
    if user is not None:
        Net.peer(client).gate.identity = Identity(user=user, mechanism="PLAIN", is_authenticated=True)
    return client


def subscribed(net: Net, container: Client, client: Client, name: str = "sub", **source: Any) -> str | None:
    """The name of the subscription at the broker; None: the client has none."""
    before = len(container.attached_by_router)
    end = client.receiver(None, name=name, source={**DURABLE, **source})
    net.pump()
    if len(container.attached_by_router) == before:
        assert end.is_detached
        return None
    assert not end.is_detached
    return str(container.attached_by_router[-1].link.name)


@pytest.mark.parametrize("is_connected", [True, False])
def test_nobody_has_the_subscription_of_another_user(is_connected: bool) -> None:
    net = Net()
    container = served(net)
    alice = login(net, "alice", "c")
    hers = subscribed(net, container, alice)
    if not is_connected:
        alice.kill()
        net.pump()
    others = [
        subscribed(net, container, login(net, *who), name)
        for who, name in (
            (("bob", "c"), "sub"),
            ((None, "c"), "sub"),
            ((None, "c@alice"), "sub"),
            ((None, "alice"), "sub@c"),
            (("alice", "c2"), "sub"),
            (("bob", "c@alice"), "sub"),
            ((None, "alice"), "sub%40c"),
        )
    ]
    assert hers == "sub@c@alice"
    assert None not in others
    assert len({hers, *others}) == len(others) + 1


def test_a_subscription_stays_the_same_when_its_owner_comes_back() -> None:
    """By another router, too."""
    fleet = Fleet("A", "B")
    fleet.connect("A", "B")
    fleet.settle()
    container = served(fleet["B"])
    fleet.tick(2)
    names = []
    for router in ("A", "B", "A"):
        client = login(fleet[router], "alice", "c")
        client.receiver(None, name="sub", source=DURABLE)
        fleet.pump()
        names.append(container.attached_by_router[-1].link.name)
        client.kill()
        fleet.pump()
    assert names == ["sub@c@alice"] * 3


def test_tenants_are_told_apart() -> None:
    net = Net()
    container = served(net, "one/q", "two/q")
    names = {
        subscribed(net, container, login(net, user, "c", hostname=tenant, is_multi_tenant=True))
        for tenant in ("one", "two")
        for user in (None, "alice")
    }
    assert names == {"sub@c@@one", "sub@c@@two", "sub@c@alice@one", "sub@c@alice@two"}


def test_a_name_that_is_taken_gets_another() -> None:
    """Where nobody will ask for it again. What lasts is its owner's, whose other connection is not gone yet."""
    net = Net()
    container = served(net)
    clients = [login(net, None, "c") for _ in range(3)]
    passing = {"durability": Terminus.NONDURABLE, "expiry_policy": Terminus.EXPIRE_WITH_LINK}
    names = [subscribed(net, container, client, **passing) for client in clients]
    assert names[0] == "sub@c"
    assert len(set(names)) == 3
    assert None not in names
    lasting = login(net, "alice", "c")
    assert subscribed(net, container, lasting) == "sub@c@alice"
    assert subscribed(net, container, login(net, "alice", "c")) is None
    lasting.kill()
    net.pump()
    assert subscribed(net, container, login(net, "alice", "c")) == "sub@c@alice"


def test_clients_of_an_edge_are_told_apart() -> None:
    fleet = Fleet("A", edges=("E1",))
    fleet.connect("E1", "A", role="edge")
    container = served(fleet["A"])
    fleet.tick()
    names = []
    for user, link in (("alice", "sub"), ("bob", "sub"), (None, "sub"), (None, "sub@c@alice")):
        client = login(fleet["E1"], user, "c")
        client.receiver(None, name=link, source=DURABLE)
        fleet.pump()
        names.append(container.attached_by_router[-1].link.name)
        client.kill()
        fleet.pump()
    assert names == ["sub%40c%40alice@E1", "sub%40c%40bob@E1", "sub@E1", "sub%2540c%2540alice@E1"]
    fleet.no_errors()
