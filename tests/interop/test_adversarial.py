"""Peers that are broken, slow or hostile: each loses its own connection, in time and on record, and nothing else.

All the while a well-behaved client exchanges messages through the same router. Listeners give a peer one second to
reach its Open and two seconds of silence after it.
"""

import random
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import raw_peer
from certificates import Certificates
from companion import Companion, companion_of
from harness import HANDSHAKE_TIMEOUT, RunningRouter, Timeouts, connect, eventually, running_router
from raw_peer import AMQP, SASL, TLS, RawPeer

from router.values import Described

HANDSHAKE_S, IDLE_S = 1, 2
# Both timeouts are kept in steps of a quarter of a second, on a machine that may be busy.
SLACK_S = 2.0
CLIENT_HELLO = struct.pack(">BHH", 22, 0x0301, 512) + b"\x01\x00\x01\xfc\x03\x03" + bytes(100)


@pytest.fixture(scope="module")
def hostile_router(
    certificates: Certificates, router_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningRouter]:
    with running_router(
        tmp_path_factory.mktemp("router"),
        certificates,
        python=router_python,
        timeouts=Timeouts(handshake_s=HANDSHAKE_S, idle_s=IDLE_S),
        expected_errors=[HANDSHAKE_TIMEOUT],
    ) as running:
        yield running


@pytest.fixture(scope="module")
def companion(hostile_router: RunningRouter) -> Iterator[Companion]:
    with companion_of(hostile_router) as running:
        yield running


@pytest.fixture
def router(hostile_router: RunningRouter, companion: Companion) -> Iterator[RunningRouter]:
    """The router of this module; after each test the companion must still be served as before."""
    yield hostile_router
    companion.assert_undisturbed()
    assert companion.longest_gap_s < 1.0, "the router kept a well-behaved client waiting"


def assert_refused(router: RunningRouter, peer: RawPeer, *, within_s: float, log: str = "") -> dict[str, Any]:
    """The router closes the connection in time, and a log line and an audit event, which is returned, say so."""
    peer.seconds_until_closed(within_s)
    failed = rf"SERVER \(info\) \[C(\d+)\] Connection from {peer.name} \(to \S+\) failed: .*{log}"
    number = int(router.wait_for_log(failed, since=peer.since)[1])
    event = router.wait_for_audit(connection=number)
    assert (event["connection_name"], event["decision"]) == (peer.name, "deny")
    return event


AT_ONCE_S = SLACK_S
IN_THE_HANDSHAKE_S = HANDSHAKE_S + SLACK_S


# What is not AMQP


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    "start", [b"", SASL, SASL + raw_peer.sasl_init("ANONYMOUS") + AMQP], ids=["first", "in SASL", "in AMQP"]
)
def test_random_bytes_end_their_connection(start: bytes, seed: int, router: RunningRouter) -> None:
    noise = random.Random(seed)
    with raw_peer.raw_peer(router, "clear") as peer:
        peer.send(start + noise.randbytes(noise.randrange(8, 4000)))
        assert_refused(router, peer, within_s=IN_THE_HANDSHAKE_S)


@pytest.mark.parametrize("seed", range(5))
def test_random_bytes_inside_tls_end_their_connection(seed: int, router: RunningRouter) -> None:
    with raw_peer.raw_peer(router, "password", is_encrypted=True) as peer:
        peer.send(random.Random(seed).randbytes(1000))
        event = assert_refused(router, peer, within_s=IN_THE_HANDSHAKE_S)
    assert event["is_encrypted"] is True


@pytest.mark.parametrize("seed", range(5))
def test_random_bytes_after_the_open_end_their_connection(seed: int, router: RunningRouter) -> None:
    with raw_peer.raw_peer(router, "clear") as peer:
        peer.send(raw_peer.IN_SESSION)
        peer.read_until(raw_peer.BEGIN)
        peer.send(b"\xff" + random.Random(seed).randbytes(1000))
        event = assert_refused(router, peer, within_s=IDLE_S + SLACK_S)
    assert event["stage"] == "engine"


