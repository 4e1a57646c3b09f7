"""Attack: a user who may only send begins large multicasts and never ends them.

Every receiver that had not taken its copy had its own copy: 9 MB sent were 1.6 GB held. A receiver that had taken
everything so far was charged for the message until its end: 182 kB and 1.5 kB/s stopped a connection with 205 receivers
completely, and the audit named its user. Now waiting data is held once, and an unfinished message costs only its
sender.
"""

from collections.abc import Iterator

import pytest
from memory_net import ACCEPTED, Net, encoded

from router.core.budget import Limits
from router.core.in_links import InLink
from router.core.out_links import OutLink
from router.core.streams import Stream
from router.core.weights import Weights

SIZE = 225_000
SENDERS, RECEIVERS = 8, 100
HEAD = encoded(bytes(10_000_000))[:SIZE]


def streams(net: Net) -> set[Stream]:
    readers = (link.wire.reader for link in net.core.links.values() if isinstance(link, InLink))
    return {reader for reader in readers if isinstance(reader, Stream)}


def held_bytes(net: Net) -> int:
    """What is held for receivers, in the engine and before it."""
    sessions = [session for client in net.clients for session in net.peer(client).engine.sessions.values()]
    return sum(session.backlog_bytes for session in sessions) + sum(stream.parts.kept for stream in streams(net))


def charged_bytes(net: Net) -> Iterator[int]:
    return (net.peer(client).attachment.account.held for client in net.clients)


@pytest.mark.parametrize("strip", ["both", "in"])  # the latter: each receiver gets the router's annotations
@pytest.mark.parametrize("is_one_address", [True, False])
def test_what_waits_is_held_once_and_charged_to_its_sender(strip: str, is_one_address: bool) -> None:
    net = Net(default="multicast", limits=Limits())
    addresses = [f"m{number}" for number in range(1 if is_one_address else SENDERS)]
    victim = net.client("victim", strip=strip)
    receivers = [victim.receiver(address, credit=10) for address in addresses for _ in range(RECEIVERS)]
    attackers = [net.client("attacks") for _ in range(SENDERS)]
    senders = [client.sender(addresses[at % len(addresses)]) for at, client in enumerate(attackers)]
    net.pump()
    before = net.peer(victim).attachment.account.held
    victim.stop_reading()
    for sender in senders:
        sender.start()
        sender.append(HEAD)
    net.pump()
    assert len(receivers) in (RECEIVERS, RECEIVERS * SENDERS)
    assert held_bytes(net) < 3 * SENDERS * SIZE + len(receivers) * 16 * 1024
    assert sum(charged_bytes(net)) - before >= held_bytes(net) * 0.9
    net.nothing_left()


def test_a_receiver_that_has_read_all_there_is_pays_nothing() -> None:
    net = Net({"m": "multicast"}, limits=Limits(), idle_timeout_s=0)
    victim, attacker, honest = net.client("victim"), net.client("attacks"), net.client("sends")
    receivers = [victim.receiver("m", credit=10) for _ in range(205)]
    other = victim.receiver("a", credit=10, accepts=True)
    sender, to_other = attacker.sender("m"), honest.sender("a")
    net.pump()
    account = net.peer(victim).attachment.account
    before = account.held
    sender.start()
    sender.append(HEAD[:182_000])
    net.pump()
    for _ in range(20):
        sender.append(bytes(1_500))
        net.advance(1)
    assert all(len(each.received[0].payload) > 200_000 for each in receivers)
    assert account.held - before < 100_000
    assert net.peer(attacker).attachment.account.held > 205 * 2048
    sending = to_other.send(b"passes")
    net.pump()
    assert sending.outcome == ACCEPTED
    assert other.bodies == [b"passes"]
    assert net.audits == []
    net.nothing_left()


def test_nor_does_one_of_many_large_messages_to_one_each() -> None:
    net = Net(limits=Limits())
    victim, attacker = net.client("victim"), net.client("attacks")
    receivers = [victim.receiver("a", credit=10) for _ in range(205)]
    net.pump()
    account = net.peer(victim).attachment.account
    before = account.held
    senders = [attacker.sender("a") for _ in receivers]
    net.pump()
    for sender in senders:
        sender.start()
        sender.append(HEAD[:140_000])
        net.pump()
    assert all(each.received for each in receivers)
    assert account.held - before < 100_000
    assert [event["user"] for event in net.audits if event.get("connection") == 1] == []
    assert not net.peer(victim).attachment.is_crowded
    net.nothing_left()


def test_a_receiver_that_does_not_settle_pays_when_the_message_has_ended() -> None:
    net = Net({"m": "multicast"}, limits=Limits())
    receiver, sender = net.client().receiver("m", credit=10), net.client().sender("m")
    net.client().receiver("m", credit=10)
    net.pump()
    (link,) = (link for link in net.core.links.values() if isinstance(link, OutLink) and link.identity == 1)
    sender.start()
    sender.append(HEAD)
    net.pump()
    assert not link.weights
    sender.append(b"")
    sender.finish()
    net.pump()
    assert isinstance(link.weights, Weights)
    assert link.weights.held > 0
    receiver.accept_all()
    net.pump()
    assert link.weights.held == 0
    net.nothing_left()
