"""Attack: a peer guesses passwords at the service of an authServicePlugin, which does not know the guessing hosts."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import raw_peer
from daemon_process import LISTENER, Daemon, Started, audit_events
from raw_peer import RawPeer, frame
from server_peer import INIT, MECHANISMS, OUTCOME, Call, serving

from router.values import Array, symbol, ubyte

CHALLENGE, RESPONSE = 0x42, 0x43
OK, AUTH = 0, 1
DELAY_S = 2
GUESSER, OFFICE = "127.0.3.1", "127.0.3.2"


def service(call: Call) -> None:
    """Lets in by PLAIN whose password is `right`; by SCRAM-SHA-256 challenges, and refuses the proof."""
    assert call.read(8) == raw_peer.SASL
    names = (symbol("PLAIN"), symbol("SCRAM-SHA-256"))
    call.send(raw_peer.SASL + frame(MECHANISMS, Array(symbol, names), kind=1))
    mechanism, response, *_ = call.expect(INIT)
    if mechanism == "PLAIN":
        is_right = response.endswith(b"\0right")
    else:
        call.send(frame(CHALLENGE, b"r=abcdef,s=QUJD,i=4096", kind=1))
        call.expect(RESPONSE)
        is_right = False
    call.send(frame(OUTCOME, ubyte(OK if is_right else AUTH), kind=1))
    if is_right:
        call.open(properties={"authenticated-identity": {symbol("sub"): "alice"}})
    call.stay()


@contextmanager
def started(daemon: Started, tmp_path: Path, delay: int = DELAY_S) -> Iterator[Daemon]:
    (tmp_path / "audit").mkdir()
    with serving(service) as remote:
        yield daemon(
            f"router {{\n auditDir: {tmp_path}/audit\n}}\n"
            f"policy {{\n maxLoginDelaySeconds: {delay}\n banAllowList: 127.0.0.1\n}}\n"
            f"authServicePlugin {{\n name: remote\n host: 127.0.0.1\n port: {remote.port}\n}}\n"
            "listener {\n name: login\n host: 127.0.0.1\n port: 0\n authenticatePeer: yes\n saslPlugin: remote\n}\n"
            + LISTENER
        )


@contextmanager
def asking(router: Daemon, host: str, init: bytes) -> Iterator[RawPeer]:
    with socket.create_connection(("127.0.0.1", router.port("login")), 10, source_address=(host, 0)) as connected:
        peer = RawPeer(connected, 0)
        peer.send(raw_peer.SASL)
        peer.read_until(MECHANISMS)
        peer.received = b""
        peer.send(init)
        yield peer


def log_in(router: Daemon, host: str, password: str, user: str = "alice") -> tuple[int, float]:
    """The outcome, and after how many seconds it came."""
    began = time.monotonic()
    with asking(router, host, raw_peer.plain(user, password)) as peer:
        (code, *_) = peer.read_until(OUTCOME)
    return int(code), time.monotonic() - began


def test_answers_wait_right_ones_as_wrong_ones(tmp_path: Path, daemon: Started) -> None:
    with started(daemon, tmp_path) as router:
        assert log_in(router, OFFICE, "right")[0] == OK
        for _ in range(8):
            with asking(router, GUESSER, raw_peer.plain("alice", "perhaps")):
                router.wait_for_log(r"127\.0\.3\.1:\d+")
        outcomes = [log_in(router, GUESSER, password) for password in ("perhaps", "right")]
        assert [code for code, _ in outcomes] == [AUTH, OK]
        assert all(DELAY_S / 2 < seconds < DELAY_S + 5 for _, seconds in outcomes), outcomes
        outcome, seconds = log_in(router, OFFICE, "right")
        assert outcome == OK
        assert seconds < DELAY_S / 2, "alice is not slowed where she has logged in"


def test_without_delays_nothing_waits(tmp_path: Path, daemon: Started) -> None:
    with started(daemon, tmp_path, delay=0) as router:
        assert sum(log_in(router, GUESSER, "perhaps")[1] for _ in range(8)) < DELAY_S


def test_scram_waits_before_anything_is_compared(tmp_path: Path, daemon: Started) -> None:
    """The service's first challenge is held back: its second one would tell by itself that the proof was right."""
    init = raw_peer.sasl_init("SCRAM-SHA-256", b"n,,n=alice,r=abc")
    with started(daemon, tmp_path) as router:
        for _ in range(8):
            assert log_in(router, GUESSER, "perhaps", user="bob")[0] == AUTH
        began = time.monotonic()
        with asking(router, GUESSER, init) as peer:
            peer.read_until(CHALLENGE)
            assert time.monotonic() - began > DELAY_S / 2
            peer.send(frame(RESPONSE, b"c=biws,r=abcdef,p=AAAA", kind=1))
            began = time.monotonic()
            peer.read_until(OUTCOME)
            assert time.monotonic() - began < DELAY_S / 2


def test_beside_each_other_they_get_no_answer(tmp_path: Path, daemon: Started) -> None:
    with started(daemon, tmp_path) as router:
        for _ in range(5):
            log_in(router, GUESSER, "perhaps")
        guesses = [asking(router, GUESSER, raw_peer.plain("alice", "perhaps")) for _ in range(20)]
        peers = [each.__enter__() for each in guesses]
        for peer in peers:
            assert int(peer.read_until(OUTCOME)[0]) == AUTH
        for each in guesses:
            each.__exit__(None, None, None)
        router.end()
    reasons = [each["reason"] for each in audit_events(tmp_path / "audit") if each["decision"] == "deny"]
    assert "too_many_guesses" in reasons
