"""Dynamic termini whose node a container makes: a link route is looked up by the address in their properties.

Sources: docs/spec/routing.md §5.4, §15.3; docs/spec/policy-and-auth.md §3.7, §3.8.
"""

from typing import Any

import pytest
from memory_net import Client, Fleet, Net, Receiver, Sender, Vhosts, ruleset_of
from proton import symbol

from policy.addressing.patterns import configured_tokens
from router.connection.auto_links import Place
from router.connection.link_routes import LinkRoute, key_of

BROKER = Place(kind="container", text="broker")
KEY = "x-opt-qd.address"


def link_routes(net: Net, prefix: str | None = "q", *, pattern: str | None = None, **terms: Any) -> None:
    """One in each direction, to the broker."""
    tokens = configured_tokens(prefix if pattern is None else None, pattern)
    for direction in ("send", "receive"):
        key = key_of(tokens, pattern or prefix or "", is_in=direction == "send")
        names = {"place": BROKER, "name": f"{key[1:]}-{direction}", **terms}
        route = LinkRoute(pattern="/".join(tokens), direction=direction, key=key, **names)
        net.surroundings.link_routes.add(route)


def broker(net: Net) -> Client:
    made = net.client("broker", role="route-container", policy_vhost="brokers")
    made.made_address = "made.1"
    return made


def served(**options: Any) -> tuple[Net, Client]:
    net = Net(**options)
    link_routes(net)
    container = broker(net)
    net.pump()
    return net, container


def dynamic(client: Client, kind: str, properties: dict[Any, Any] | None) -> Sender | Receiver:
    """A link whose node the other side is to make."""
    terminus: dict[str, Any] = {"dynamic": True}
    if properties is not None:
        terminus["properties"] = properties
    return client.sender(None, target=terminus) if kind == "sender" else client.receiver(None, source=terminus)


def routed(client: Client, kind: str, address: str) -> Sender | Receiver:
    return dynamic(client, kind, {symbol(KEY): address})


def made_for(end: Sender | Receiver) -> Any:
    """The terminus that is not the client's own, as it was answered."""
    return end.link.remote_target if isinstance(end, Sender) else end.link.remote_source


def asked_of(container: Client) -> tuple[Any, dict[Any, Any]]:
    """The same terminus in the last Attach that the container got, and its properties."""
    link = container.attached_by_router[-1].link
    terminus = link.remote_target if link.is_receiver else link.remote_source
    terminus.properties.rewind()
    assert terminus.properties.next() is not None
    return terminus, terminus.properties.get_dict()


KINDS = pytest.mark.parametrize("kind", ["sender", "receiver"])


@KINDS
def test_the_container_of_the_link_route_makes_the_node(kind: str) -> None:
    """routing 121: what the client wrote reaches it whole, and its address the client."""
    net, container = served()
    end = dynamic(net.client(), kind, {symbol(KEY): "q.x", symbol("lifetime-policy"): "mine"})
    net.pump()
    terminus, properties = asked_of(container)
    assert (terminus.dynamic, terminus.address) == (True, None)
    assert properties == {symbol(KEY): "q.x", symbol("lifetime-policy"): "mine"}
    assert (made_for(end).dynamic, made_for(end).address) == (True, "made.1")
    other = container.attached_by_router[-1]
    sender, receiver = (end, other) if isinstance(end, Sender) else (other, end)
    assert isinstance(sender, Sender)
    assert isinstance(receiver, Receiver)
    receiver.flow(10)
    net.pump()
    sender.send(b"by the node")
    net.pump()
    assert receiver.bodies == [b"by the node"]
    net.no_errors()
    net.nothing_left()


@KINDS
@pytest.mark.parametrize("address", ["other", "_topo/0/QDR/x", "_local/x", "$management", "_$temp.abcdefghijklmno"])
def test_without_a_link_route_it_is_refused(kind: str, address: str) -> None:
    """routing 121: the router makes no address in its place."""
    net, container = served()
    end = routed(net.client(), kind, address)
    net.pump()
    assert (end.refusal.name, end.refusal.description) == (
        "qd:no-route-to-dest", "No route to the destination node",
    )  # fmt: skip
    assert made_for(end).address is None
    assert container.attached_by_router == []
    assert not [key for key in net.core.table.addresses if "temp" in key]
    net.no_errors()


