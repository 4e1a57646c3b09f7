"""Attack: a client, an edge or a neighbour makes the router route other clients' links to itself, or hold endless
links.

bob may receive and send only where his group's `sources` and `targets` permit. A link route of his connection takes the
links of other clients: he gets what they send, and they get what he sends. The claims are those of routing.md §16.
"""

from typing import Any

import pytest
from memory_net import ACCEPTED, Client, Fleet, Net, Vhosts, ruleset_of

from policy.addressing.patterns import configured_tokens
from router.connection import hosting, link_routes, routed_links
from router.connection.auto_links import Place
from router.connection.link_routes import LinkRoute, key_of
from router.connection.own_routes import CannotServe, OwnRoutes
from router.core.remotes import RemoteRouter

COMMON: dict[str, Any] = {
    "remoteHosts": "*",
    "maxSenders": 100,
    "maxReceivers": 100,
    "allowDynamicSource": True,
    "allowAnonymousSender": True,
}
ALICE: dict[str, Any] = {"sources": "*", "targets": "*"}
BOB: dict[str, Any] = {"sources": "bob, bob.*, bob/*", "targets": "bob, bob.*, bob/*"}


def rules(**groups: dict[str, Any]) -> Vhosts:
    return Vhosts(
        {
            name: {"allowUnknownUser": True, "groups": {"$default": {**COMMON, **group}}}
            for name, group in groups.items()
        }
    )


def house(**bob: Any) -> tuple[Net, Client, Client]:
    """A router, alice and bob."""
    net = Net(vhosts=rules(alice=ALICE, bob={**BOB, **bob}))
    clients = [net.client(name, hostname=name) for name in ("alice", "bob")]
    net.pump()
    return net, clients[0], clients[1]


def take(net: Net, client: Client, pattern: str, direction: Any = "send") -> str:
    """Returns the identity of the link route."""
    identity = str(net.core.next_identity())
    routes = OwnRoutes(net.surroundings.link_routes)
    routes.add(Net.peer(client), identity=identity, name=None, pattern=pattern, direction=direction)
    return identity


@pytest.mark.parametrize("direction", ["send", "receive"])
@pytest.mark.parametrize(
    "pattern",
    ["#", "*", "alice", "alice.#", "*.x", "#.bob", "bob*", "*/bob", "bob.#.#/x/#/y/#", "$coordinator", "$management"],
)
def test_bob_takes_what_is_not_his(pattern: str, direction: str) -> None:
    net, alice, bob = house()
    with pytest.raises(CannotServe, match="Forbidden") as error:
        take(net, bob, pattern, direction)
    assert error.value.is_denied
    sender = alice.sender("alice.x")
    net.pump()
    assert not bob.attached_by_router
    assert not sender.is_detached


def test_bob_takes_what_is_his() -> None:
    """And no more: alice reaches what else there is."""
    net, alice, bob = house()
    take(net, bob, "bob.#")
    his, other = alice.sender("bob.x"), alice.sender("bobby")
    net.pump()
    assert len(bob.attached_by_router) == 1
    his.send(b"m")
    net.pump()
    assert his.outcomes == [ACCEPTED]
    assert not other.is_detached


def test_bob_takes_what_is_denied_to_him() -> None:
    """Each attach is judged, by denials too."""
    net, alice, bob = house(denySources="bob.secret")
    take(net, bob, "bob.#")
    secret, other = alice.sender("bob.secret"), alice.sender("bob.other")
    net.pump()
    assert secret.is_attached
    assert other.is_attached
    assert len(bob.attached_by_router) == 1


def test_bob_takes_a_spelling_that_no_rule_of_his_has() -> None:
    net, _, bob = house(sources="bob, bob.*")  # not bob/*, which the pattern matches as well
    with pytest.raises(CannotServe, match="Forbidden"):
        take(net, bob, "bob.#")


def test_bob_may_make_no_link_routes() -> None:
    net, _, bob = house(allowDynamicLinkRoutes=False)
    with pytest.raises(CannotServe, match="Forbidden"):
        take(net, bob, "bob.#")


def test_bob_keeps_what_the_rules_gave_him_once() -> None:
    """When they change, so do his link routes; and no attach waits for that."""
    net, alice, bob = house()
    take(net, bob, "bob.#")
    net.gate.ruleset = ruleset_of(rules(alice=ALICE, bob={**BOB, "sources": "bob.y"}))
    net.gate.begin_epoch("policy_change", lambda _connection: True, 1.85e9)
    for _ in alice.router.redecide():
        pass
    sender = alice.sender("bob.x")
    net.pump()
    assert sender.is_attached
    assert not bob.attached_by_router
    for _ in bob.router.redecide():
        pass
    assert not Net.peer(bob).hosting.own
    assert "Cbob" not in net.core.table.addresses


