"""Attack: large messages to a receiver on another router that grants no credit.

All streamed messages to a neighbour shared one session. One such message filled its window, and no large message of any
user passed there any more. A thousand took every link for large messages, and the next one the link for all small ones.
Now each sender has its own link and session, and each user a share of them: the rest waits for his own messages.

Between an edge and its interior there was one session for all messages: one large message delayed all others, small or
large, in its direction.
"""

from itertools import pairwise

import pytest
from memory_net import ACCEPTED, RELEASED, Client, Fleet, Receiver, Sender, Vhosts, encoded
from test_streaming import MEGABYTE

from router.connection.lanes import CHANNELS_LEFT, SPARE
from router.core import streaming_links
from router.core.budget import Limits
from router.core.remotes import DataOutLink
from router.core.streaming_links import MOST_OF_USER, LargeOutLink
from router.core.trunk_links import DataInLink

PIECE = 64 * 1024
LIMITS = Limits()


def chain(*names: str) -> Fleet:
    fleet = Fleet(*names, limits=LIMITS)
    for one, other in pairwise(names):
        fleet.connect(one, other)
    fleet.settle()
    return fleet


def push(fleet: Fleet, sender: Sender, size: int) -> int:
    """Begin a message of so many bytes, and send as much as the router takes. Returns how much it has not taken."""
    payload = encoded(bytes(size))
    sender.start()
    left = len(payload)
    for at in range(0, len(payload), PIECE):
        if sender.link.session.outgoing_bytes > PIECE:
            return left
        sender.append(payload[at : at + PIECE])
        fleet.pump()
        left -= len(payload[at : at + PIECE])
    sender.finish()
    fleet.pump()
    return 0


LARGE = encoded(bytes(300_000))


def begin_large(fleet: Fleet, senders: list[Sender]) -> None:
    for sender in senders:
        sender.start()
        sender.append(LARGE[:140_000])
        fleet.pump()


def end_large(fleet: Fleet, senders: list[Sender]) -> None:
    for sender in senders:
        sender.append(LARGE[140_000:])
        sender.finish()
    fleet.pump()


def streaming(fleet: Fleet, router: str) -> list[DataOutLink]:
    links = fleet[router].core.links.values()
    return [link for link in links if isinstance(link, DataOutLink) and link.slot is None]


def bystander(fleet: Fleet, last: str, client: Client | None = None) -> tuple[Sender, Receiver]:
    receiver = fleet[last].client().receiver("good", credit=1000, accepts=True)
    fleet.tick(2)
    sender = (client or fleet["A"].client()).sender("good")
    fleet.pump()
    return sender, receiver


@pytest.mark.parametrize("routers", ["AB", "ABC"])
@pytest.mark.parametrize("is_first", [True, False])
def test_one_that_stalls_holds_up_no_other(routers: str, is_first: bool) -> None:
    fleet = chain(*routers)
    stalled = fleet[routers[-1]].client().receiver("slow")
    sender, receiver = bystander(fleet, routers[-1])
    if not is_first:
        assert push(fleet, sender, MEGABYTE) == 0
    attacker = fleet["A"].client().sender("slow")
    fleet.pump()
    assert push(fleet, attacker, 64 * MEGABYTE)
    for _ in range(3):
        assert push(fleet, sender, 2 * MEGABYTE) == 0
    assert len(receiver.bodies) == (3 if is_first else 4)
    assert set(sender.outcomes) == {ACCEPTED}
    assert not stalled.received
    fleet.no_errors()