@pytest.mark.parametrize(
    "header",
    [
        b"AMQP\x00\x00\x09\x01",
        b"AMQP\x01\x01\x00\x0a",
        b"AMQP\x00\x01\x01\x00",
        b"AMQP\x03\x01\x00\x01",
        b"MQTT\x00\x01\x00\x00",
    ],
    ids=["0-9-1", "0-10", "1.1.0", "SASL 1.0.1", "MQTT"],
)
def test_a_wrong_protocol_header_is_answered_with_the_right_one(header: bytes, router: RunningRouter) -> None:
    with raw_peer.raw_peer(router, "clear") as peer:
        peer.send(header)
        event = assert_refused(router, peer, within_s=AT_ONCE_S, log="Expected AMQP protocol header")
    assert peer.received == AMQP
    assert event["reason"] == "unexpected_header"


def test_an_http_request_is_refused(router: RunningRouter) -> None:
    with raw_peer.raw_peer(router, "clear") as peer:
        peer.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert_refused(router, peer, within_s=AT_ONCE_S, log="Expected AMQP protocol header")
    assert b"HTTP" not in peer.received


# Frames of the wrong size

LOGIN = SASL + raw_peer.sasl_init("ANONYMOUS") + AMQP + raw_peer.open_frame()


def test_a_login_that_breaks_off_is_closed_in_time(router: RunningRouter) -> None:
    """Truncated after every byte of it, each on a connection of its own, and then silence."""
    with ExitStack() as stack:
        peers = [stack.enter_context(raw_peer.raw_peer(router, "clear")) for _ in LOGIN]
        for keep, peer in enumerate(peers):
            peer.send(LOGIN[:keep])
        for peer in peers:
            event = assert_refused(
                router, peer, within_s=IN_THE_HANDSHAKE_S, log="Timeout waiting for initial handshake"
            )
            assert event["reason"] == "handshake_timeout"


@pytest.mark.parametrize(
    ("start", "frame_header"),
    [
        (SASL, b"\xff\xff\xff\xff\x02\x01\x00\x00"),
        (SASL, b"\x00\x01\x00\x01\x02\x01\x00\x00"),
        (SASL, b"\x00\x00\x00\x07\x02\x01\x00\x00"),
        (SASL + raw_peer.sasl_init("ANONYMOUS") + AMQP, b"\xff\xff\xff\xff\x02\x00\x00\x00"),
        (SASL + raw_peer.sasl_init("ANONYMOUS") + AMQP, b"\x00\x00\x00\x07\x02\x00\x00\x00"),
        (SASL + raw_peer.sasl_init("ANONYMOUS") + AMQP, b"\x00\x00\x00\x20\xff\x00\x00\x00" + bytes(24)),
    ],
    ids=["4 GiB SASL", "over 64 KiB SASL", "7 B SASL", "4 GiB before Open", "7 B before Open", "data offset"],
)
def test_a_frame_of_an_impossible_size_is_refused_at_once(
    start: bytes, frame_header: bytes, router: RunningRouter
) -> None:
    """The size alone is enough: nothing is collected for it (attack: filling memory before authentication)."""
    with raw_peer.raw_peer(router, "clear") as peer:
        peer.send(start + frame_header)
        assert_refused(router, peer, within_s=0.9 * HANDSHAKE_S, log="amqp:connection:framing-error")


def test_a_frame_larger_than_was_agreed_is_refused_at_once(router: RunningRouter) -> None:
    """Offered max-frame-size 16384; one more byte would be held for a peer that never sends it."""
    with raw_peer.raw_peer(router, "clear") as peer:
        peer.send(raw_peer.IN_SESSION)
        peer.read_until(raw_peer.BEGIN)
        peer.send((16385).to_bytes(4, "big") + b"\x02\x00\x00\x00" + bytes(4000))
        assert_refused(router, peer, within_s=0.9 * IDLE_S)


# Peers that stall


@pytest.mark.parametrize(
    ("listener", "is_encrypted", "start"),
    [
        ("clear", False, b""),
        ("password", False, b""),
        ("password", False, CLIENT_HELLO[:1]),
        ("password", False, CLIENT_HELLO),
        ("password", False, TLS),
        ("password", True, b""),
        ("password", True, SASL),
        ("password", True, SASL + raw_peer.plain("alice", "alice's password")[:20]),
        ("password", True, SASL + raw_peer.plain("alice", "alice's password")),
        ("password", True, SASL + raw_peer.plain("alice", "alice's password") + AMQP),
        ("password", True, SASL + raw_peer.plain("alice", "alice's password") + AMQP + raw_peer.open_frame()[:-1]),
    ],
    ids=[
        *("nothing at all", "nothing, where TLS is awaited", "one byte of TLS", "half a ClientHello"),
        *("the AMQP TLS header", "after TLS", "after the SASL header", "in the middle of SASL", "after SASL"),
        *("after the AMQP header", "in the middle of the Open"),
    ],
)
def test_a_peer_that_stalls_before_its_open_is_closed_in_time(
    listener: str, is_encrypted: bool, start: bytes, router: RunningRouter
) -> None:
    """policy 8.4."""
    with raw_peer.raw_peer(router, listener, is_encrypted=is_encrypted) as peer:
        peer.send(start)
        event = assert_refused(router, peer, within_s=IN_THE_HANDSHAKE_S, log="Timeout waiting for initial handshake")
    assert event["reason"] == "handshake_timeout"


