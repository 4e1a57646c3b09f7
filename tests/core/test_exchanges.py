"""Exchanges: copies by the subject, one outcome, no loops; on one router, over interior routers and edges."""

from typing import Any

import pytest
from memory_net import ACCEPTED, MODIFIED, REJECTED, RELEASED, Fleet, Net, Receiver, Sender, Vhosts, encoded
from test_auto_links import auto_link, broker

from policy.addressing.address import Address
from router.amqp.codec import decode_message
from router.connection.inspection import subject_of
from router.core.budget import Limits
from router.core.exchanges import Binding, Exchange, Hop, Terms
from router.core.in_links import InLink
from router.core.out_links import OutLink
from router.core.subjects import MatchMethod

LARGE = b"x" * 300_000
EDGE: dict[str, Any] = {"role": "edge"}
MANY = 100


def hop(net: Net, text: str, phase: int = 0) -> Hop:
    address = net.core.resolve(text)
    assert isinstance(address, Address)
    return Hop(address, phase)


def exchange(
    net: Net,
    *bindings: tuple[str, str],
    at: str = "x",
    alternate: str | None = None,
    method: MatchMethod = "amqp",
) -> Exchange:
    """bindings  (pattern, next hop)"""
    rest = hop(net, alternate) if alternate is not None else None
    made = Exchange(net.core, Terms(at=hop(net, at), alternate=rest, method=method), subject_of)
    made.open()
    for pattern, to in bindings:
        made.bind(Binding(pattern=pattern, hop=hop(net, to)))
    return made


def receiver(net: Net, address: str, *, accepts: bool = True, strip: str | None = None) -> Receiver:
    return net.client(strip=strip).receiver(address, credit=MANY, accepts=accepts)


def counts(made: Exchange) -> tuple[int, int, int, int]:
    """received, forwarded (diverted ones too: issue 34, peer 12), diverted, dropped"""
    terms = made.terms
    return terms.received, terms.forwarded, terms.diverted, terms.dropped


@pytest.mark.parametrize("is_anonymous", [False, True])
@pytest.mark.parametrize("is_settled", [False, True])
def test_bindings_are_matched_on_the_subject(is_anonymous: bool, is_settled: bool) -> None:
    """routing 123: one copy for each next hop, however many bindings name it; without a subject nothing matches."""
    net = Net()
    made = exchange(net, ("news.#", "a"), ("*.eu", "a"), ("news.eu", "b"), ("#", "c"))
    a, b, c = (receiver(net, name) for name in "abc")
    sender = net.client().sender(None if is_anonymous else "x")
    net.pump()
    assert sender.credit == 250
    for subject in ("news.eu", "news.us", "sport", None):
        sender.send(str(subject).encode(), is_settled=is_settled, address="x", subject=subject)
    net.pump()
    assert (a.bodies, b.bodies, c.bodies) == (
        [b"news.eu", b"news.us"],
        [b"news.eu"],
        [b"news.eu", b"news.us", b"sport"],
    )
    assert counts(made) == (4, 3, 0, 1)
    assert [binding.matched for binding in made.terms.bindings] == [2, 1, 1, 3]
    assert {item.came_settled for each in (a, b, c) for item in each.received} == {is_settled}
    if not is_settled:
        assert sender.outcomes == [ACCEPTED, ACCEPTED, ACCEPTED, RELEASED]
    assert sender.credit == 250
    net.no_errors()


def test_the_mqtt_method_has_other_words_and_wildcards() -> None:
    """routing 124"""
    net = Net()
    exchange(net, ("a/+", "one"), ("a/#", "many"), method="mqtt")
    one, many = receiver(net, "one"), receiver(net, "many")
    sender = net.client().sender("x")
    net.pump()
    for subject in ("a", "a/b", "a/b/c", "a.b"):
        sender.send(subject.encode(), subject=subject)
    net.pump()
    assert (one.bodies, many.bodies) == ([b"a/b"], [b"a", b"a/b", b"a/b/c"])
    assert sender.outcomes[-1] == RELEASED


