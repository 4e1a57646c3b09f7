"""Attack: links whose Detach the router need not answer are attached and detached again and again.

The engine kept each link with all its texts until its session ended, charged to no account: 28 MB for a thousand links.
The router refuses these links, or they are on a session that it has ended.
"""

import sys
from pathlib import Path

import pytest
from memory_net import Client, Net

sys.path.insert(0, str(Path(__file__).parent.parent / "fuzz"))

import wire

from router.core.budget import Limits

NAME = "n" * 12_000
MANY = 1000  # links
GROWTH_BYTES = 5 * 1024 * 1024


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def flood(peer: Client, count: int, channel: int, address: str | None, *, is_receiver: bool, is_closed: bool) -> None:
    attach = wire.frame(wire.attach(NAME, 0, is_receiver=is_receiver, address=address), channel)
    detach = wire.frame(wire.detach(0, is_closed=is_closed), channel)
    for _ in range(count):
        peer.say(attach)
        peer.say(detach)
        peer.net.effects.clear()
        for said in (peer.inbox, peer.recorded, peer.uttered):
            said.clear()
    assert not peer.router.is_closed


@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize("is_receiver", [True, False])
@pytest.mark.parametrize("refused", ["link", "session", "nothing"])
def test_nothing_of_them_stays(refused: str, is_receiver: bool, is_closed: bool) -> None:
    net = Net()
    peer = net.client(opens=False)
    peer.say(wire.HEADER + wire.frame(wire.open_("p")) + wire.frame(wire.begin()) + wire.frame(wire.begin(), 1))
    _, second = net.peer(peer).engine.sessions.values()
    second.close()  # as where it is over a budget, or denied by now
    channel = 1 if refused == "session" else 0
    address = "$management" if refused == "link" and not is_receiver else None if refused == "link" else "a"
    flood(peer, 100, channel, address, is_receiver=is_receiver, is_closed=is_closed)
    before = resident_bytes()
    flood(peer, MANY, channel, address, is_receiver=is_receiver, is_closed=is_closed)
    assert resident_bytes() - before < GROWTH_BYTES
    assert not net.peer(peer).engine.links


def test_links_attached_before_the_router_ended_their_session_are_paid_for_until_it_has_gone() -> None:
    """The engine keeps those: what it has to say of them may not be said any more."""
    net = Net(limits=Limits())
    peer = net.client(opens=False)
    peer.say(wire.HEADER + wire.frame(wire.open_("p")) + wire.frame(wire.begin()))
    account = net.peer(peer).attachment.account
    begun = account.held
    for handle in range(20):
        peer.say(wire.frame(wire.attach(f"{handle}{NAME}", handle, is_receiver=True, address="a")))
    (session,) = net.peer(peer).engine.sessions.values()
    session.close()
    attached = account.held
    for handle in range(20):
        peer.say(wire.frame(wire.detach(handle)))
    assert not net.peer(peer).engine.links
    assert account.held == attached > begun + 20 * len(NAME)
    peer.say(wire.frame(wire.end()))
    net.pump()
    assert account.held < begun