@KINDS
def test_without_a_container_it_is_refused(kind: str) -> None:
    """routing 121"""
    net = Net()
    link_routes(net)
    end = routed(net.client(), kind, "q")
    net.pump()
    assert end.refusal.name == "qd:no-route-to-dest"
    net.no_errors()


@KINDS
@pytest.mark.parametrize(
    "properties",
    [
        None,
        {},
        {KEY: "q"},
        {symbol(KEY): symbol("q")},
        {symbol(KEY): b"q"},
        {symbol("lifetime-policy"): "mine", symbol(KEY): "q"},
    ],
)
def test_any_other_dynamic_terminus_is_the_routers(kind: str, properties: dict[Any, Any] | None) -> None:
    """routing 121: whatever link routes there are."""
    net, container = served()
    link_routes(net, pattern="#")
    end = dynamic(net.client(), kind, properties)
    net.pump()
    assert "temp." in made_for(end).address
    assert container.attached_by_router == []
    net.no_errors()


@KINDS
def test_properties_with_the_address_twice_say_nothing(kind: str) -> None:
    """Attack: one of them is judged, and the next router looks up the other."""
    net, container = served(vhosts=vhosts())
    link_routes(net, "secret")
    client = net.client()
    link: Any = client.session.sender("twice") if kind == "sender" else client.session.receiver("twice")
    terminus = link.target if kind == "sender" else link.source
    terminus.dynamic = True
    properties = terminus.properties
    properties.put_map()
    properties.enter()
    for address in ("q.x", "secret.x"):
        properties.put_symbol(symbol(KEY))
        properties.put_string(address)
    properties.exit()
    link.open()
    net.pump()
    assert container.attached_by_router == []
    assert not client.is_closed_by_router
    answered = link.remote_target if kind == "sender" else link.remote_source
    assert "temp." in answered.address
    net.no_errors()


@KINDS
def test_an_address_that_is_none_is_refused(kind: str) -> None:
    """routing 121: as one of an ordinary terminus is"""
    net, container = served()
    end = routed(net.client(), kind, "")
    net.pump()
    assert end.refusal.name == "amqp:invalid-field"
    assert container.attached_by_router == []


@KINDS
def test_prefixes_are_those_of_the_address_that_was_made(kind: str) -> None:
    """routing 121: so the client reaches the node by it. The address in the properties only finds the route."""
    net = Net()
    link_routes(net, "front", add="back.", remove="front.")
    container = broker(net)
    net.pump()
    end = routed(net.client(), kind, "front.x")
    net.pump()
    assert asked_of(container)[1] == {symbol(KEY): "front.x"}
    assert made_for(end).address == "made.1"
    container.made_address = "back.made.2"
    second = routed(net.client(), kind, "front.x")
    net.pump()
    assert made_for(second).address == "front.made.2"


# Over routers


@KINDS
@pytest.mark.parametrize("edges", [(), ("E",)])
def test_it_goes_on_to_the_router_that_has_the_container(kind: str, edges: tuple[str, ...]) -> None:
    """routing 121: over an interior router, and from an edge, whose interior is asked."""
    fleet = Fleet("A", "B", edges=edges)
    fleet.connect("A", "B")
    for edge in edges:
        fleet.connect(edge, "A", role="edge")
    link_routes(fleet["B"])
    container = broker(fleet["B"])
    fleet.settle()
    client = fleet[edges[0] if edges else "A"].client()
    end, nowhere = routed(client, kind, "q.x"), routed(client, kind, "other")
    own = dynamic(client, kind, None)
    fleet.pump()
    assert made_for(end).address == "made.1"
    assert asked_of(container)[1] == {symbol(KEY): "q.x"}
    assert len(container.attached_by_router) == 1
    assert nowhere.refusal.name == "qd:no-route-to-dest"
    assert "temp." in made_for(own).address
    fleet.no_errors()