def test_the_alternate_gets_what_has_nobody_else() -> None:
    """routing 123: without a match, and with one whose next hop has no receiver."""
    net = Net()
    made = exchange(net, ("a", "a"), alternate="rest")
    sender = net.client().sender("x")
    net.pump()
    sender.send(b"1", subject="a")
    net.pump()
    rest = receiver(net, "rest")
    net.pump()
    sender.send(b"2", subject="a")
    sender.send(b"3", subject="b")
    net.pump()
    a = receiver(net, "a")
    net.pump()
    sender.send(b"4", subject="a")
    net.pump()
    assert (rest.bodies, a.bodies) == ([b"2", b"3"], [b"4"])
    assert sender.outcomes == [RELEASED, ACCEPTED, ACCEPTED, ACCEPTED]
    assert counts(made) == (4, 3, 2, 1)


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        ((ACCEPTED, RELEASED), ACCEPTED),
        ((ACCEPTED, REJECTED), REJECTED),
        ((MODIFIED, RELEASED), MODIFIED),
        ((RELEASED, RELEASED), RELEASED),
        ((REJECTED,), REJECTED),
    ],
)
def test_the_sender_learns_what_its_receivers_did(given: tuple[int, ...], outcome: int) -> None:
    """routing 123: accepted is what a receiver has accepted, never what was only sent."""
    net = Net()
    exchange(net, *(("#", f"to{number}") for number in range(len(given))))
    receivers = [receiver(net, f"to{number}", accepts=False) for number in range(len(given))]
    sender = net.client().sender("x")
    net.pump()
    sender.send(subject="s")
    net.pump()
    for each, state in zip(receivers, given, strict=True):
        assert sender.outcomes == [None]
        each.received[0].give(state)
        net.pump()
    assert sender.outcomes == [outcome]


def test_a_receiver_that_goes_with_its_copy_costs_the_sender_no_acceptance() -> None:
    net = Net()
    exchange(net, ("#", "a"), ("#", "b"))
    gone, waits = net.client(), receiver(net, "b", accepts=False)
    gone.receiver("a", credit=1)
    sender = net.client().sender("x")
    net.pump()
    sender.send(subject="s")
    net.pump()
    gone.kill()
    net.pump()
    waits.received[0].give(RELEASED)
    net.pump()
    assert sender.outcomes == [MODIFIED]


def test_receivers_of_the_exchanges_own_address_get_every_message() -> None:
    """routing 123: by the distribution of the address, and that counts as forwarded."""
    net = Net({"x": "multicast"})
    made = exchange(net, ("a", "a"))
    own = [receiver(net, "x") for _ in range(2)]
    a = receiver(net, "a")
    sender = net.client().sender("x")
    net.pump()
    for subject in ("a", "b", None):
        sender.send(subject=subject)
    net.pump()
    assert [len(each.bodies) for each in (*own, a)] == [3, 3, 1]
    assert counts(made) == (3, 3, 0, 0)
    assert sender.outcomes == [ACCEPTED] * 3


def test_next_hops_have_their_own_distribution() -> None:
    net = Net({"all": "multicast"})
    exchange(net, ("#", "all"), ("#", "one"))
    every, some = [receiver(net, "all") for _ in range(3)], [receiver(net, "one") for _ in range(3)]
    sender = net.client().sender("x")
    net.pump()
    for _ in range(3):
        sender.send(subject="s")
    net.pump()
    assert [len(each.bodies) for each in every] == [3, 3, 3]
    assert [len(each.bodies) for each in some] == [1, 1, 1]


@pytest.mark.parametrize("is_settled", [False, True])
def test_a_large_message_streams_to_every_next_hop(is_settled: bool) -> None:
    """routing 123"""
    net = Net()
    made = exchange(net, ("#", "a"), ("#", "b"), alternate="rest")
    a, b, rest = (receiver(net, name) for name in ("a", "b", "rest"))
    sender = net.client().sender("x")
    net.pump()
    sender.send(LARGE, subject="s", is_settled=is_settled)
    sender.send(LARGE, is_settled=is_settled)
    net.pump()
    assert [len(body) for each in (a, b, rest) for body in each.bodies] == [len(LARGE)] * 3
    assert counts(made) == (2, 2, 1, 0)
    assert is_settled or sender.outcomes == [ACCEPTED, ACCEPTED]
    net.no_errors()


def test_exchanges_come_and_go_while_messages_pass() -> None:
    """Its address is as any other then; what was sent before keeps its outcome."""
    net = Net()
    plain = net.client().sender("x")
    net.pump()
    assert plain.credit == 0
    made = exchange(net, ("#", "a"))
    a = receiver(net, "a", accepts=False)
    net.pump()
    assert plain.credit == 250
    plain.send(b"1", subject="s")
    net.pump()
    for binding in list(made.terms.bindings):
        made.unbind(binding)
    plain.send(b"2", subject="s")
    net.pump()
    made.close()
    plain.send(b"3", subject="s")
    net.pump()
    a.received[0].accept()
    net.pump()
    assert plain.outcomes == [ACCEPTED, RELEASED, RELEASED]
    direct = receiver(net, "x")
    net.pump()
    plain.send(b"4", subject="s")
    net.pump()
    assert (direct.bodies, a.bodies) == ([b"4"], [b"1"])
    direct.close()
    plain.close()
    net.pump()
    assert set(net.core.table.addresses) == {"M0a"}


