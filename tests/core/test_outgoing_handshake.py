"""A connection the router makes, before it is open (docs/spec/routing.md §1.9), in memory and by our own clock."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from memory_net import Net, frames

from auth.tls import TlsTunnel
from router.admission.connection_gate import ConnectionGate
from router.amqp import headers
from router.amqp.codec import encode
from router.connection.outgoing import HANDSHAKE_LIMIT_S, Connector, Outgoing
from router.connection.stack import Stage
from router.effects import Log
from router.values import Described, symbol, ubyte, ulong


@dataclass
class Attempt:
    """One Outgoing with its wires in our hands."""

    net: Net
    written: bytearray = field(default_factory=bytearray)
    failures: list[str] = field(default_factory=list)
    closed: int = 0

    def __post_init__(self) -> None:
        self.outgoing = self.make()

    def make(self, **connector: Any) -> Outgoing:
        gate = ConnectionGate(
            self.net.gate,
            connection_id=7,
            connection_name="server:5672",
            remote_host="",
            listener="server:5672",
            is_governed=False,
            is_accepted=False,
        )
        return Outgoing(
            host="server",
            connector=Connector(name="out", host="server", port="5672", **connector),
            gate=gate,
            surroundings=self.net.surroundings,
            write=self.written.extend,
            close=self.close,
            on_opened=lambda _stack: None,
            on_failed=self.failures.append,
        )

    def close(self) -> None:
        self.closed += 1

    def say(self, data: bytes) -> None:
        self.outgoing.receive(data)
        self.net.work.finish()


@pytest.fixture
def attempt() -> Attempt:
    return Attempt(Net())


def test_sasl_goes_first_and_nothing_follows_unasked(attempt: Attempt) -> None:
    """routing 1, policy §8b"""
    attempt.outgoing.start()
    assert attempt.written == headers.SASL
    attempt.say(headers.SASL)
    assert attempt.written == headers.SASL


def test_a_server_that_says_nothing_is_given_up(attempt: Attempt) -> None:
    """routing 18, 19: after 30 s, not a moment before; then the connector tries again."""
    attempt.outgoing.start()
    begun = attempt.net.now
    assert attempt.outgoing.on_timer(begun + HANDSHAKE_LIMIT_S - 0.1) == begun + HANDSHAKE_LIMIT_S
    assert attempt.closed == 0
    assert attempt.outgoing.on_timer(begun + HANDSHAKE_LIMIT_S) is None
    attempt.net.work.finish()
    assert attempt.closed == 1
    assert attempt.failures == [
        "[C7] Connection to server:5672 failed: amqp:not-allowed Timeout waiting for initial handshake"
    ]


@pytest.mark.parametrize("size", [1, 3, 8])
def test_the_servers_bytes_may_come_in_any_pieces(attempt: Attempt, size: int) -> None:
    """routing 19: an answer that is none is seen as such whatever the pieces."""
    attempt.outgoing.start()
    answer = b"HTTP/1.1 400 Bad Request\r\n"
    for at in range(0, len(answer), size):
        attempt.say(answer[at : at + size])
    assert attempt.outgoing.stage is Stage.CLOSED
    assert attempt.closed == 1
    assert len(attempt.failures) == 1
    assert "Expected SASL protocol header" in attempt.failures[0]


def test_a_lost_connection_is_said_once(attempt: Attempt) -> None:
    """routing 19"""
    attempt.outgoing.start()
    attempt.outgoing.on_lost()
    text = "Connection to server:5672 failed: amqp:connection:framing-error connection aborted"
    assert attempt.failures == [f"[C7] {text}"]
    logs = [effect.text for effect in attempt.net.effects if isinstance(effect, Log) and effect.module == "SERVER"]
    assert logs == attempt.failures


def test_a_deleted_connectors_connection_fails_nobody(attempt: Attempt) -> None:
    """routing 24"""
    attempt.outgoing.start()
    attempt.outgoing.close_for_shutdown()
    attempt.net.work.finish()
    attempt.outgoing.on_lost()
    assert attempt.closed == 1
    assert attempt.failures == []


def test_a_broken_profile_is_the_callers_to_say(attempt: Attempt) -> None:
    """policy 50: nothing is written, least of all in the clear."""

    class Broken(Exception):
        pass

    def tunnel(host: str) -> TlsTunnel:
        raise Broken(host)

    attempt.outgoing = attempt.make(tunnel=tunnel)
    with pytest.raises(Broken, match="server"):
        attempt.outgoing.start()
    assert attempt.written == b""


@pytest.mark.parametrize("role", ["normal", "route-container", "edge", "inter-router"])
def test_the_servers_sessions_are_those_of_the_connector(attempt: Attempt, role: str) -> None:
    """routing 7: its channel-max is maxSessions - 1, whatever the role (issue 34, peer 11)"""
    attempt.outgoing = attempt.make(role=role, channel_max=19)
    attempt.outgoing.start()
    said = (Described(ulong(0x40), [symbol("ANONYMOUS")]), Described(ulong(0x44), [ubyte(0)]))
    attempt.say(headers.SASL)
    for each in map(encode, said):
        attempt.say((8 + len(each)).to_bytes(4, "big") + b"\x02\x01\x00\x00" + each)
    attempt.say(headers.AMQP)
    begin = attempt.written.index(headers.AMQP)
    (opening,) = [frame for frame in frames(bytes(attempt.written[begin:])) if frame.name == "open"]
    assert opening[3] == 19