def test_many_hold_up_neither_large_messages_nor_small_ones() -> None:
    fleet = chain("A", "B")
    fleet["B"].client().receiver("slow")
    sender, receiver = bystander(fleet, "B")
    for _ in range(11):
        client = fleet["A"].client()
        attackers = [client.sender("slow") for _ in range(100)]
        fleet.pump()
        for attacker in attackers:
            attacker.start()
            attacker.append(encoded(bytes(300_000))[:140_000])
        fleet.pump()
    assert len(streaming(fleet, "A")) == MOST_OF_USER
    fleet["A"].remote_host = "10.0.0.2"  # another user
    other, _ = bystander(fleet, "B")
    for each in (sender, other):
        small = each.send(b"small")
        fleet.pump()
        assert small.outcome == ACCEPTED
    assert push(fleet, other, 2 * MEGABYTE) == 0
    assert other.outcomes == [ACCEPTED] * 2
    assert sum(len(item.payload) > MEGABYTE for item in receiver.received) <= 1
    data = [link for link in fleet["A"].core.links.values() if isinstance(link, DataOutLink) and link.slot is not None]
    assert all(link.leg is None for link in data)
    fleet.no_errors()


def test_what_does_not_fit_waits_and_comes() -> None:
    fleet = chain("A", "B")
    receiver = fleet["B"].client().receiver("slow", accepts=True)
    fleet.tick(2)
    client = fleet["A"].client()
    senders = [client.sender("slow") for _ in range(MOST_OF_USER + 20)]
    fleet.pump()
    begin_large(fleet, senders)
    assert len(streaming(fleet, "A")) == MOST_OF_USER
    receiver.flow(1000)
    end_large(fleet, senders)
    assert [sender.outcomes for sender in senders] == [[ACCEPTED]] * len(senders)
    assert all(link.leg is None and not link.queue for link in streaming(fleet, "A"))
    (trunk,) = fleet["A"].core.network.trunks.values()  # type: ignore[union-attr]
    assert len(trunk.streaming.idle) == MOST_OF_USER
    fleet.no_errors()


def test_a_waiting_one_that_is_aborted_frees_no_link_that_another_occupies() -> None:
    fleet = chain("A", "B")
    receiver = fleet["B"].client().receiver("slow", accepts=True)
    fleet.tick(2)
    client = fleet["A"].client()
    senders = [client.sender("slow") for _ in range(MOST_OF_USER + 1)]
    fleet.pump()
    begin_large(fleet, senders)
    senders[-1].sent[0].abort()
    fleet.pump()
    (trunk,) = fleet["A"].core.network.trunks.values()  # type: ignore[union-attr]
    assert trunk.streaming.idle == {}
    receiver.flow(1000)
    end_large(fleet, senders[:-1])
    assert [sender.outcomes for sender in senders[:-1]] == [[ACCEPTED]] * MOST_OF_USER
    assert len(trunk.streaming.idle) == MOST_OF_USER


def test_links_of_senders_that_are_gone_are_taken_by_others() -> None:
    fleet = chain("A", "B")
    fleet["B"].client().receiver("slow")
    fleet.tick(2)
    (trunk,) = fleet["A"].core.network.trunks.values()  # type: ignore[union-attr]
    for _ in range(3):
        clients = []
        for number in range(12):
            fleet["A"].remote_host = f"10.0.1.{number}"
            client = fleet["A"].client()
            clients.append(client)
            sender = client.sender("slow")
            fleet.pump()
            sender.start()
            sender.append(bytes(140_000))
            fleet.pump()
        assert trunk.streaming.idle == {}
        assert len({link.wire.session for link in streaming(fleet, "A")}) == len(clients)  # type: ignore[attr-defined]
        assert len(streaming(fleet, "A")) == len(clients)
        for client in clients:
            client.kill()
        fleet.pump()
        assert len(trunk.streaming.idle) == len(streaming(fleet, "A"))
    fleet.no_errors()


