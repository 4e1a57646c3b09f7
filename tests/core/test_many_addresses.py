"""Ten thousand addresses of another router: read in slices, charged to the neighbour that told of them."""

from typing import Any

import pytest
from memory_net import Fleet, Net
from memory_net.connected import End

from router.core.budget import NO_LIMITS, Limits
from router.core.network import Network
from router.linkstate.limits import ADDRESS_BYTES
from router.network.envelope import encode_control
from router.values import int_, long, symbol

ALL = "_topo/0/all/qdrouter.ma"


def update(router: str, sequence: int, *, add: list[str] | None = None, gone: list[str] | None = None) -> bytes:
    """A differential update; without `add` and `gone` an absolute one, of nothing."""
    body: dict[str, Any] = {symbol("id"): router, symbol("pv"): long(1), symbol("mobile_seq"): long(sequence)}
    if add is None and gone is None:
        body |= {symbol("exist"): [], symbol("hints"): []}
    else:
        added = add or []
        body |= {symbol("hints"): [int_(3)] * len(added), symbol("add"): added, symbol("del"): gone or []}
    return encode_control(f"0/{router}", ALL, "MAU", body)


def names(count: int, text: str = "a") -> list[str]:
    return [f"M0{text}{number}" for number in range(count)]


def network(net: Net) -> Network:
    assert net.core.network is not None
    return net.core.network


def say(fleet: Fleet, router: str, payload: bytes) -> None:
    """Send a control message to the first neighbour."""
    network(fleet[router]).send_control(0, payload)
    fleet[router].work.finish()


def pair(**options: Any) -> tuple[Fleet, End]:
    """Two routers, and one end of their connection."""
    fleet = Fleet("A", "B", **options)
    made, _ = fleet.connect("A", "B")
    fleet.settle()
    return fleet, made


def account(net: Net) -> Any:
    (trunk,) = network(net).trunks.values()
    return trunk.attachment.account


def known(net: Net) -> set[str]:
    """The addresses that another router has."""
    return {key for key, live in net.core.table.addresses.items() if key[0] == "M" and live.remotes}


def test_a_neighbour_pays_for_the_addresses_that_it_tells_of() -> None:
    fleet, _ = pair()
    before = account(fleet["A"]).held
    say(fleet, "B", update("B", 1, add=names(1000)))
    fleet.pump()
    assert len(known(fleet["A"])) == 1000
    paid = 1000 * ADDRESS_BYTES + sum(map(len, names(1000)))
    assert account(fleet["A"]).held - before == account(fleet["A"]).addresses == paid
    say(fleet, "B", update("B", 2, gone=names(1000)[:400]))
    fleet.pump()
    assert account(fleet["A"]).addresses == 600 * ADDRESS_BYTES + sum(map(len, names(1000)[400:]))
    say(fleet, "B", update("B", 3))
    fleet.pump()
    assert not known(fleet["A"])
    assert (account(fleet["A"]).addresses, account(fleet["A"]).held) == (0, before)


def test_what_it_pays_for_addresses_takes_nothing_from_its_messages() -> None:
    """Its connection's own budget is for messages: an honest neighbour with many addresses still sends."""
    fleet, _ = pair(limits=Limits(connection=1_000_000, host=0, user=0, router=0))
    say(fleet, "B", update("B", 1, add=names(3000)))
    fleet.pump()
    assert len(known(fleet["A"])) == 3000
    assert account(fleet["A"]).held > 3 * 1_000_000
    assert not account(fleet["A"]).behind
    say(fleet, "B", update("B", 2))
    fleet.pump()
    assert account(fleet["A"]).own.limit == 1_000_000


@pytest.mark.parametrize("level", ["host", "user", "router"])
def test_addresses_beyond_a_budget_are_not_mapped_until_there_is_room(level: str) -> None:
    """Attack: a million addresses, 2 GB. It costs who tells of them reachability to the rest of them, nothing else."""
    limits = dict.fromkeys(("link", "connection", "user", "host", "router"), 0) | {level: 4_000_000}
    fleet, _ = pair(limits=Limits(**limits))
    say(fleet, "B", update("B", 1, add=names(4000)))
    fleet.pump()
    count = len(known(fleet["A"]))
    # A router may have twice what a user may.
    assert 1000 < count < (8_000_000 if level == "user" else 4_000_000) // ADDRESS_BYTES
    assert not account(fleet["A"]).behind
    fleet.settle()
    assert fleet["A"].host is not None
    assert fleet["A"].host.own_links == {"B": 1}
    logs = [effect.text for effect in fleet["A"].effects if hasattr(effect, "text")]
    assert logs.count("No room for all addresses of router B") == 1