def test_a_peer_that_never_finished_tls_is_not_recorded_as_encrypted(router: RunningRouter) -> None:
    """`is_encrypted` is: whether TLS was up (schemas/audit_event.json)."""
    with raw_peer.raw_peer(router, "password") as peer:
        peer.send(CLIENT_HELLO)
        event = assert_refused(router, peer, within_s=IN_THE_HANDSHAKE_S)
    assert event["is_encrypted"] is False


def test_dripping_bytes_buys_no_more_time(router: RunningRouter) -> None:
    """Attack: slow loris. The deadline is that of the whole handshake."""
    with raw_peer.raw_peer(router, "clear") as peer:
        peer.drip(LOGIN, pause_s=0.2)
        assert_refused(router, peer, within_s=SLACK_S, log="Timeout waiting for initial handshake")
    assert len(LOGIN) * 0.2 > IN_THE_HANDSHAKE_S


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_a_peer_that_stalls_in_the_middle_of_a_message_is_closed_in_time(
    is_encrypted: bool, router: RunningRouter
) -> None:
    """In the clear and inside TLS, which is as far as its silence counts."""
    login, address = (raw_peer.IN_SESSION, "guests.half")
    if is_encrypted:
        login = login.replace(raw_peer.sasl_init("ANONYMOUS"), raw_peer.plain("alice", "alice's password"))
        address = "orders.half"
    with raw_peer.raw_peer(router, "password" if is_encrypted else "clear", is_encrypted=is_encrypted) as peer:
        peer.send(login + raw_peer.attach_sender(address))
        peer.read_until(raw_peer.ATTACH)
        peer.send(raw_peer.transfer(b"\x00\x53\x75\xb0\x00\x00\xff\xff" + bytes(1000), is_last=False))
        event = assert_refused(router, peer, within_s=IDLE_S + SLACK_S, log="amqp:resource-limit-exceeded")
    assert event["stage"] == "engine"


def test_two_hundred_silent_connections_are_all_closed_and_leave_nothing(router: RunningRouter) -> None:
    files, memory_kb = router.open_files(), router.resident_kb()
    with ExitStack() as stack:
        since = router.mark()
        peers = [RawPeer(stack.enter_context(connect(router, "clear")), since) for _ in range(200)]
        for peer in peers:
            peer.seconds_until_closed(IN_THE_HANDSHAKE_S)
        names = {peer.name for peer in peers}
        first = int(router.wait_for_log(r"\[C(\d+)\] Accepted", since=since)[1])
    assert eventually(lambda: router.open_files() <= files, 5.0), "the sockets were not given back"
    assert router.resident_kb() < memory_kb + 20_000

    def denied() -> bool:
        events = router.audit_events()
        recorded = [
            event for event in events if event["reason"] == "handshake_timeout" and event["connection"] >= first
        ]
        return names <= {event["connection_name"] for event in recorded}

    assert eventually(denied, 10.0), "not every one of them was recorded"


# Peers that speak AMQP and break its rules


def test_sending_without_credit_ends_the_link(router: RunningRouter) -> None:
    """Nobody receives from the address, so no credit was given. What comes all the same is not kept: first released,
    and then the link is closed (attack: filling memory with messages for nobody).
    """
    memory_kb = router.resident_kb()
    with raw_peer.raw_peer(router, "clear") as peer:
        peer.send(raw_peer.IN_SESSION + raw_peer.attach_sender("guests.nobody"))
        peer.read_until(raw_peer.ATTACH)
        for number in range(1000):
            peer.send(raw_peer.transfer(b"\x00\x53\x75\xb0\x00\x00\x27\x10" + bytes(10_000), number=number))
        _, is_closed, error = peer.read_until(raw_peer.DETACH)
        assert is_closed is True
        assert isinstance(error, Described)
        assert error.value[0] == "amqp:link:transfer-limit-exceeded"
        assert_refused(router, peer, within_s=IDLE_S + SLACK_S)
    assert router.resident_kb() < memory_kb + 5_000