@pytest.mark.parametrize("is_ended", [True, False])
def test_a_neighbour_that_ends_a_lane_or_goes_leaves_nothing(is_ended: bool) -> None:
    fleet = chain("A", "B")
    fleet["B"].client().receiver("slow")
    fleet.tick(2)
    sender = fleet["A"].client().sender("slow")
    fleet.pump()
    push(fleet, sender, 8 * MEGABYTE)
    (trunk,) = fleet["A"].core.network.trunks.values()  # type: ignore[union-attr]
    assert len(streaming(fleet, "A")) == 1
    if is_ended:
        peer = fleet["B"].peer(fleet["B"].ends[0])
        (incoming,) = (each for each in peer.attachment.in_links if isinstance(each, DataInLink) and each.slot is None)
        incoming.wire.session.close()  # type: ignore[attr-defined]
        fleet["B"].work.touched.add(peer.engine)
        fleet["B"].work.finish()
        fleet.pump()
        assert streaming(fleet, "A") == []
        good, receiver = bystander(fleet, "B")
        assert push(fleet, good, MEGABYTE) == 0
        assert len(receiver.bodies) == 1
    else:
        fleet["A"].ends[0].kill()
        fleet.pump()
        assert trunk.streaming.idle == {}
    fleet.no_errors()


@pytest.mark.parametrize("sessions", [13, 14, 13 + CHANNELS_LEFT, 13 + CHANNELS_LEFT + 3, 45])
def test_a_connection_with_few_sessions_keeps_some_for_others(sessions: int) -> None:
    """Else both would begin the last session that there may be, and neither could answer."""
    fleet = Fleet("A", "B", limits=LIMITS, channel_max=sessions - 1)
    fleet.connect("A", "B", channel_max=sessions - 1)
    fleet.settle()
    for router in "AB":
        fleet[router].client().receiver(f"at {router}", credit=1000, accepts=True)
    fleet.tick(2)
    for _ in range(12):
        for router, other in ("AB", "BA"):
            sender = fleet[router].client().sender(f"at {other}")
            fleet[router].pump()
            sender.start()
            sender.append(encoded(bytes(300_000))[:140_000])
            fleet[router].pump()
        fleet.pump()
    for router in "AB":
        assert not fleet[router].ends[0].router_closed
        taken = {link.wire.session for link in streaming(fleet, router)}  # type: ignore[attr-defined]
        assert 1 <= len(taken) <= max(1, sessions - 13 - CHANNELS_LEFT + 2 * SPARE)
        assert fleet[router].peer(fleet[router].ends[0]).engine.channels_left >= min(
            sessions - 13, CHANNELS_LEFT - SPARE
        )
    fleet.no_errors()


@pytest.mark.parametrize("is_settled", [True, False])
def test_one_whose_sender_has_gone_holds_up_no_other(is_settled: bool) -> None:
    """The whole message is at the other router, which does not say that nobody takes it."""
    fleet = chain("A", "B")
    fleet["B"].client().receiver("slow")
    sender, _ = bystander(fleet, "B")
    for number in range(3 * SPARE):
        fleet["A"].remote_host = "10.0.0.2"  # another user
        mallory = fleet["A"].client()
        attacker = mallory.sender("slow")
        fleet.pump()
        attacker.send(bytes(300_000), is_settled=is_settled)
        fleet.pump()
        if number % 2:
            mallory.kill()
        else:
            attacker.detach()
        fleet.pump()
        fleet["A"].remote_host = "10.0.0.1"
        another = fleet["A"].client().sender("good")
        fleet.pump()
        for each in (sender, another):
            assert push(fleet, each, MEGABYTE) == 0
            assert each.outcomes[-1] == ACCEPTED
    fleet.no_errors()


@pytest.mark.parametrize("how", ["killed", "closed"])
def test_sessions_are_free_when_what_stalled_in_them_is_given_up(how: str) -> None:
    """Attack: begin a large message that stalls, break it off, and again on the next session, until each is full."""
    fleet = chain("A", "B")
    fleet["B"].client().receiver("slow")
    sender, receiver = bystander(fleet, "B")
    for number in range(SPARE + 2):
        fleet["A"].remote_host = f"10.0.1.{number}"
        client = fleet["A"].client()
        attacker = client.sender("slow")
        fleet.pump()
        assert push(fleet, attacker, 32 * MEGABYTE)
        if how == "killed":
            client.kill()
        else:
            attacker.close()
        fleet.pump()
        assert streaming(fleet, "A") == []
        assert not any(isinstance(link, DataInLink) and link.slot is None for link in fleet["B"].core.links.values())
        client.kill()
    assert push(fleet, sender, 2 * MEGABYTE) == 0
    assert sender.outcomes == [ACCEPTED]
    assert len(receiver.bodies) == 1
    fleet.no_errors()


