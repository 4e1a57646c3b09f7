"""Large messages: forwarded while they arrive, bounded in memory, dead when the sender or the receiver is."""

from typing import Any

import proton
import pytest
from memory_net import ACCEPTED, MODIFIED, REJECTED, RELEASED, Client, Net, Receiver, Sender, encoded

from router.core.budget import Limits
from router.values import Condition

MEGABYTE = 1 << 20
# Per receiver: what a stream holds back at, one read more, and what is in frames on their way.
BOUND_BYTES = 2 * MEGABYTE


def held_bytes(net: Net) -> int:
    """What the router holds of messages on their way, but for what is in the sockets."""
    total = 0
    for client in net.clients:
        peer = client.router.peer
        if client.is_dead or peer is None:
            continue
        total += sum(session.backlog_bytes for session in peer.engine.sessions.values())
        total += sum(incoming_bytes(session.pointer) for session in peer.engine.sessions.values())
    streams = set()
    for link in net.core.links.values():
        legs = [getattr(link, "leg", None)]
        for item in getattr(link, "queue", ()):
            total += len(item.payload)
            legs.append(item.leg)
        streams |= {leg.stream for leg in legs if leg is not None}
    return total + int(sum(stream.parts.kept + stream.own_bytes for stream in streams))


def incoming_bytes(session: object) -> int:
    from cproton_ffi import lib

    return int(lib.pn_session_incoming_bytes(session))


class Upload:
    """A message sent in pieces, no faster than the session takes it."""

    def __init__(self, sender: Sender, body_bytes: int) -> None:
        self.sender = sender
        self.sending = sender.start()
        self.left = body_bytes
        sender.append(b"\x00\x53\x75\xb0" + body_bytes.to_bytes(4, "big"))

    def push(self, net: Net, limit: int | None = None) -> int:
        """Up to `limit` bytes; stops where the session's window does. Returns how many were taken."""
        pushed = 0
        while self.left and (limit is None or pushed < limit):
            if self.sender.link.session.outgoing_bytes > 100_000:
                net.pump()
                if self.sender.link.session.outgoing_bytes > 100_000:
                    break
            size = min(64 * 1024, self.left)
            self.sender.append(bytes(size))
            self.left -= size
            pushed += size
            net.pump()
        return pushed

    def finish(self) -> None:
        assert not self.left
        self.sender.finish()


def pair(
    net: Net, *, address: str = "a", credit: int = 10, to: str | None = "same", **terms: object
) -> tuple[Sender, Receiver]:
    receiver = net.client("receives").receiver(address, credit=credit, **terms)  # type: ignore[arg-type]
    sender = net.client("sends").sender(address if to == "same" else to)
    net.pump()
    return sender, receiver


