"""The tools' AMQP client against a peer nobody here wrote (proton) and against a hostile one (frames by hand)."""

import struct
from collections.abc import Iterator
from typing import Any

import proton
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.amqp.client_session import (
    AMQP_HEADER,
    INCOMING_WINDOW_FRAMES,
    MAX_FRAME_BYTES,
    ClientSession,
    Ended,
    ProtocolError,
)
from router.amqp.codec import decode, encode
from router.values import Described, symbol, uint, ulong, ushort

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)


class ProtonPeer:
    """A server on proton's engine: gives the receiver an address, takes messages, sends what it is told."""

    def __init__(self, session: ClientSession, max_frame_size: int = 0, credit: int = 10) -> None:
        self.session = session
        self.collector = proton.Collector()
        self.connection = proton.Connection()
        self.connection.collect(self.collector)
        self.transport = proton.Transport(proton.Transport.SERVER)
        if max_frame_size:
            self.transport.max_frame_size = max_frame_size
        self.transport.bind(self.connection)
        self.credit = credit
        self.received: list[bytes] = []
        self.sender: Any = None  # proton's Sender to the session's receiver

    def run(self) -> None:
        """Exchange bytes until both sides have nothing more to say."""
        idle = False
        while not idle:
            idle = True
            while output := self.session.take_output():
                idle = False
                while output:
                    taken = output[: self.transport.capacity()]
                    self.transport.push(taken)
                    output = output[len(taken) :]
                    self.handle()
            self.handle()
            while (pending := self.transport.pending()) > 0:
                idle = False
                data = self.transport.peek(pending)
                assert data is not None
                self.transport.pop(len(data))
                self.session.receive(data)

    def handle(self) -> None:
        while (event := self.collector.peek()) is not None:
            self.on_event(event)
            self.collector.pop()

    def on_event(self, event: Any) -> None:
        match event.type.name:
            case "PN_CONNECTION_REMOTE_OPEN":
                event.connection.open()
            case "PN_SESSION_REMOTE_OPEN":
                event.session.open()
            case "PN_LINK_REMOTE_OPEN":
                self.attach(event.link)
            case "PN_DELIVERY" if event.link.is_receiver and not event.delivery.partial:
                self.received.append(event.link.recv(event.delivery.pending))
                self.take(event.delivery)
            case "PN_CONNECTION_REMOTE_CLOSE":
                event.connection.close()

    def take(self, delivery: proton.Delivery) -> None:
        delivery.update(proton.Delivery.ACCEPTED)
        delivery.settle()

    def attach(self, link: proton.Link) -> None:
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        if link.is_sender:
            link.source.address = "temp.1"
            self.sender = link
        link.open()
        if link.is_receiver:
            link.flow(self.credit)

    def send(self, payload: bytes, settled: bool = True) -> proton.Delivery:
        delivery: proton.Delivery = self.sender.delivery(str(id(payload)))
        self.sender.send(payload)
        if settled:
            delivery.settle()
        self.sender.advance()
        return delivery


def new_session() -> ClientSession:
    return ClientSession(container_id="c", hostname="h")


def connected(**options: int) -> tuple[ClientSession, ProtonPeer]:
    session = new_session()
    peer = ProtonPeer(session, **options)
    peer.run()
    return session, peer


def test_the_receiver_gets_an_address_from_the_peer() -> None:
    session, peer = connected()
    assert session.reply_to == "temp.1"
    assert session.is_open
    assert peer.connection.remote_container == "c"
    assert peer.connection.remote_hostname == "h"
    assert peer.sender.remote_source.dynamic


@pytest.mark.parametrize("size", [1, 447, 448, 449, 100_000])
def test_messages_of_any_size_are_sent_in_frames_the_peer_takes(size: int) -> None:
    session, peer = connected(max_frame_size=512)
    payload = bytes(size)
    session.send_message("$management", payload)
    peer.run()
    assert peer.received == [payload]
    assert session.ended is None


def test_messages_wait_for_credit() -> None:
    session, peer = connected(credit=0)
    session.send_message("a", b"1")
    session.send_message("a", b"2")
    peer.run()
    assert peer.received == []
    next(link for link in links(peer) if link.is_receiver).flow(1)
    peer.run()
    assert peer.received == [b"1"]
    next(link for link in links(peer) if link.is_receiver).flow(1)
    peer.run()
    assert peer.received == [b"1", b"2"]