def star() -> Fleet:
    fleet = Fleet("INT", edges=("E", "F"), limits=LIMITS)
    for edge in "EF":
        fleet.connect(edge, "INT", role="edge")
    fleet.tick(2)
    return fleet


def push_to(fleet: Fleet, sender: Sender, address: str, size: int) -> int:
    """As `push`, for a sender that may be anonymous."""
    payload = encoded(bytes(size), address=address)
    sender.start()
    for at in range(0, len(payload), PIECE):
        if sender.link.session.outgoing_bytes > PIECE:
            return len(payload) - at
        sender.append(payload[at : at + PIECE])
        fleet.pump()
    sender.finish()
    fleet.pump()
    return 0


@pytest.mark.parametrize("is_anonymous", [False, True])
@pytest.mark.parametrize(("origin", "end"), [("E", "INT"), ("INT", "F"), ("E", "F")])
def test_nor_between_an_edge_and_its_interior(origin: str, end: str, is_anonymous: bool) -> None:
    fleet = star()
    stalled = fleet[end].client().receiver("slow")
    receiver = fleet[end].client().receiver("good", credit=1000, accepts=True)
    fleet.tick(3)
    attacker = fleet[origin].client().sender(None if is_anonymous else "slow")
    sender = fleet[origin].client().sender(None if is_anonymous else "good")
    fleet.tick(2)
    assert push_to(fleet, attacker, "slow", 64 * MEGABYTE)
    for number in range(3):
        small = sender.send(b"small", address="good")
        fleet.pump()
        assert small.outcome == ACCEPTED
        assert push_to(fleet, sender, "good", MEGABYTE) == 0
        assert len(receiver.bodies) == 2 * number + 2
    assert set(sender.outcomes) == {ACCEPTED}
    assert not stalled.received
    large = [link for link in fleet[origin].core.links.values() if isinstance(link, LargeOutLink)]
    assert sorted(link.delivery_count for link in large) == [1, 3]
    fleet.no_errors()


def test_a_stalled_message_of_an_edge_that_goes_leaves_nothing() -> None:
    fleet = star()
    fleet["F"].client().receiver("slow")
    fleet.tick(3)
    client = fleet["E"].client()
    attacker = client.sender("slow")
    fleet.tick(2)
    assert push_to(fleet, attacker, "slow", 64 * MEGABYTE)
    client.kill()
    fleet.pump()
    for router in ("E", "INT"):
        assert not [link for link in fleet[router].core.links.values() if isinstance(link, LargeOutLink)]
    fleet["E"].ends[0].kill()
    fleet["INT"].ends[1].kill()
    fleet.pump()
    for router in ("E", "INT", "F"):
        assert not [link for link in fleet[router].core.links.values() if isinstance(link, LargeOutLink)]
    fleet.no_errors()


def test_an_interior_that_refuses_such_a_link_gets_large_messages_on_the_others() -> None:
    """By its policy. What was given to the refused one is released."""
    group = {
        "remoteHosts": "*", "sources": "*", "targets": "*", "allowAnonymousSender": True, "allowDynamicSource": True,
        "maxSenders": 5,
    }  # fmt: skip
    vhosts = Vhosts(
        {"$default": {"allowUnknownUser": True, "groups": {"$default": group}}}, policy={"enableVhostPolicy": True}
    )
    fleet = Fleet("INT", edges=("E",), limits=LIMITS, vhosts=vhosts)
    fleet.connect("E", "INT", role="edge")
    fleet.tick(2)
    receiver = fleet["INT"].client().receiver("good", credit=1000, accepts=True)
    fleet.tick(3)
    sender = fleet["E"].client().sender("good")
    fleet.tick(2)
    outcomes = set()
    for _ in range(3):
        assert push_to(fleet, sender, "good", MEGABYTE) == 0
        outcomes.add(sender.sent[-1].outcome)
    assert outcomes == {RELEASED, ACCEPTED}
    assert len(receiver.bodies) == 2
    fleet.no_errors()