@pytest.mark.parametrize("is_settled", [True, False])
@pytest.mark.parametrize("address", ["a", None])
@pytest.mark.parametrize("size", [130_000, 131_072, 200_000, 262_144, 5 * MEGABYTE])
def test_large_messages_arrive_intact(size: int, address: str | None, is_settled: bool) -> None:
    """routing 93"""
    net = Net()
    sender, receiver = pair(net, to=address, accepts=True)
    body = bytes(range(256)) * (size // 256)
    sendings = []
    for _ in range(2):
        sendings.append(sender.send(body, address="a", is_settled=is_settled))
        net.pump()
    sender.send(b"small", address="a")
    net.pump()
    assert receiver.bodies == [body, body, b"small"]
    if not is_settled:
        assert [sending.outcome for sending in sendings] == [ACCEPTED, ACCEPTED]
    assert sender.credit == 250
    assert len(sender.client.frames("disposition")) == (1 if is_settled else 3)
    net.nothing_left()


@pytest.mark.parametrize("read_bytes", [1_000, 16_384, 65_536])
def test_streaming_does_not_depend_on_how_bytes_are_read(read_bytes: int) -> None:
    """routing 93"""
    net = Net(read_bytes=read_bytes)
    sender, receiver = pair(net, accepts=True)
    bodies = [bytes([number]) * size for number, size in enumerate((200_000, 10, 400_000, 131_060, 0, 300_000))]
    for body in bodies:
        sender.send(body)
    net.pump()
    assert receiver.bodies == bodies
    assert sender.credit == 250
    net.nothing_left()


def test_a_receiver_sees_the_beginning_before_the_sender_wrote_the_end() -> None:
    """routing 93 (§10.1: forwarding starts at about 128 KiB)"""
    net = Net()
    sender, receiver = pair(net)
    upload = Upload(sender, MEGABYTE)
    upload.push(net, 300_000)
    assert len(receiver.received[0].payload) > 200_000
    assert not receiver.received[0].is_complete
    upload.push(net)
    upload.finish()
    net.pump()
    assert len(receiver.complete[0].body) == MEGABYTE


@pytest.mark.slow
def test_memory_is_bounded_while_the_receiver_does_not_read() -> None:
    """routing 93, 94"""
    net = Net(session_bytes=MEGABYTE)
    sender, receiver = pair(net)
    receiver.client.stop_reading()
    upload = Upload(sender, 20 * MEGABYTE)
    pushed = upload.push(net)
    assert pushed < 4 * MEGABYTE
    assert held_bytes(net) < BOUND_BYTES
    receiver.client.resume_reading()
    while upload.left:
        assert upload.push(net) > 0
        assert held_bytes(net) < BOUND_BYTES
    upload.finish()
    net.pump()
    assert len(receiver.complete[0].body) == 20 * MEGABYTE
    receiver.accept_all()
    net.pump()
    assert upload.sending.outcome == ACCEPTED
    net.nothing_left()


def test_memory_is_bounded_while_the_receiver_has_no_credit() -> None:
    """routing 93"""
    net = Net(session_bytes=MEGABYTE)
    sender, receiver = pair(net, credit=0)
    upload = Upload(sender, 8 * MEGABYTE)
    assert upload.push(net) < 2 * MEGABYTE
    assert held_bytes(net) < BOUND_BYTES
    assert not receiver.received
    receiver.flow(1)
    while upload.left:
        assert upload.push(net) > 0
    upload.finish()
    net.pump()
    assert len(receiver.complete[0].body) == 8 * MEGABYTE
    net.nothing_left()


def test_memory_is_bounded_while_the_receivers_session_window_is_closed() -> None:
    """routing 93 (§10.1: per session a bounded amount is buffered)"""
    net = Net(session_bytes=MEGABYTE)
    consumer = net.client()
    session = consumer.connection.session()
    session.incoming_capacity = 4 * 32768
    session.open()
    receiver = consumer.receiver("a", credit=10, session=session)
    sender = net.client().sender("a")
    net.pump()
    receiver._on_readable = lambda delivery: None  # type: ignore[method-assign]
    upload = Upload(sender, 8 * MEGABYTE)
    assert upload.push(net) < 3 * MEGABYTE
    assert held_bytes(net) < BOUND_BYTES
    assert not receiver.received
    net.nothing_left()


def test_other_links_of_a_stalled_stream_go_on() -> None:
    """routing 94 (§10.1: a stalled receiver stalls only that message's sender session)"""
    net = Net(session_bytes=MEGABYTE)
    sender, stalled = pair(net, credit=0)
    other_receiver = net.client().receiver("b", credit=10, accepts=True)
    session = sender.client.connection.session()
    session.open()
    other_sender = sender.client.sender("b", session=session)
    net.pump()
    Upload(sender, 8 * MEGABYTE).push(net)
    sending = other_sender.send(b"passes")
    net.pump()
    assert other_receiver.bodies == [b"passes"]
    assert sending.outcome == ACCEPTED
    assert not stalled.received
    net.nothing_left()


@pytest.mark.parametrize("leave", ["kill", "detach", "close"])
@pytest.mark.parametrize("credit", [0, 10])
def test_receiver_lost_in_mid_message(leave: str, credit: int) -> None:
    """routing 94, 88: the rest is received and discarded, the sender goes on"""
    net = Net(session_bytes=MEGABYTE)
    sender, receiver = pair(net, credit=credit)
    receiver.client.stop_reading()
    upload = Upload(sender, 6 * MEGABYTE)
    upload.push(net)
    assert upload.left
    following = sender.client.sender("b")
    other = net.client().receiver("b", credit=10, accepts=True)
    receiver.client.resume_reading()
    if leave == "kill":
        receiver.client.kill()
    else:
        getattr(receiver, leave)()
    net.pump()
    while upload.left:
        assert upload.push(net) > 0
    assert not upload.sending.updates
    upload.finish()
    net.pump()
    assert upload.sending.outcome == (MODIFIED if credit else RELEASED)
    assert held_bytes(net) == 0
    for _ in range(3):  # more than a session window in all: none of it is lost to the discarded bytes
        again = Upload(following, 2 * MEGABYTE)
        while again.left:
            assert again.push(net) > 0
        again.finish()
        net.pump()
        assert again.sending.outcome == ACCEPTED
    assert len(other.complete) == 3
    net.nothing_left()


def test_a_new_receiver_gets_what_was_sent_behind_the_lost_message() -> None:
    """routing 94: messages that waited behind it"""
    net = Net(session_bytes=MEGABYTE)
    sender, receiver = pair(net, credit=0)
    standby = net.client().receiver("a", accepts=True)
    net.pump()
    sender.send(bytes(600_000))
    sender.send(b"behind", is_settled=True)
    sender.send(b"last")
    net.pump()
    assert not standby.received
    receiver.client.kill()
    net.pump()
    standby.flow(10)
    net.pump()
    assert b"last" in standby.bodies
    assert b"behind" in standby.bodies
    assert sender.sent[0].outcome in (RELEASED, ACCEPTED)
    assert sender.sent[2].outcome == ACCEPTED
    assert sender.credit == 250
    net.nothing_left()


def leave_by(receiver: Receiver, way: str) -> None:
    if way == "end":
        receiver.link.session.close()
    else:
        getattr(receiver, way)()


def ends_cut(client: Client) -> bool:
    """Does what the router wrote of a message under way end with an aborted Transfer, or without any last one?"""
    last = client.frames("transfer")[-1]
    is_whole, is_aborted = not last[5], bool(last[9])
    return is_aborted or not is_whole


@pytest.mark.parametrize("way", ["detach", "close", "end"])
@pytest.mark.parametrize("mode", [proton.Link.SND_MIXED, proton.Link.SND_SETTLED])
@pytest.mark.parametrize("is_read", [True, False])
def test_a_receiver_that_leaves_in_mid_message_is_not_told_that_it_has_the_whole(
    way: str, mode: int, is_read: bool
) -> None:
    """routing 92 (§9.3)"""
    net = Net(session_bytes=MEGABYTE)
    sender, receiver = pair(net, snd_settle_mode=mode)
    if not is_read:
        receiver.client.stop_reading()
    Upload(sender, 4 * MEGABYTE).push(net, 500_000)
    receiver.client.resume_reading()
    leave_by(receiver, way)
    net.pump()
    assert ends_cut(receiver.client)
    assert not receiver.complete
    assert receiver.client.frames()[-1].name == ("end" if way == "end" else "detach")
    net.nothing_left()


def test_nor_is_one_whose_session_ends_with_many_links() -> None:
    net = Net(session_bytes=MEGABYTE)
    sender, receiver = pair(net)
    for number in range(100):
        receiver.client.receiver(f"other/{number}")
    net.pump()
    Upload(sender, 4 * MEGABYTE).push(net, 500_000)
    receiver.link.session.close()
    net.pump()
    assert ends_cut(receiver.client)
    assert not receiver.complete
    net.nothing_left()


@pytest.mark.parametrize("way", ["detach", "close", "end"])
def test_nor_is_one_that_leaves_as_the_router_closes_its_link(way: str) -> None:
    net = Net(session_bytes=MEGABYTE)
    sender, receiver = pair(net)
    Upload(sender, 4 * MEGABYTE).push(net, 500_000)
    links = net.peer(receiver.client).links
    (wire,) = links.engine.links.values()
    links.end_link(wire, Condition(name="amqp:unauthorized-access", description="denied by now"))
    leave_by(receiver, way)
    net.pump()
    assert ends_cut(receiver.client)
    assert not receiver.complete
    net.nothing_left()


@pytest.mark.parametrize("is_settled", [True, False])
@pytest.mark.parametrize("mode", [proton.Link.SND_MIXED, proton.Link.SND_SETTLED])
def test_presettled_receiver_lost_in_mid_message(is_settled: bool, mode: int) -> None:
    """routing 94, 81: copies without an outcome are lost just as well"""
    net = Net()
    sender, receiver = pair(net, snd_settle_mode=mode)
    upload = Upload(sender, 2 * MEGABYTE)
    if is_settled:
        receiver.client.stop_reading()
    upload.push(net, 500_000)
    receiver.client.kill()
    net.pump()
    upload.push(net)
    assert upload.left == 0
    upload.finish()
    net.pump()
    assert upload.sending.outcome == MODIFIED
    assert held_bytes(net) == 0
    net.nothing_left()


def test_presettled_stream_to_a_receiver_that_vanishes() -> None:
    """routing 94: the transfers themselves are settled, from the first frame on"""
    net = Net()
    sender, receiver = pair(net, credit=1)
    raw_stream(sender.client, bytes(300_000), settled=True, ends=False)
    net.pump()
    assert receiver.received
    receiver.client.kill()
    net.pump()
    raw_stream(sender.client, bytes(300_000), settled=True, ends=True, is_first=False)
    net.pump()
    assert held_bytes(net) == 0
    net.nothing_left()


def raw_stream(client: Client, data: bytes, *, settled: bool, ends: bool, is_first: bool = True) -> None:
    """Transfer frames made by hand, for what proton's sender would never do."""
    head = b"\x00\x53\x75\xb0" + (600_000).to_bytes(4, "big") if is_first else b""
    payload = head + data
    pieces = [payload[at : at + 10_000] for at in range(0, len(payload), 10_000)]
    for index, piece in enumerate(pieces):
        more = b"\x42" if ends and index == len(pieces) - 1 else b"\x41"
        fields = b"\x43\x43\xa0\x01a\x43" + (b"\x41" if settled else b"\x42") + more
        body = b"\x00\x53\x14\xc0" + bytes([len(fields) + 1, 6]) + fields + piece
        client.say((len(body) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body)


def test_aborted_before_anything_was_forwarded_is_invisible() -> None:
    """routing 92"""
    net = Net()
    sender, receiver = pair(net)
    sending = sender.start()
    sender.append(encoded(bytes(50_000)))
    net.pump()
    sending.abort()
    net.pump()
    assert not receiver.received
    assert sender.credit == 250
    assert not sending.updates
    sender.send(b"next")
    net.pump()
    assert receiver.bodies == [b"next"]
    net.nothing_left()


@pytest.mark.parametrize("address", ["a", None])
def test_aborted_in_mid_message_is_aborted_to_the_receiver(address: str | None) -> None:
    """routing 92"""
    net = Net()
    sender, receiver = pair(net, to=address, credit=2)
    sending = sender.start()
    sender.append(encoded(bytes(400_000), address="a")[:300_000])
    net.pump()
    assert receiver.received
    sending.abort()
    net.pump()
    assert receiver.received[0].is_aborted
    assert not receiver.complete
    assert sender.credit == 250
    sender.send(b"next", address="a")
    net.pump()
    assert receiver.bodies == [b"next"]
    assert not sending.updates
    net.nothing_left()


def test_aborted_while_queued_leaves_the_queue() -> None:
    """routing 92 (§10.3: removed, or an aborted transfer)"""
    net = Net()
    sender, receiver = pair(net, credit=0)
    sending = sender.start()
    sender.append(encoded(bytes(400_000))[:300_000])
    net.pump()
    sending.abort()
    sender.send(b"next")
    net.pump()
    receiver.flow(5)
    net.pump()
    assert receiver.bodies == [b"next"]
    net.nothing_left()


@pytest.mark.parametrize("leave", ["kill", "detach", "close"])
@pytest.mark.parametrize("is_opaque", [False, True])
def test_sender_lost_in_mid_message_aborts_it(leave: str, is_opaque: bool) -> None:
    """routing 92 (§10.3: aborted by disconnect is the same; §10.5: bytes that are no section are)"""
    net = Net()
    sender, receiver = pair(net, credit=2)
    if is_opaque:
        sender.start()
        sender.append(b"0123456789" * 30_000)
    else:
        Upload(sender, MEGABYTE).push(net, 300_000)
    net.pump()
    if leave == "kill":
        sender.client.kill()
    else:
        getattr(sender, leave)()
    net.pump()
    assert receiver.received[0].is_aborted
    other = net.client().sender("a")
    net.pump()
    other.send(b"next")
    net.pump()
    assert receiver.bodies == [b"next"]
    net.nothing_left()


def test_complete_messages_of_a_lost_sender_are_delivered_however_large() -> None:
    """routing 89 (§9.4: complete in the router's buffers though the connection closed right after)"""
    net = Net()
    sender, receiver = pair(net, credit=0)
    bodies = [bytes(700_000), b"small", bytes(300_000), b"last"]
    for body in bodies:
        sender.send(body)
    sender.send(bytes(500_000))
    sender.start()
    sender.append(encoded(bytes(400_000))[:300_000])
    net.pump()
    sender.client.kill()
    receiver.flow(100)
    net.pump()
    assert receiver.bodies[:4] == bodies
    assert len(receiver.complete) == 5
    net.nothing_left()


def test_detach_waits_for_what_was_received() -> None:
    """routing 89 (§24: on detach all fully received deliveries are routed before the reply)"""
    net = Net()
    sender, receiver = pair(net, credit=0)
    sender.send(bytes(700_000))
    sender.send(b"last")
    sender.close()
    net.pump()
    assert sender.is_detached
    receiver.flow(10)
    net.pump()
    assert [len(body) for body in receiver.bodies] == [700_000, 4]
    net.nothing_left()


def test_multicast_streams_to_everybody() -> None:
    """routing 93, 75"""
    net = Net({"m": "multicast"}, session_bytes=MEGABYTE)
    receivers = [net.client().receiver("m", credit=10, accepts=True) for _ in range(3)]
    sender = net.client().sender("m")
    net.pump()
    sending = sender.send(bytes(5 * MEGABYTE))
    net.pump()
    assert [len(receiver.complete[0].body) for receiver in receivers] == [5 * MEGABYTE] * 3
    assert sending.outcome == ACCEPTED
    assert sender.credit == 250
    net.nothing_left()


def test_multicast_stream_waits_for_the_slowest_and_survives_its_loss() -> None:
    """routing 94, 77"""
    net = Net({"m": "multicast"}, session_bytes=MEGABYTE)
    clients = [net.client() for _ in range(3)]
    receivers = [clients[0].receiver("m", credit=10), clients[1].receiver("m", credit=10), clients[2].receiver("m")]
    sender = net.client().sender("m")
    net.pump()
    clients[1].stop_reading()
    upload = Upload(sender, 8 * MEGABYTE)
    upload.push(net)
    assert upload.left
    assert held_bytes(net) < 2 * BOUND_BYTES
    clients[1].kill()
    net.pump()
    upload.push(net)
    assert upload.left  # the one without credit holds it still
    clients[2].kill()
    net.pump()
    while upload.left:
        assert upload.push(net) > 0
    upload.finish()
    net.pump()
    assert len(receivers[0].complete[0].body) == 8 * MEGABYTE
    assert upload.sending.outcome is None
    receivers[0].accept_all()
    net.pump()
    assert upload.sending.outcome == ACCEPTED
    net.nothing_left()


def test_a_multicast_that_its_sender_settles_reaches_a_slow_receiver_whole() -> None:
    """It has ended, and waits for the receiver: what is settled early would look whole."""
    size = 650_000  # more than a socket takes, and less than what waits beside
    net = Net({"m": "multicast"}, session_bytes=MEGABYTE)
    quick, slow = (net.client().receiver("m", credit=10) for _ in range(2))
    sender = net.client().sender("m")
    net.pump()
    slow.client.stop_reading()
    sending = sender.send(bytes(size))
    net.pump()
    assert len(quick.complete) == 1
    sending.settle()
    net.pump()
    slow.client.resume_reading()
    net.pump()
    assert [len(body) for body in slow.bodies] == [size]
    assert slow.complete[0].came_settled
    assert sender.credit == 250
    sender.send(b"next")
    net.pump()
    assert slow.bodies[1:] == [b"next"]
    net.nothing_left()


@pytest.mark.parametrize("distribution", ["balanced", "multicast"])
@pytest.mark.parametrize("state", [ACCEPTED, RELEASED])
def test_a_receiver_that_settles_a_part_of_what_came_settled_gets_no_more(distribution: str, state: int) -> None:
    net = Net({"a": distribution}, session_bytes=MEGABYTE)
    sender, receiver = pair(net, snd_settle_mode=proton.Link.SND_SETTLED)
    other = net.client().receiver("a", credit=10) if distribution == "multicast" else None
    net.pump()
    upload = Upload(sender, MEGABYTE)
    upload.push(net, 300_000)
    disposition = raw_disposition(receiver, state)
    receiver.client.say(disposition)
    net.pump()
    upload.push(net)
    upload.finish()
    net.pump()
    assert ends_cut(receiver.client)
    if other is not None:
        assert [len(body) for body in other.bodies] == [MEGABYTE]
        other.accept_all()
        net.pump()
    assert upload.sending.outcome == ACCEPTED
    net.nothing_left()


def raw_disposition(receiver: Receiver, state: int) -> bytes:
    """As a receiver may say of a delivery that came settled, though proton does not: id 0, settled."""
    body = b"\x00\x53\x15\xc0\x0a\x05\x41\x43\x43\x41" + b"\x00\x53" + bytes([state]) + b"\x45"
    body = body[:4] + bytes([len(body) - 5]) + body[5:]
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body


def test_multicast_stream_aborted_is_aborted_to_all() -> None:
    """routing 92"""
    net = Net({"m": "multicast"})
    receivers = [net.client().receiver("m", credit=credit) for credit in (1, 1, 0)]
    sender = net.client().sender("m")
    net.pump()
    upload = Upload(sender, MEGABYTE)
    upload.push(net, 200_000)
    upload.sending.abort()
    net.pump()
    receivers[2].flow(1)
    net.pump()
    assert [len(receiver.received) for receiver in receivers] == [1, 1, 0]
    assert all(receiver.received[0].is_aborted for receiver in receivers[:2])
    net.nothing_left()


@pytest.mark.parametrize("state", [ACCEPTED, REJECTED, RELEASED, MODIFIED])
def test_receiver_that_decides_before_the_end(state: int) -> None:
    """routing 83, 94: settled in mid-message; the rest is discarded, both links go on"""
    net = Net(session_bytes=MEGABYTE)
    sender, receiver = pair(net, credit=3)
    upload = Upload(sender, 4 * MEGABYTE)
    upload.push(net, 300_000)
    item = receiver.received[0]
    local: dict[str, Any] = {"condition": proton.Condition("too:big", "no more")} if state == REJECTED else {}
    item.give(state, **local)
    net.pump()
    while upload.left:
        assert upload.push(net) > 0
    assert not upload.sending.updates
    upload.finish()
    net.pump()
    (outcome,) = upload.sending.updates
    assert (outcome.state, outcome.is_settled) == (state, True)
    if state == REJECTED:
        assert outcome.refusal.name == "too:big"
    assert sender.credit == 250
    receiver._open = None
    sender.send(b"next")
    net.pump()
    assert receiver.complete[-1].body == b"next"
    assert held_bytes(net) == 0
    net.nothing_left()


@pytest.mark.parametrize("distribution", ["balanced", "multicast"])
def test_receiver_that_states_its_outcome_before_the_end_unsettled(distribution: str) -> None:
    """routing 87: three-way, in mid-message"""
    net = Net({"a": distribution})
    sender, receiver = pair(net)
    if distribution == "multicast":
        net.client().receiver("a", credit=10, accepts=True)
    net.pump()
    upload = Upload(sender, MEGABYTE)
    upload.push(net, 300_000)
    item = receiver.received[0]
    item.give(ACCEPTED, is_settled=False)
    net.pump()
    upload.push(net)
    assert not upload.sending.updates
    upload.finish()
    net.pump()
    assert len(item.body) == MEGABYTE
    assert [(update.state, update.is_settled) for update in upload.sending.updates] == [(ACCEPTED, False)]
    assert not item.came_settled
    upload.sending.settle()
    net.pump()
    assert item.came_settled
    assert sender.credit == 250
    net.nothing_left()


@pytest.mark.parametrize("distribution", ["balanced", "multicast"])
@pytest.mark.parametrize("size", [100, 100_000, 300_000, 2 * MEGABYTE])
def test_the_state_on_the_senders_transfers_reaches_the_receiver(distribution: str, size: int) -> None:
    """§9.1"""
    net = Net({"a": distribution}, session_bytes=MEGABYTE)
    sender, receiver = pair(net)
    other = net.client().receiver("a", credit=1) if distribution == "multicast" else None
    net.pump()
    sending = sender.start()
    sending.update(666, [1, 2, 3])
    sender.append(encoded(bytes(size)))
    sender.finish()
    net.pump()
    for end in filter(None, (receiver, other)):
        (item,) = end.complete
        assert (int(item.delivery.remote_state), item.delivery.remote.data) == (666, [1, 2, 3])
        assert item.delivery.local_state == 0
        assert end.client.frames("transfer")[-1][7] is not None
    receiver.accept_all()
    if other is not None:
        other.accept_all()
    net.pump()
    assert sending.outcome == ACCEPTED
    net.nothing_left()


def test_the_state_of_a_message_that_waits_reaches_the_receiver() -> None:
    """It was still on its way as the receiver had no credit, and its sender may have gone meanwhile."""
    net = Net(session_bytes=MEGABYTE)
    sender, receiver = pair(net, credit=0)
    sender.start().update(666, [1, 2, 3])
    sender.append(encoded(bytes(200_000)))
    net.pump()
    sender.finish()
    receiver.flow(1)
    net.pump()
    (item,) = receiver.complete
    assert (int(item.delivery.remote_state), item.delivery.remote.data) == (666, [1, 2, 3])
    net.nothing_left()


@pytest.mark.parametrize("distribution", ["balanced", "closest", "multicast"])
def test_the_state_of_a_small_message_that_waits_reaches_the_receiver(distribution: str) -> None:
    """It was looked for among those that had left."""
    net = Net({"a": distribution})
    sender, receiver = pair(net, credit=0)
    before = sender.send(b"before")
    sending = sender.start()
    sending.update(666, [1, 2, 3])
    sender.append(encoded(b"m"))
    sender.finish()
    after = sender.send(b"after")
    net.pump()
    receiver.flow(3)
    net.pump()
    states = [(int(item.delivery.remote_state), item.delivery.remote.data) for item in receiver.complete]
    assert states == [(0, None), (666, [1, 2, 3]), (0, None)]
    receiver.accept_all()
    net.pump()
    assert before.outcome == sending.outcome == after.outcome == ACCEPTED
    net.nothing_left()


def test_sender_settling_a_streamed_message_first() -> None:
    """routing 78, for a message of many frames"""
    net = Net({"m": "multicast"})
    receivers = [net.client().receiver("m", credit=10) for _ in range(2)]
    sender = net.client().sender("m")
    net.pump()
    sending = sender.send(bytes(500_000))
    net.pump()
    sending.settle()
    net.pump()
    assert all(receiver.complete[0].came_settled for receiver in receivers)
    assert sender.credit == 250
    assert all(getattr(link, "load", 0) == 0 for link in net.core.links.values())
    net.nothing_left()


@pytest.mark.parametrize(("address", "outcome"), [("nobody", RELEASED), (None, REJECTED)])
def test_what_the_router_refuses_has_its_outcome_when_all_of_it_has_come(address: str | None, outcome: int) -> None:
    """§10.5. Artemis takes an outcome of a message that it still sends for a failure, and closes the connection."""
    net = Net()
    sender = net.client().sender(None)
    net.pump()
    payload = encoded(bytes(MEGABYTE), address=address)
    sending = sender.start()
    for at in range(0, len(payload), 100_000):
        sender.append(payload[at : at + 100_000])
        net.pump()
    assert not sending.updates
    sender.finish()
    net.pump()
    assert [(update.state, update.is_settled) for update in sending.updates] == [(outcome, True)]
    assert sender.credit == 250
    net.nothing_left()


def test_large_message_to_nobody_is_released_and_read_to_its_end() -> None:
    """routing 64, 66 (§10.5: the rest is received and discarded)"""
    net = Net(session_bytes=MEGABYTE)
    sender = net.client().sender(None)
    net.pump()
    for _ in range(3):
        upload = Upload(sender, 3 * MEGABYTE)
        sender.client.net.pump()
        while upload.left:
            assert upload.push(net) > 0
        upload.finish()
        net.pump()
        assert upload.sending.outcome == REJECTED  # no properties, so no address
    big = sender.send(bytes(3 * MEGABYTE), address="nobody")
    net.pump()
    assert big.outcome == RELEASED
    assert sender.credit == 250
    assert held_bytes(net) == 0
    net.nothing_left()


def test_many_streams_through_one_receiver_take_turns() -> None:
    """routing 82, 93: a large message occupies its link until it is complete"""
    net = Net(session_bytes=MEGABYTE)
    receiver = net.client().receiver("a", credit=100, accepts=True)
    senders = [net.client().sender("a") for _ in range(4)]
    net.pump()
    sendings = [sender.send(bytes([index]) * 400_000) for index, sender in enumerate(senders) for _ in range(3)]
    net.pump()
    assert len(receiver.complete) == 12
    assert all(len(set(body)) == 1 for body in receiver.bodies)
    assert {sending.outcome for sending in sendings} == {ACCEPTED}
    assert held_bytes(net) == 0
    net.nothing_left()


@pytest.mark.parametrize(("connection_bytes", "count"), [(1_000_000, 1), (1_000_000, 3), (4_000_000, 6)])
def test_a_message_streams_through_a_window_smaller_than_what_makes_it_stream(
    connection_bytes: int, count: int
) -> None:
    """An eighth of the budget is less than 128 KiB; or the beginnings of several messages fill it."""
    net = Net(limits=Limits(link=0, connection=connection_bytes, user=0, host=0, router=0))
    receiver = net.client("consumer").receiver("a", credit=100)
    client = net.client("producer")
    senders = [client.sender("a") for _ in range(count)]
    net.pump()
    for sender in senders:
        sender.start()
    for _ in range(6):
        for sender in senders:
            sender.append(b"x" * 25_000)
        net.pump()
    for sender in senders:
        sender.finish()
    net.pump()
    assert [len(message.payload) for message in receiver.received] == [150_000] * count
    for message in receiver.received:
        message.accept()
    net.pump()
    assert [sender.outcomes for sender in senders] == [[ACCEPTED]] * count
    net.no_errors()


def test_stream_on_the_connection_of_its_receiver() -> None:
    """routing 93"""
    net = Net(session_bytes=MEGABYTE)
    client = net.client()
    receiver, sender = client.receiver("a", credit=10, accepts=True), client.sender("a")
    net.pump()
    sending = sender.send(bytes(5 * MEGABYTE))
    net.pump()
    assert len(receiver.complete[0].body) == 5 * MEGABYTE
    assert sending.outcome == ACCEPTED
    net.nothing_left()


def test_everything_leaves_in_mid_stream() -> None:
    """routing 92, 94: the whole client goes, with both ends of the stream"""
    for vanish in (Client.kill, Client.close):
        net = Net({"m": "multicast"}, session_bytes=MEGABYTE)
        client = net.client()
        client.receiver("m", credit=1)
        client.receiver("m")
        sender = client.sender("m")
        net.pump()
        Upload(sender, 3 * MEGABYTE).push(net)
        vanish(client)
        net.pump()
        net.nothing_left()