def test_what_waits_for_slow_receivers_is_the_senders() -> None:
    """Attack: a sender fills the memory through an exchange with next hops whose receivers grant nothing."""
    net = Net(limits=Limits(link=100_000), capacity=1000)
    exchange(net, *(("#", f"to{number}") for number in range(10)))
    for number in range(10):
        net.client().receiver(f"to{number}")
    sender = net.client().sender("x")
    net.pump()
    for _ in range(500):
        sender.send(b"x" * 5000, subject="s")
    net.pump()
    (sending,) = [link for link in net.core.links.values() if isinstance(link, InLink)]
    assert 100_000 < sending.held < 200_000
    of_receivers = [link.attachment.account.own.held for link in net.core.links.values() if link is not sending]
    assert max(of_receivers) < 15_000
    assert len([link for link in net.core.links.values() if isinstance(link, OutLink) and link.queue]) == 10


def test_a_sender_that_settles_first_settles_for_all_copies() -> None:
    net = Net()
    exchange(net, ("#", "a"), ("#", "b"))
    receivers = [receiver(net, name, accepts=False) for name in "ab"]
    sender = net.client().sender("x")
    net.pump()
    sending = sender.send(subject="s")
    net.pump()
    sending.settle()
    net.pump()
    assert [each.received[0].came_settled or each.received[0].delivery.settled for each in receivers] == [True, True]
    assert sender.credit == 250


def test_phases_of_next_hops_and_of_the_exchange() -> None:
    """A next hop may be a queue behind an auto link, as senders reach it, or what comes from it."""
    net = Net(phases={"q": (0, 1)})
    auto_link(net, "q", "out")
    made = exchange(net, ("in", "q"))
    made.bind(Binding(pattern="out", hop=hop(net, "q", 1)))
    container = broker(net)
    reader = receiver(net, "q")
    sender = net.client().sender("x")
    net.pump()
    (queue,) = container.attached_by_router
    assert isinstance(queue, Receiver)
    sender.send(b"1", subject="in")
    sender.send(b"2", subject="out")
    net.pump()
    assert (queue.bodies, reader.bodies) == ([b"1"], [b"2"])


# Loops


def test_exchanges_of_one_router_do_not_follow_each_other() -> None:
    """Attack: two exchanges bound to each other, an exchange that is the alternate of another."""
    net = Net()
    first = exchange(net, ("#", "y"), at="x", alternate="z")
    second = exchange(net, ("#", "x"), at="y", alternate="x")
    third = exchange(net, ("#", "z2"), at="z", alternate="x")
    sender = net.client().sender("x")
    net.pump()
    sender.send(subject="s")
    sender.send()
    net.pump()
    assert [counts(made)[0] for made in (first, second, third)] == [2, 0, 0]
    assert sender.outcomes == [RELEASED, RELEASED]


def test_exchanges_of_several_routers_do_not_go_round() -> None:
    """Attack: each router's exchange sends to the next one's, in a ring. A message passes one exchange."""
    names = ("A", "B", "C")
    fleet = Fleet(*names)
    for one, other in (("A", "B"), ("B", "C"), ("C", "A")):
        fleet.connect(one, other)
    next_to = dict(zip(names, (*names[1:], names[0]), strict=True))
    made = {name: exchange(fleet[name], ("#", f"x{next_to[name]}"), at=f"x{name}") for name in names}
    reader = receiver(fleet["B"], "xB")
    fleet.settle()
    sender = fleet["A"].client().sender("xA")
    fleet.pump()
    assert sender.credit == 250
    for is_settled in (False, True):
        sender.send(b"m", subject="s", is_settled=is_settled)
        sender.send(LARGE, subject="s", is_settled=is_settled)
    fleet.pump()
    assert {name: counts(each)[0] for name, each in made.items()} == {"A": 4, "B": 0, "C": 0}
    assert len(reader.bodies) == 4
    assert sender.outcomes[:2] == [ACCEPTED, ACCEPTED]
    fleet.no_errors()