def links(peer: ProtonPeer) -> Iterator[proton.Link]:
    link = peer.connection.link_head(0)
    while link:
        yield link
        link = link.next(0)


def test_each_address_has_one_link() -> None:
    session, peer = connected()
    for address in ("a", "b", "a"):
        session.send_message(address, address.encode())
    peer.run()
    assert sorted(peer.received) == [b"a", b"a", b"b"]
    assert sorted(str(link.target.address) for link in links(peer) if link.is_receiver) == ["a", "b"]


@pytest.mark.parametrize("size", [1, MAX_FRAME_BYTES, 3_000_000])
@pytest.mark.parametrize("settled", [True, False])
def test_replies_of_many_frames_are_joined_and_accepted(size: int, settled: bool) -> None:
    session, peer = connected()
    payload = bytes(range(256)) * (size // 256) + b"x"
    delivery = peer.send(payload, settled)
    peer.run()
    assert session.take_message() == payload
    assert session.take_message() is None
    if not settled:
        assert delivery.remote_state == proton.Delivery.ACCEPTED
        assert delivery.settled


def test_credit_and_window_are_renewed_without_end() -> None:
    session, peer = connected()
    for number in range(2 * INCOMING_WINDOW_FRAMES + 10):
        peer.send(b"%d" % number)
        peer.run()
        assert session.take_message() == b"%d" % number


@pytest.mark.parametrize("state", ["REJECTED", "RELEASED", "MODIFIED"])
def test_a_request_the_peer_does_not_accept_is_reported(state: str) -> None:
    session, peer = connected()

    def refuse(delivery: proton.Delivery) -> None:
        delivery.local.condition = proton.Condition("amqp:not-allowed", "no")
        delivery.update(getattr(proton.Delivery, state))
        delivery.settle()

    peer.take = refuse  # type: ignore[method-assign]
    session.send_message("a", b"x")
    peer.run()
    if state == "REJECTED":
        assert session.ended == Ended(
            kind="delivery", what="a", condition="rejected: amqp:not-allowed", description="no"
        )
    else:
        assert session.ended == Ended(kind="delivery", what="a", condition=state.lower())


def test_a_refused_link_names_its_address_and_the_reason() -> None:
    session, peer = connected()

    def refuse(link: proton.Link) -> None:
        link.open()
        link.condition = proton.Condition("amqp:unauthorized-access", "link disallowed")
        link.close()

    peer.attach = refuse  # type: ignore[method-assign]
    session.send_message("$management", b"x")
    peer.run()
    assert session.ended == Ended(
        kind="link",
        what="the sender to $management",
        condition="amqp:unauthorized-access",
        description="link disallowed",
    )


def test_a_closed_connection_gives_the_reason() -> None:
    session, peer = connected()
    peer.connection.condition = proton.Condition("amqp:connection:forced", "bye")
    peer.connection.close()
    peer.run()
    assert session.ended == Ended(kind="connection", condition="amqp:connection:forced", description="bye")
    assert session.is_closed


def test_closing_ends_in_both_directions() -> None:
    session, peer = connected()
    session.close()
    session.close()
    peer.run()
    assert session.is_closed
    assert session.ended is None
    assert peer.transport.closed


def test_heartbeats_are_empty_frames() -> None:
    session, peer = connected()
    session.send_heartbeat()
    frames = peer.transport.frames_input
    peer.run()
    assert peer.transport.frames_input == frames + 1


def test_the_peers_idle_timeout_is_known() -> None:
    session = new_session()
    peer = ProtonPeer(session)
    peer.transport.idle_timeout = 16
    peer.run()
    # proton announces half of what it enforces
    assert session.remote_idle_s == 8


# --- frames by hand ---------------------------------------------------------------------------------------------------


def frame(code: int, fields: Any, payload: bytes = b"", channel: int = 0) -> bytes:
    body = encode(Described(ulong(code), fields)) + payload
    return struct.pack(">IBBH", 8 + len(body), 2, 0, channel) + body


def handshake(channel: int = 7) -> bytes:
    source = Described(ulong(0x28), ["reply"])
    return AMQP_HEADER + b"".join(
        (
            frame(OPEN, ["r", None, uint(512)]),
            frame(BEGIN, [ushort(0), uint(0), uint(100), uint(100)], channel=channel),
            frame(ATTACH, ["replies", uint(44), False, None, None, source], channel=channel),
        )
    )


def test_the_peer_may_number_channels_and_handles_as_it_likes_and_send_byte_by_byte() -> None:
    session = new_session()
    for offset in range(len(handshake())):
        session.receive(handshake()[offset : offset + 1])
    assert session.reply_to == "reply"
    session.receive(frame(TRANSFER, [uint(44), uint(0), b"t", uint(0), True], b"hello", channel=7))
    assert session.take_message() == b"hello"


# --- what the peer begins by itself -----------------------------------------------------------------------------------


class BusyPeer(ProtonPeer):
    """Begins a session with a link of each direction before it answers ours, as a router does for auto links."""

    def on_event(self, event: Any) -> None:
        if event.type.name == "PN_CONNECTION_REMOTE_OPEN":
            event.connection.open()
            self.own = event.connection.session()
            self.own.open()
            self.giving, self.taking = self.own.sender("giving"), self.own.receiver("taking")
            self.giving.source.address = self.taking.source.address = "q"
            self.giving.open()
            self.taking.open()
            self.taking.flow(10)
            self.refusal: Any = None
        elif event.type.name == "PN_LINK_REMOTE_CLOSE" and event.link == self.giving:
            self.refusal = event.link.remote_condition
            event.link.close()
        elif event.type.name != "PN_LINK_REMOTE_OPEN" or event.link.session != self.own:
            super().on_event(event)


def test_links_that_a_router_attaches_by_itself_are_answered() -> None:
    """Issue 34, peer 9: a router with auto links for this connection"""
    session = new_session()
    peer = BusyPeer(session)
    peer.run()
    assert session.reply_to == "temp.1"
    active = proton.Endpoint.REMOTE_ACTIVE
    assert peer.own.state & active
    assert peer.taking.state & active
    assert (peer.taking.remote_source.address, peer.taking.credit) == ("q", 10)
    assert peer.giving.state & proton.Endpoint.REMOTE_CLOSED
    assert peer.giving.remote_target.type == proton.Terminus.UNSPECIFIED
    assert peer.refusal.name == "amqp:not-allowed"
    session.send_message("$management", b"request")
    peer.run()
    assert peer.received == [b"request"]
    peer.taking.close()
    peer.own.close()
    peer.run()
    assert peer.taking.state & proton.Endpoint.REMOTE_CLOSED
    assert peer.own.state & proton.Endpoint.REMOTE_CLOSED
    assert session.ended is None


BEGUN = [None, uint(0), uint(1), uint(1)]


@pytest.mark.parametrize(
    "data",
    [
        b"".join(frame(BEGIN, BEGUN, channel=channel) for channel in range(8, 40)),
        frame(BEGIN, BEGUN, channel=8) * 2,
        frame(BEGIN, BEGUN, channel=8) + frame(ATTACH, ["a", uint(256), False], channel=8),
        frame(BEGIN, BEGUN, channel=8) + frame(DETACH, ["a"], channel=8),
    ],
)
def test_a_router_begins_no_more_than_it_may(data: bytes) -> None:
    """Attack: a router that begins sessions and attaches links without end, each of which is kept."""
    session = new_session()
    session.receive(handshake())
    with pytest.raises(ProtocolError, match="more sessions or links"):
        session.receive(data)


def test_a_channel_that_is_ended_is_used_again() -> None:
    session = new_session()
    session.receive(handshake())
    for channel in range(100, 200):
        session.receive(frame(BEGIN, BEGUN, channel=channel))
        session.receive(frame(END, [], channel=channel))
    assert session.ended is None


# --- other frames -----------------------------------------------------------------------------------------------------


def test_an_aborted_message_never_arrives() -> None:
    session = new_session()
    session.receive(handshake())
    session.receive(frame(TRANSFER, [uint(44), uint(0), b"t", uint(0), True, True], b"he", channel=7))
    aborted = [uint(44), None, None, None, None, None, None, None, None, True]
    session.receive(frame(TRANSFER, aborted, channel=7))
    session.receive(frame(TRANSFER, [uint(44), uint(1), b"u", uint(0), True], b"next", channel=7))
    assert session.take_message() == b"next"
    assert session.take_message() is None


def test_an_echo_of_the_windows_is_given_when_asked_for() -> None:
    session = new_session()
    session.receive(handshake())
    session.take_output()
    session.receive(frame(FLOW, [uint(0), uint(5), uint(0), uint(5), None, None, None, None, None, True], channel=7))
    performative, _ = decode(session.take_output(), 8)
    assert performative.descriptor == FLOW


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"AMQP\x03\x01\x00\x00", "SASL"),
        (b"AMQP\x02\x01\x00\x00", "TLS"),
        (b"AMQP\x00\x00\x09\x01", "another version"),
        (b"HTTP/1.1", "does not speak AMQP"),
        (AMQP_HEADER + struct.pack(">IBBH", 7, 2, 0, 0), "frame of 7 bytes"),
        (AMQP_HEADER + struct.pack(">IBBH", MAX_FRAME_BYTES + 1, 2, 0, 0), "frame of"),
        (AMQP_HEADER + struct.pack(">IBBH", 8, 1, 0, 0), "frame of"),
        (AMQP_HEADER + struct.pack(">IBBH", 8, 3, 0, 0), "frame of"),
        (AMQP_HEADER + struct.pack(">IBBH", 8, 2, 1, 0), "type 1"),
        (AMQP_HEADER + struct.pack(">IBBH", 9, 2, 0, 0) + b"\xff", "malformed"),
        (AMQP_HEADER + struct.pack(">IBBH", 9, 2, 0, 0) + b"\x40", "no AMQP performative"),
        (AMQP_HEADER + frame(0x99, []), "no AMQP performative"),
        (AMQP_HEADER + frame(OPEN, {}), "no AMQP performative"),
        (AMQP_HEADER + frame(OPEN, ["r", None, "big"]), "number"),
        (AMQP_HEADER + frame(FLOW, []), "no session"),
        (handshake() + frame(TRANSFER, [uint(44)], channel=8), "no session"),
        (handshake() + frame(TRANSFER, [uint(45)], channel=7), "not the reply receiver"),
        (handshake() + frame(ATTACH, ["mine", uint(0), False], channel=7), "did not ask for"),
        (
            handshake() + frame(ATTACH, ["replies", uint(0), False, None, None, Described(ulong(0x28), [])], channel=7),
            "no address",
        ),
    ],
)
def test_what_the_peer_may_not_send_ends_the_session_with_a_reason(data: bytes, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        new_session().receive(data)


def test_a_reply_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a router that fills our memory with one message."""
    monkeypatch.setattr("router.amqp.client_session.MAX_MESSAGE_BYTES", 2**20)
    session = new_session()
    session.receive(handshake())
    more = frame(TRANSFER, [uint(44), uint(0), b"t", uint(0), True, True], bytes(60_000), channel=7)
    session.receive(more * 17)
    with pytest.raises(ProtocolError, match="larger than 1 MiB"):
        session.receive(more)


FIELD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(0, 3).map(uint),
    st.just(uint(44)),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.builds(Described, st.sampled_from([0x1D, 0x24, 0x25, 0x26, 0x28]).map(ulong), st.lists(st.none(), max_size=2)),
    st.just(Described(ulong(0x25), [Described(ulong(0x1D), [symbol("a:b"), "text"])])),
    st.just(Described(ulong(0x25), {})),
    st.lists(st.none(), max_size=2),
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(OPEN, CLOSE), st.lists(FIELD, max_size=11), st.integers(6, 7)), max_size=6))
def test_any_frames_are_taken_or_refused_with_a_protocol_error(frames: list[tuple[int, list[Any], int]]) -> None:
    session = new_session()
    session.receive(handshake())
    session.receive(frame(BEGIN, BEGUN, channel=6))  # one of the peer's own
    session.send_message("a", bytes(2000))
    try:
        for code, fields, channel in frames:
            session.receive(frame(code, fields, b"x", channel=channel))
            session.take_output()
    except ProtocolError:
        return


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_random_bytes_are_taken_or_refused_with_a_protocol_error(data: bytes) -> None:
    session = new_session()
    try:
        session.receive(AMQP_HEADER + data)
    except ProtocolError:
        return