@pytest.mark.parametrize(
    "response",
    [
        b"\0alice\0",
        b"\0\0alice's password",
        b"\0\0",
        b"",
        b"alice",
        b"\0alice\0alice's password\0",
        b"\0alice\0alice's\0password",
        b"\0alice\0\xff\xfe",
        b"bob\0alice\0alice's password",
        b"\0" + b"a" * 400 + b"\0x",
    ],
    ids=[
        *(
            "empty password",
            "empty user",
            "both empty",
            "nothing",
            "no separators",
            "a third part",
            "NUL in the password",
        ),
        *("not UTF-8", "another authorization id", "long user"),
    ],
)
def test_odd_plain_responses_let_nobody_in(response: bytes, router: RunningRouter) -> None:
    """policy 8.1, 8.2: refused by the outcome, closed, on record."""
    with raw_peer.raw_peer(router, "password", is_encrypted=True) as peer:
        peer.send(SASL + raw_peer.sasl_init("PLAIN", response) + AMQP + raw_peer.open_frame())
        event = assert_refused(router, peer, within_s=IN_THE_HANDSHAKE_S)
    assert event["stage"] == "sasl"
    codes = [code for code, _ in peer.performatives()]
    assert raw_peer.OPEN not in codes, "the Open was answered"


@pytest.mark.parametrize("where", ["user", "mechanism"])
def test_a_megabyte_of_user_or_mechanism_is_refused_and_not_kept(where: str, router: RunningRouter) -> None:
    """Attack: filling memory, log and audit records before authentication."""
    memory_kb = router.resident_kb()
    huge = "u" * 1_000_000
    init = raw_peer.plain(huge, "x") if where == "user" else raw_peer.sasl_init(huge)
    with raw_peer.raw_peer(router, "password", is_encrypted=True) as peer:
        peer.send(SASL + init)
        event = assert_refused(router, peer, within_s=IN_THE_HANDSHAKE_S)
    assert len(str(event)) < 4000
    assert not router.has_logged("u{1000}")
    assert router.resident_kb() < memory_kb + 10_000


def test_tls_1_0_is_refused_by_its_client_hello(router: RunningRouter) -> None:
    """policy 47: no protocols are configured, and the default does not go back that far."""
    ciphers = b"\x00\x2f\x00\x35\xc0\x13\xc0\x14\xc0\x09\xc0\x0a"
    hello = b"\x03\x01" + bytes(32) + b"\x00" + struct.pack(">H", len(ciphers)) + ciphers + b"\x01\x00"
    handshake = b"\x01" + len(hello).to_bytes(3, "big") + hello
    with raw_peer.raw_peer(router, "password") as peer:
        peer.send(b"\x16\x03\x01" + struct.pack(">H", len(handshake)) + handshake)
        event = assert_refused(router, peer, within_s=AT_ONCE_S, log="SSL Failure")
    assert event["reason"] == "tls_handshake_failed"
    # A fatal alert: protocol_version.
    assert peer.received[0] == 21
    assert peer.received[5:7] == b"\x02\x46"


def test_clear_text_where_tls_is_required_is_refused(router: RunningRouter) -> None:
    """policy 46."""
    with raw_peer.raw_peer(router, "password") as peer:
        peer.send(SASL + raw_peer.plain("alice", "alice's password"))
        event = assert_refused(router, peer, within_s=AT_ONCE_S, log="Client connection unencrypted - forbidden")
    assert event["reason"] == "encryption_required"


def test_skipping_sasl_where_it_is_required_is_refused(router: RunningRouter) -> None:
    """policy 53."""
    with raw_peer.raw_peer(router, "password", is_encrypted=True) as peer:
        peer.send(AMQP + raw_peer.open_frame())
        event = assert_refused(router, peer, within_s=AT_ONCE_S, log="Client skipped authentication - forbidden")
    assert event["reason"] == "authentication_required"


def test_resets_in_every_stage_leave_nothing(router: RunningRouter) -> None:
    """RST instead of an end: what each connection held is given back."""
    files = router.open_files()
    for keep in range(0, len(raw_peer.IN_SESSION), 7):
        with raw_peer.raw_peer(router, "clear") as peer:
            peer.send(raw_peer.IN_SESSION[:keep])
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert eventually(lambda: router.open_files() <= files, 5.0)