def test_one_exchange_on_every_router_copies_once() -> None:
    """The same configuration everywhere: receivers get one copy."""
    fleet = Fleet("A", "B")
    fleet.connect("A", "B")
    for name in ("A", "B"):
        exchange(fleet[name], ("#", "to"))
    near, far = receiver(fleet["A"], "other"), receiver(fleet["B"], "to")
    fleet.settle()
    sender = fleet["A"].client().sender("x")
    fleet.pump()
    sender.send(subject="s")
    fleet.pump()
    assert (len(far.bodies), near.bodies, sender.outcomes) == (1, [], [ACCEPTED])


# Other routers


def test_an_exchange_serves_clients_of_other_routers() -> None:
    """routing 123: its copies say where they go, and enter the network at it."""
    fleet = Fleet("A", "B", "C")
    fleet.connect("A", "B")
    fleet.connect("B", "C")
    made = exchange(fleet["B"], ("a", "to"), ("b", "here"), alternate="rest")
    sender = fleet["A"].client().sender("x")
    far = receiver(fleet["C"], "to", strip="no")
    back = receiver(fleet["A"], "rest", strip="no")
    fleet.settle()
    assert sender.credit == 250
    sender.send(b"1", subject="a")
    sender.send(b"2", subject="none")
    sender.send(b"3", subject="b")
    sender.send(LARGE, subject="a")
    fleet.pump()
    assert [len(body) for body in far.bodies] == [1, len(LARGE)]
    assert back.bodies == [b"2", b"3"]
    assert sender.outcomes == [ACCEPTED] * 4
    assert counts(made) == (4, 4, 2, 0)
    for item, to in ((far.complete[0], "to"), (back.complete[0], "rest")):
        said = decode_message(bytes(item.payload)).message_annotations
        assert (said["x-opt-qd.to"], said["x-opt-qd.ingress"]) == (to, "0/B")
        assert said["x-opt-qd.trace"][:2] == ["0/B", "0/B"]
        assert "x-opt-qd.phase" not in said
    fleet.no_errors()


def test_an_exchange_is_known_to_the_network_as_long_as_it_is_there() -> None:
    fleet = Fleet("A", "B")
    fleet.connect("A", "B")
    made = exchange(fleet["B"], ("#", "to"))
    own = receiver(fleet["B"], "x")
    fleet.settle()
    assert "M0x" in fleet["A"].core.table.addresses
    own.close()
    fleet.tick(3)
    assert "M0x" in fleet["A"].core.table.addresses
    made.close()
    fleet.tick(3)
    assert "M0x" not in fleet["A"].core.table.addresses


def test_a_receiver_of_the_exchanges_address_at_another_router_gets_its_copy_once() -> None:
    """Over a router that has an exchange of the same address."""
    fleet = Fleet("A", "B", distributions={"x": "multicast"})
    fleet.connect("A", "B")
    exchange(fleet["A"], ("#", "to"))
    exchange(fleet["B"], ("#", "to"))
    own = [receiver(fleet[name], "x") for name in ("A", "B")]
    to = receiver(fleet["B"], "to")
    fleet.settle()
    sender = fleet["A"].client().sender("x")
    fleet.pump()
    sender.send(subject="s")
    fleet.pump()
    assert [len(each.bodies) for each in (*own, to)] == [1, 1, 1]


@pytest.mark.parametrize("strip", ["both", "no"])
@pytest.mark.parametrize(
    ("at", "of", "to"),
    [
        *(("E1", "INT", "E1"), ("E1", "INT", "E2"), ("INT", "E1", "INT")),
        *(("E1", "E1", "FAR"), ("E2", "E1", "E1"), ("FAR", "INT", "E2")),
    ],
)
def test_exchanges_are_reached_over_edges(at: str, of: str, to: str, strip: str) -> None:
    """routing 123. An edge's exchange copies what comes by the uplink to the edge's own clients alone."""
    fleet = Fleet("INT", "FAR", edges=("E1", "E2"))
    fleet.connect("INT", "FAR")
    for edge in ("E1", "E2"):
        fleet.connect(edge, "INT", **EDGE)
    exchange(fleet[of], ("a", "to"))
    own = receiver(fleet[of] if of.startswith("E") else fleet[to], "to", strip=strip)
    sender = fleet[at].client().sender("x")
    fleet.settle()
    assert sender.credit == 250
    sender.send(b"1", subject="a")
    sender.send(LARGE, subject="a")
    sender.send(b"2", subject="b")
    fleet.pump()
    assert [len(body) for body in own.bodies] == [1, len(LARGE)]
    assert sender.outcomes == [ACCEPTED, ACCEPTED, RELEASED]
    fleet.no_errors()