def test_bob_attaches_before_the_rules_change_and_has_his_answer_after() -> None:
    """Attack: a container that takes its time, and a link that nobody judged by the rules in force."""
    net, alice, bob = house()
    take(net, alice, "bob.#")
    alice.stop_reading()
    sender = bob.sender("bob.x")
    net.pump()
    net.gate.ruleset = ruleset_of(rules(alice=ALICE, bob={**BOB, "targets": "bob.y"}))
    net.gate.begin_epoch("policy_change", lambda _connection: True, 1.85e9)
    for client in (alice, bob):
        for _ in client.router.redecide():
            pass
    net.work.finish()
    alice.resume_reading()
    net.pump()
    assert sender.refusal.name == "amqp:unauthorized-access"
    assert all(end.is_detached for end in alice.attached_by_router)
    net.no_errors()


def test_bob_takes_alices_temporary_queue() -> None:
    net, alice, bob = house(sources="*", targets="*")
    take(net, bob, "#")
    take(net, bob, "#", "receive")
    queue = alice.sender(None, target={"dynamic": True})
    net.pump()
    assert not queue.is_detached, queue.refusal
    address = queue.link.remote_target.address
    receiver = alice.receiver(address.removeprefix("amqp:/"), credit=1)
    net.pump()
    assert not bob.attached_by_router
    queue.send(b"alice's")
    net.pump()
    assert receiver.bodies == [b"alice's"]


def test_a_container_answers_no_attach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: it holds ever more half-open links of others. It gets no more, and the others the address itself."""
    monkeypatch.setattr(hosting, "MAX_UNANSWERED", 3)
    net, alice, bob = house()
    take(net, bob, "bob.#")
    bob.stop_reading()
    ends = [alice.sender("bob.x") for _ in range(3)]
    net.pump()
    for end in ends:
        end.close()  # the links at bob are half-open all the same
    net.pump()
    late = alice.sender("bob.x")
    net.pump()
    assert late.is_attached
    bob.resume_reading()
    net.pump()
    again = alice.sender("bob.x")
    net.pump()
    assert again.is_attached
    assert not again.is_detached


@pytest.mark.parametrize("channel_max", [0, 1])
def test_a_container_has_no_channel_for_the_links_of_others(channel_max: int) -> None:
    """Attack on oneself: its Open leaves no channel, and the session of the router cannot begin."""
    net = Net()
    bob = net.client("bob", opens=False)
    bob.transport.channel_max = channel_max
    bob.open()
    net.pump()
    take(net, bob, "bob.#")
    alice = net.client("alice")
    sender = alice.sender("bob.x")
    net.pump()
    assert sender.is_attached is bool(channel_max)
    assert not alice.router_closed
    again = alice.sender("plain")
    net.pump()
    assert not again.is_detached
    alice.close()
    net.pump()
    for client in net.clients:
        client.kill()
    net.pump()
    assert not net.core.links


def two(monkeypatch: pytest.MonkeyPatch, limit: int) -> tuple[Fleet, Client]:
    """A neighbour, and a container behind this router."""
    monkeypatch.setattr(routed_links, "MAX_ROUTED", limit)
    fleet = Fleet("A", "B")
    fleet.connect("A", "B")
    fleet.settle()
    tokens = configured_tokens("q", None)
    place = Place(kind="container", text="broker")
    route = LinkRoute(pattern="/".join(tokens), direction="send", name="q", key="Cq", place=place)
    fleet["B"].surroundings.link_routes.add(route)
    container = fleet["B"].client("broker", role="route-container")
    fleet.tick(2)
    return fleet, container


def test_a_neighbour_attaches_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """No policy counts its links; those of others go on."""
    fleet, container = two(monkeypatch, 3)
    ends = []
    for number in range(2):  # clients of A, each within the bound of its own connection
        client = fleet["A"].client(f"c{number}")
        ends += [client.sender("q") for _ in range(2)]
    fleet.pump()
    assert [end.is_detached for end in ends].count(True) == 1
    assert next(end.refusal.name for end in ends if end.is_detached) == "amqp:resource-limit-exceeded"
    assert len(container.attached_by_router) == 3
    local = fleet["B"].client().sender("q")
    fleet.pump()
    assert not local.is_detached
    fleet.no_errors()


def test_a_neighbour_claims_patterns_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it claims beyond the bound is not looked for; what it takes back leaves nothing behind."""
    monkeypatch.setattr(link_routes, "MAX_TOKENS_PER_ROUTER", 100)
    net = Net(router_id="A")
    routes, evil, other = (
        net.surroundings.link_routes,
        RemoteRouter(id="E", node="0/E"),
        RemoteRouter(id="O", node="0/O"),
    )
    keys = [f"E{number}/a/*/b" for number in range(100)] + ["C" + "x/" * 500, "D", "E#", "C.", "F//"]
    for key in keys:
        routes.mapped(evil, key)
    routes.mapped(other, "Cmine")
    assert sum(routes.find(f"{number}/a/x/b", "send") is not None for number in range(100)) == 20
    assert routes.find("mine.x", "send") is not None
    for key in keys:
        routes.unmapped(evil, key)
    routes.unmapped(other, "Cmine")
    assert routes.find("1/a/x/b", "send") is None
    assert all(tree._root.is_bare for tree in routes._trees.values())


def test_the_key_of_everything_is_read_and_written_alike() -> None:
    tokens = configured_tokens(None, "#")
    assert link_routes.read_key(key_of(tokens, "#", is_in=True)) == ("send", "#")