@KINDS
def test_it_stays_in_its_tenants_space_on_every_router(kind: str) -> None:
    """routing 121. Attack: a tenant names the queue of another, which the next router would look up as it stands."""
    fleet = Fleet("A", "B")
    fleet.connect("A", "B")
    for prefix in ("q", "blue/q"):
        link_routes(fleet["B"], prefix)
    container = broker(fleet["B"])
    fleet.settle()
    red = fleet["A"].client(is_multi_tenant=True, hostname="red")
    blue = fleet["A"].client(is_multi_tenant=True, hostname="blue")
    strangers = [routed(red, kind, text) for text in ("q.x", "blue/q.x", "/blue/q.x", "amqp:/blue/q.x")]
    end = dynamic(blue, kind, {symbol(KEY): "q.x", symbol("lifetime-policy"): "mine"})
    container.made_address = "blue/made"
    fleet.pump()
    assert [each.refusal.name for each in strangers] == ["qd:no-route-to-dest"] * 4
    assert len(container.attached_by_router) == 1
    assert asked_of(container)[1] == {symbol(KEY): "blue/q.x", symbol("lifetime-policy"): "mine"}
    assert made_for(end).address == "made"
    fleet.no_errors()


# Policy


def vhosts(**group: Any) -> Vhosts:
    """`brokers` is the vhost of the container."""
    users = {"remoteHosts": "*", "sources": "q.*", "targets": "q.*", "allowDynamicSource": True,
             "allowAnonymousSender": True, **group}  # fmt: skip
    everything = {"remoteHosts": "*", "sources": "*", "targets": "*"}
    return Vhosts(
        {
            "$default": {"allowUnknownUser": True, "groups": {"$default": users}},
            "brokers": {"allowUnknownUser": True, "groups": {"$default": everything}},
        },
        policy={"enableVhostPolicy": True, "defaultVhost": "$default"},
    )


def change(net: Net, client: Client, rules: Vhosts) -> None:
    """Put other rules in force, and decide the client's links again."""
    net.gate.ruleset = ruleset_of(rules)
    net.gate.begin_epoch("policy_change", lambda _connection: True, int(net.wall_s))
    for _ in client.router.redecide():
        pass
    net.gate.end_epoch()
    net.work.finish()
    net.pump()


@KINDS
def test_its_address_is_judged_as_that_of_a_link(kind: str) -> None:
    """Attack: a client that may have dynamic nodes has one made at a container whose addresses it may not use."""
    net, container = served(vhosts=vhosts())
    link_routes(net, "secret")
    client = net.client()
    allowed, denied = routed(client, kind, "q.x"), routed(client, kind, "secret.x")
    net.pump()
    assert made_for(allowed).address == "made.1"
    assert denied.refusal.name == "amqp:unauthorized-access"
    assert len(container.attached_by_router) == 1
    (event,) = [event for event in net.audits if event["decision"] == "deny"]
    listed = "target" if kind == "sender" else "source"
    assert (event["reason"], event["address"]) == (f"{listed}_not_allowed", "secret.x")


def test_a_receiver_needs_the_right_to_dynamic_sources_too() -> None:
    """routing 121: as with 1.20, by policy §3.8; also when the rules change"""
    net, container = served(vhosts=vhosts())
    client = net.client()
    before, sender = routed(client, "receiver", "q.x"), routed(client, "sender", "q.x")
    net.pump()
    change(net, client, vhosts(allowDynamicSource=False))
    after = routed(client, "receiver", "q.x")
    net.pump()
    for end in (before, after):
        assert end.refusal.name == "amqp:unauthorized-access"
    assert not sender.is_detached
    assert [event["reason"] for event in net.audits if event["decision"] == "deny"] == ["dynamic_source"] * 2
    assert len(container.attached_by_router) == 2
    net.no_errors()


@KINDS
def test_it_is_judged_again_by_its_address_when_the_rules_change(kind: str) -> None:
    net, container = served(vhosts=vhosts())
    client = net.client()
    kept, ended, own = routed(client, kind, "q.x"), routed(client, kind, "q.y"), dynamic(client, kind, None)
    net.pump()
    assert len(container.attached_by_router) == 2
    change(net, client, vhosts(sources="q.x", targets="q.x"))
    assert [end.is_detached for end in (kept, ended, own)] == [False, True, False]
    assert ended.refusal.name == "amqp:unauthorized-access"
    net.no_errors()