def test_others_have_their_share_whatever_one_neighbour_tells_of() -> None:
    """Attack: one neighbour fills the router's budget, so that there is no room for the addresses of the others."""
    fleet = Fleet("A", "B", "C", limits=Limits(link=0, connection=0, user=0, host=0, router=8_000_000))
    fleet.connect("A", "B")
    fleet.connect("A", "C")
    fleet.settle()
    say(fleet, "B", update("B", 1, add=names(8000, "b")))
    fleet.pump()
    say(fleet, "C", update("C", 1, add=names(500, "c")))
    fleet.pump()
    assert known(fleet["A"]) >= set(names(500, "c"))


def test_what_a_neighbour_that_is_gone_told_of_is_charged_until_it_is_forgotten() -> None:
    fleet, made = pair(limits=NO_LIMITS)
    say(fleet, "B", update("B", 1, add=names(1000)))
    fleet.pump()
    router = fleet["A"].core.budgets.router
    made.kill()
    fleet.pump()
    assert router.held >= 1000 * ADDRESS_BYTES
    assert router.leaving == router.held
    fleet.tick(70)
    assert not known(fleet["A"])
    assert router.held == 0


def test_messages_pass_while_ten_thousand_addresses_are_read() -> None:
    """One step of the update, one of everything else: thousands of rounds; and a HELLO waits for none of them."""
    fleet, _ = pair(is_sliced=True)
    receiver = fleet["A"].client().receiver("here", credit=1000, accepts=True)
    fleet.tick(2)
    sender = fleet["B"].client().sender("here")
    fleet.pump()
    say(fleet, "B", update("B", 1, add=names(10_000)))
    rounds = arrived = 0
    while len(known(fleet["A"])) < 10_000:
        rounds += 1
        if rounds % 50 == 0:
            sender.send(b"meanwhile")
        for net in fleet.nets.values():
            net.carry()
        arrived += len(known(fleet["A"])) == 0 and bool(receiver.complete)
        assert rounds < 5000
    assert rounds > 500  # 20,000 values to read, 10,000 addresses to map
    assert arrived > 0  # messages came while it was being read
    assert len(receiver.complete) >= rounds // 50 - 2
    fleet.no_errors()


def test_what_comes_behind_a_long_message_keeps_its_order() -> None:
    fleet, _ = pair(is_sliced=True)
    before = account(fleet["A"]).held
    say(fleet, "B", update("B", 1, add=names(2000)))
    say(fleet, "B", update("B", 2, gone=names(2000)[1:]))
    say(fleet, "B", update("B", 3, add=["M0later"]))
    fleet.pump()
    assert known(fleet["A"]) == {"M0a0", "M0later"}
    assert account(fleet["A"]).held - before == account(fleet["A"]).addresses


def test_a_connection_that_goes_takes_what_waited_along() -> None:
    fleet, made = pair(is_sliced=True)
    say(fleet, "B", update("B", 1, add=names(2000)))
    say(fleet, "B", update("B", 2, add=names(2000, "b")))
    for _ in range(30):
        for net in fleet.nets.values():
            net.carry()
    paying = account(fleet["A"])
    assert paying.held > 20_000
    made.kill()
    fleet.pump()
    assert paying.held == 0
    assert not known(fleet["A"])
    fleet.no_errors()


def test_short_updates_faster_than_they_are_carried_out_wait_too() -> None:
    """Attack: as below, in messages each of which is short enough to be read at once. Others' are read meanwhile."""
    fleet = Fleet("A", "B", "C", is_sliced=True)
    fleet.connect("A", "B")
    fleet.connect("A", "C")
    fleet.settle()
    host = fleet["A"].host
    assert host is not None
    for sequence in range(1, 201):
        say(fleet, "B", update("B", sequence, add=names(150)) if sequence % 2 else update("B", sequence))
    for _ in range(20):
        for net in fleet.nets.values():
            net.carry()
    say(fleet, "C", update("C", 1, add=["M0honest"]))
    most = rounds = 0
    while "M0honest" not in known(fleet["A"]):
        for net in fleet.nets.values():
            net.carry()
        most, rounds = max(most, len(host._in_order)), rounds + 1
        assert rounds < 200
    assert most <= 4
    (tag,) = (trunk.tag for trunk in network(fleet["A"]).trunks.values() if trunk.neighbour == "B")
    assert len(host._intake._queues[tag].messages) > 50
    fleet.pump()
    assert known(fleet["A"]) == {"M0honest"}


def test_updates_faster_than_they_are_carried_out_wait_at_their_senders_cost() -> None:
    """Attack: all addresses, then none, again and again, faster than they are mapped."""
    fleet, _ = pair(is_sliced=True)
    before = account(fleet["A"]).held
    for sequence in range(1, 41):
        say(fleet, "B", update("B", sequence, add=names(1000)) if sequence % 2 else update("B", sequence))
    most = 0
    host = fleet["A"].host
    assert host is not None
    for _ in range(400):
        for net in fleet.nets.values():
            net.carry()
        most = max(most, len(host._in_order))
    assert account(fleet["A"]).held > before + 100_000
    assert most <= 3  # what is decoded does not pile up
    fleet.pump()
    assert not known(fleet["A"])
    assert account(fleet["A"]).held == before