def test_what_had_not_left_when_its_sender_went_does_not_stay_for_ever() -> None:
    """Attack: presettled messages a little larger than the window. A session kept for ever, and counted, what had not
    left when the link closed: half a MiB stopped it, and with each session so no large message passed any more.

    A user who reconnects has no further links.
    """
    fleet = chain("A", "B")
    slow = fleet["B"].client()
    slow.receiver("slow")
    sender, receiver = bystander(fleet, "B")
    fleet["A"].remote_host = "10.0.0.2"  # another user
    for _ in range(MOST_OF_USER + 4):
        client = fleet["A"].client()
        attacker = client.sender("slow")
        fleet.pump()
        assert push(fleet, attacker, 4 * MEGABYTE + 400_000) == 0
        attacker.sent[0].settle()
        fleet.pump()
        client.kill()
        fleet.pump()
    assert len(streaming(fleet, "A")) == MOST_OF_USER
    sessions = fleet["A"].peer(fleet["A"].ends[0]).engine.sessions.values()
    assert any(session.backlog_bytes for session in sessions)
    assert push(fleet, sender, 2 * MEGABYTE) == 0
    slow.kill()
    fleet.pump()
    assert not any(session.backlog_bytes for session in sessions)
    assert push(fleet, sender, 2 * MEGABYTE) == 0
    assert sender.outcomes == [ACCEPTED] * 2
    assert len(receiver.bodies) == 2
    fleet.no_errors()


def test_idle_links_of_senders_that_are_there_hide_none_that_are_nobodys() -> None:
    """Each sender that came got one more link, where the oldest idle ones were others'."""
    fleet = chain("A", "B")
    receiver = fleet["B"].client().receiver("good", credit=1000, accepts=True)
    fleet.tick(2)
    client = fleet["A"].client()
    staying = [client.sender("good") for _ in range(MOST_OF_USER)]
    fleet.pump()
    for sender in staying:
        assert push(fleet, sender, MEGABYTE) == 0
    fleet["A"].remote_host = "10.0.0.2"  # another user
    for _ in range(12):
        coming = fleet["A"].client()
        sender = coming.sender("good")
        fleet.pump()
        assert push(fleet, sender, MEGABYTE) == 0
        assert sender.outcomes == [ACCEPTED]
        coming.kill()
        fleet.pump()
    assert len(streaming(fleet, "A")) <= MOST_OF_USER + 2
    assert len(receiver.bodies) == MOST_OF_USER + 12
    fleet.no_errors()


def test_links_have_a_bound_of_whoever_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an edge, too: beyond it what is large goes where small messages do, or waits behind another."""
    monkeypatch.setattr(streaming_links, "MAX_STREAMING_LINKS", 3)
    fleet = star()
    receiver = fleet["INT"].client().receiver("good", credit=1000, accepts=True)
    fleet.tick(3)
    senders = []
    for number in range(5):
        fleet["E"].remote_host = f"10.0.2.{number}"
        senders.append(fleet["E"].client().sender("good"))
        fleet.tick()
    begin_large(fleet, senders)
    assert sum(isinstance(link, LargeOutLink) for link in fleet["E"].core.links.values()) == 3
    end_large(fleet, senders)
    assert [sender.outcomes for sender in senders] == [[ACCEPTED]] * len(senders)
    assert len(receiver.bodies) == len(senders)
    fleet.no_errors()