def test_an_exchange_of_an_edge_sends_to_the_network_what_its_clients_send() -> None:
    fleet = Fleet("INT", "FAR", edges=("E1", "E2"), distributions={"all": "multicast"})
    fleet.connect("INT", "FAR")
    for edge in ("E1", "E2"):
        fleet.connect(edge, "INT", **EDGE)
    exchange(fleet["E1"], ("a", "to"), ("b", "all"))
    one = receiver(fleet["FAR"], "to")
    every = [receiver(fleet[name], "all") for name in ("E1", "E2", "INT", "FAR")]
    fleet.settle()
    near, away = fleet["E1"].client().sender("x"), fleet["FAR"].client().sender("x")
    fleet.tick(3)
    for sender in (near, away):
        sender.send(b"1", subject="a")
        sender.send(b"2", subject="b")
    fleet.pump()
    assert near.outcomes == [ACCEPTED, ACCEPTED]
    assert [len(each.bodies) for each in (one, *every)] == [1, 2, 1, 1, 1]
    assert away.outcomes == [RELEASED, ACCEPTED]
    fleet.no_errors()


def test_exchanges_of_an_edge_and_its_interior_do_not_go_round() -> None:
    """Attack: there are no traces between them."""
    fleet = Fleet("INT", edges=("E1", "E2"))
    for edge in ("E1", "E2"):
        fleet.connect(edge, "INT", **EDGE)
    made = [
        exchange(fleet[name], ("#", to), at=at)
        for name, at, to in (("E1", "x", "y"), ("INT", "y", "z"), ("E2", "z", "x"), ("E1", "z", "y"))
    ]
    fleet.tick(3)
    for name, at in (("E1", "x"), ("E2", "z"), ("INT", "y")):
        sender = fleet[name].client().sender(at)
        fleet.tick(3)
        sender.send(b"m", subject="s")
        sender.send(b"m", subject="s", is_settled=True)
        fleet.pump()
    assert sum(counts(each)[0] for each in made) < 20


@pytest.mark.parametrize("may", [True, False])
def test_a_phase_that_an_edges_exchange_names_is_kept_where_policy_lets_it(may: bool) -> None:
    """Attack: an edge leads messages past the queue that stands before their receivers."""
    group = {
        "remoteHosts": "*",
        "sources": "*",
        "targets": "*",
        "allowWaypointLinks": may,
        "allowAnonymousSender": True,
    }
    vhosts = Vhosts({"$default": {"allowUnknownUser": True, "groups": {"$default": group}}})
    fleet = Fleet("INT", edges=("E1",), phases={"q": (0, 1)}, vhosts=vhosts)
    fleet.connect("E1", "INT", **EDGE)
    made = exchange(fleet["E1"])
    made.bind(Binding(pattern="#", hop=hop(fleet["E1"], "q", 1)))
    reader = receiver(fleet["INT"], "q")
    sender = fleet["E1"].client().sender("x")
    fleet.tick(3)
    sender.send(b"m", subject="s")
    fleet.pump()
    assert (reader.bodies, sender.outcomes) == (([b"m"], [ACCEPTED]) if may else ([], [RELEASED]))


def test_a_large_message_of_which_two_copies_would_take_one_link_is_released() -> None:
    """The first would wait for the end of the second for ever."""
    fleet = Fleet("INT", edges=("E1",))
    fleet.connect("E1", "INT", **EDGE)
    made = exchange(fleet["E1"], ("#", "a"), ("#", "b"))
    readers = [receiver(fleet["INT"], name) for name in "ab"]
    sender = fleet["E1"].client().sender("x")
    fleet.tick(3)
    sender.send(LARGE, subject="s")
    sender.send(b"small", subject="s")
    fleet.pump()
    assert sender.outcomes == [RELEASED, ACCEPTED]
    assert [each.bodies for each in readers] == [[b"small"], [b"small"]]
    assert counts(made) == (2, 2, 0, 1)


def test_a_message_without_a_readable_subject_matches_nothing() -> None:
    """Attack: properties whose subject is a list, or which end early."""
    net = Net()
    made = exchange(net, ("#", "a"))
    receiver(net, "a")
    sender: Sender = net.client().sender("x")
    net.pump()
    listed = b"\x00\x53\x73\xc0\x08\x04\x40\x40\x40\xc0\x03\x02\x40\x40"
    numbered = b"\x00\x53\x73\xc0\x06\x04\x40\x40\x40\x54\x07"
    for properties in (listed, numbered, b""):
        sender.send_bytes(properties + b"\x00\x53\x77\xa0\x01x")
    sender.send_bytes(encoded(b"last", subject=""))
    net.pump()
    assert counts(made) == (4, 1, 0, 3)
