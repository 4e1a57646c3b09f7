"""How long answers to logins are held back. Spec: docs/spec/policy-and-auth.md §8.11."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from memory_net import Client, Net

from auth.credentials import Answer, ScramKeys, VerifyRequest, VerifyResult, unavailable
from auth.sasl_frames import Init, Outcome, encode
from policy.ban_set import parse_ban
from policy.failures import read_allow_list
from policy.hosts import HostRanges
from router.admission import guessing
from router.admission.guessing import (
    FORGET_S,
    FREE_OF_HOST,
    FREE_OF_USER,
    KNOWN_S,
    MAX_HELD_OF_HOST,
    MAX_HOSTS_OF_USER,
    Guesses,
    nobody_guesses,
)
from router.connection.accepted import Connection
from router.effects import AdmissionFailed

HOST, OTHER = "192.0.2.1", "192.0.2.2"
NOW = 1000.0


def made(max_delay_s: float = 5, spared: str = "") -> Guesses:
    chance = random.Random(1)
    return Guesses(max_delay_s, read_allow_list({"banAllowList": spared}), b"key", chance.randrange)


def spray(guesses: Guesses, user: str, hosts: int, now: float = NOW) -> None:
    for number in range(hosts):
        guesses.fail(f"198.51.100.{number}", user, now)


def delays(guesses: Guesses, host: str, user: str | None, now: float = NOW) -> tuple[float, float]:
    return guesses.delay(host, user, now, is_wrong=False), guesses.delay(host, user, now, is_wrong=True)


# A host


def test_a_host_waits_longer_and_longer_and_never_more_than_the_limit() -> None:
    guesses = made()
    waited = []
    for _ in range(15):
        guesses.fail(HOST, None, NOW)
        waited.append(guesses.delay(HOST, "alice", NOW, is_wrong=True))
    assert waited == [0.0] * FREE_OF_HOST + [0.25, 0.5, 1, 2, 4] + [5] * 7
    assert delays(guesses, OTHER, "alice") == (0, 0)


def test_a_right_answer_waits_as_long_as_a_wrong_one() -> None:
    """Attack: to hang up as soon as an answer is late, and try the next."""
    guesses = made()
    for _ in range(FREE_OF_HOST + 3):
        guesses.fail(HOST, "bob", NOW)
    assert delays(guesses, HOST, "alice") == (1, 1)


def test_failures_are_forgotten_one_by_one() -> None:
    guesses = made()
    for _ in range(FREE_OF_HOST + 100):
        guesses.fail(HOST, None, NOW)
    assert guesses.delay(HOST, "alice", NOW + 7 * FORGET_S, is_wrong=True) == 0.25
    assert guesses.delay(HOST, "alice", NOW + 8 * FORGET_S, is_wrong=True) == 0
    guesses.fail(HOST, None, NOW + 8 * FORGET_S)
    assert guesses.delay(HOST, "alice", NOW + 8 * FORGET_S, is_wrong=True) == 0.25


def test_one_site_of_ipv6_is_one_host() -> None:
    guesses = made()
    for number in range(FREE_OF_HOST + 1):
        guesses.fail(f"2001:db8::{number}", None, NOW)
    assert guesses.delay("2001:db8::ffff", "alice", NOW, is_wrong=True) == 0.25
    assert guesses.delay("2001:db8:0:1::", "alice", NOW, is_wrong=True) == 0


@pytest.mark.parametrize("host", ["192.0.2.7", "not numeric", ""])
def test_spared_hosts_and_those_without_an_address_are_neither_slowed_nor_counted(host: str) -> None:
    guesses = made(spared="192.0.2.7")
    for _ in range(50):
        guesses.fail(host, "alice", NOW)
    guesses.succeed(host, "alice", NOW)
    assert delays(guesses, host, "alice") == (0, 0)
    assert delays(guesses, OTHER, "alice") == (0, 0)
    held = guesses.hold(host, "alice", NOW)
    assert held is not None
    held()
    assert guesses.size == 0


def test_without_a_limit_nothing_is_counted() -> None:
    guesses = made(max_delay_s=0)
    spray(guesses, "alice", 100)
    assert guesses.size == 0
    assert delays(guesses, "198.51.100.1", "alice") == (0, 0)


# A user


def test_many_hosts_on_one_user_slow_that_user_alone() -> None:
    """Attack: password spraying, each host below its own limit."""
    guesses = made()
    spray(guesses, "alice", FREE_OF_USER)
    assert delays(guesses, HOST, "alice") == (0, 0)
    spray(guesses, "alice", 50)
    assert delays(guesses, HOST, "alice") == (5, 5)
    assert delays(guesses, HOST, "bob") == (0, 0)
    assert delays(guesses, HOST, None) == (0, 0)


def test_a_user_is_not_slowed_where_he_has_logged_in_well() -> None:
    """Attack: to keep alice out by failing in her name."""
    guesses = made()
    guesses.succeed(HOST, "alice", NOW)
    spray(guesses, "alice", 200)
    assert delays(guesses, HOST, "alice") == (0, 0)
    assert delays(guesses, OTHER, "alice") == (5, 5)
    assert delays(guesses, HOST, "alice", NOW + KNOWN_S + 1) == (0, 0)
    spray(guesses, "alice", 200, NOW + KNOWN_S + 1)
    assert delays(guesses, HOST, "alice", NOW + KNOWN_S + 1) == (5, 5)


def test_a_neighbour_behind_the_same_address_slows_newcomers_and_wrong_passwords() -> None:
    guesses = made()
    guesses.succeed(HOST, "alice", NOW)
    for _ in range(20):
        guesses.fail(HOST, "bob", NOW)
    assert delays(guesses, HOST, "alice") == (0, 5)
    assert delays(guesses, HOST, "bob") == (5, 5)


def test_guesses_at_a_user_from_his_own_host_slow_him_there() -> None:
    """Attack: from behind the address that alice logs in from. It slows nobody elsewhere."""
    guesses = made()
    guesses.succeed(HOST, "alice", NOW)
    for _ in range(FREE_OF_HOST):
        guesses.fail(HOST, "alice", NOW)
    assert delays(guesses, HOST, "alice") == (0, 0)
    for _ in range(20):
        guesses.fail(HOST, "alice", NOW)
    assert delays(guesses, HOST, "alice") == (5, 5)
    assert delays(guesses, OTHER, "alice") == (0, 0)


def test_a_success_forgets_no_failure() -> None:
    """Attack: an account of one's own, to log in with between guesses at others'."""
    guesses = made()
    for _ in range(20):
        guesses.fail(HOST, "alice", NOW)
    guesses.succeed(HOST, "mallory", NOW)
    assert delays(guesses, HOST, "alice") == (5, 5)
    assert delays(guesses, HOST, "mallory") == (0, 5)


def test_of_the_hosts_of_a_user_the_latest_are_known() -> None:
    guesses = made()
    hosts = [f"203.0.113.{number}" for number in range(MAX_HOSTS_OF_USER + 1)]
    for host in hosts:
        guesses.succeed(host, "alice", NOW)
        guesses.succeed(hosts[0], "alice", NOW)
    spray(guesses, "alice", 50)
    assert [delays(guesses, host, "alice")[0] for host in hosts] == [0, 5] + [0] * (MAX_HOSTS_OF_USER - 1)


# Bounds


def test_the_memory_is_bounded_and_those_under_attack_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: names and hosts made up, so that the failures of the victim are forgotten."""
    for name in ("MAX_HOSTS", "MAX_USERS", "MAX_KNOWN_USERS"):
        monkeypatch.setattr(guessing, name, 100)
    guesses = made()
    for _ in range(3):
        spray(guesses, "alice", 10)
    for number in range(3000):
        guesses.fail(f"10.1.{number // 250}.{number % 250}", f"made up {number}", NOW)
        guesses.succeed(f"10.2.{number // 250}.{number % 250}", f"somebody {number}", NOW)
    assert guesses.size == 300
    assert guesses.delay(HOST, "alice", NOW, is_wrong=True) == 5


def test_no_name_is_kept() -> None:
    guesses = made()
    guesses.fail(HOST, "alice the user", NOW)
    guesses.succeed(HOST, "bob the user", NOW)
    assert all(len(digest) == 16 for digest in (*guesses._users._members, *guesses._known))


def test_so_many_answers_of_a_host_wait_and_no_more() -> None:
    """Attack: hundreds of guesses side by side, which all wait at the same time."""
    guesses = made()
    guesses.succeed(HOST, "alice", NOW)
    held = [guesses.hold(HOST, f"user {number}", NOW) for number in range(MAX_HELD_OF_HOST)]
    assert None not in held
    assert guesses.hold(HOST, "bob", NOW) is None
    assert guesses.hold(OTHER, "bob", NOW) is not None
    assert guesses.hold(HOST, "alice", NOW) is not None, "never where the user has logged in well"
    for _ in range(2):
        let_go = held.pop()
        assert let_go is not None
        let_go()
    assert guesses.hold(HOST, "bob", NOW) is not None
    assert guesses.hold(HOST, "bob", NOW) is None


def test_a_router_that_has_just_started_counts_as_later() -> None:
    """The clock may begin at 0."""
    guesses = made()
    for _ in range(FREE_OF_HOST + 1):
        guesses.fail(HOST, None, 0.0)
    assert guesses.delay(HOST, "alice", 0.0, is_wrong=True) == 0.25
    assert guesses.delay(HOST, "alice", FORGET_S, is_wrong=True) == 0


@pytest.mark.parametrize("now", [NOW, 10 * KNOWN_S])
def test_a_host_is_known_for_so_long_however_long_the_machine_runs(now: float) -> None:
    guesses = made()
    guesses.succeed(HOST, "alice", now)
    spray(guesses, "alice", 200, now + KNOWN_S)
    assert delays(guesses, HOST, "alice", now + KNOWN_S) == (0, 0)
    assert delays(guesses, OTHER, "alice", now + KNOWN_S) == (5, 5)
    assert delays(guesses, HOST, "alice", now + KNOWN_S + 0.5)[0] > 0


def test_of_the_users_that_are_known_the_latest_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: logins of one's own, to push out where somebody else has logged in."""
    monkeypatch.setattr(guessing, "MAX_KNOWN_USERS", 2)
    guesses = made()
    for user in ("alice", "bob", "alice", "carol"):
        guesses.succeed(HOST, user, NOW)
    for user in ("alice", "bob", "carol"):
        spray(guesses, user, 200)
    assert [delays(guesses, HOST, user)[0] for user in ("alice", "bob", "carol")] == [0, 5, 0]


def test_names_are_kept_under_the_key_whatever_they_are() -> None:
    """Attack: to look a digest up that a memory dump shows."""
    first, second = (Guesses(5, HostRanges(), key, lambda _count: 0) for key in (b"one", b"two"))
    for guesses in (first, second):
        guesses.fail(HOST, "alice", NOW)
        guesses.fail(HOST, "\udc80", NOW)
    assert not first._users._members.keys() & second._users._members.keys()
    assert len(first._users) == 2


def test_where_nobody_guesses_nothing_is_counted() -> None:
    guesses = nobody_guesses()
    spray(guesses, "alice", 200)
    for _ in range(50):
        guesses.fail(HOST, "alice", NOW)
    assert delays(guesses, HOST, "alice") == (0, 0)
    assert guesses.hold(HOST, "alice", NOW) is not None
    assert guesses.size == 0


# Connections

SASL = b"AMQP\x03\x01\x00\x00"
WRONG, RIGHT = VerifyResult(is_valid=False), VerifyResult(is_valid=True)
KEYS = ScramKeys(salt=bytes(16), iterations=4096, stored_key=bytes(32), server_key=bytes(32), is_known=False)
DENIED, GRANTED = encode(Outcome(code=1)), encode(Outcome(code=0))
PLAIN = Init(mechanism="PLAIN", initial_response=b"\0alice\0perhaps")
SCRAM = Init(mechanism="SCRAM-SHA-256", initial_response=b"n,,n=alice,r=abcdefgh")


class Slowed:
    """A connection of a slowed host, whose password is being verified; its answer is to wait for two seconds."""

    def __init__(self, init: Init = PLAIN, **listener: Any) -> None:
        self.net = Net(mechanisms=lambda _channel: ("PLAIN", "SCRAM-SHA-256"), **listener)
        self.guesses = self.net.gate.guesses = made(max_delay_s=2)
        self.net.verify = self._verify
        self.init = init
        self.answers: list[Callable[[Answer], None]] = []
        self.net.remote_host = HOST
        for _ in range(50):
            self.guesses.fail(HOST, "somebody else", self.net.now)

    def _verify(
        self, _request: VerifyRequest, _host: str, _begins: Callable[[], bool], done: Callable[[Answer], None]
    ) -> Callable[[], None]:
        self.answers.append(done)
        return lambda: None

    def login(self) -> Client:
        client = self.net.client(opens=False)
        client.push_to_router = lambda: False  # type: ignore[method-assign]
        client.say(SASL + encode(self.init))
        return client

    def answer(self, result: Answer, number: int = -1) -> None:
        self.answers[number](result)
        self.net.work.finish()
        self.net.pump()

    @property
    def failures(self) -> int:
        return sum(isinstance(effect, AdmissionFailed) for effect in self.net.effects)

    @property
    def reasons(self) -> list[object]:
        return [event["reason"] for event in self.net.audits]

    def is_at_rest(self) -> bool:
        """Does nothing wait, and is no timer left?"""
        return not self.net.timers and not self.guesses._held


@pytest.mark.parametrize(("result", "outcome"), [(WRONG, DENIED), (RIGHT, GRANTED), (unavailable("so"), None)])
def test_the_answer_waits_and_then_comes(result: VerifyResult, outcome: bytes | None) -> None:
    scene = Slowed()
    client = scene.login()
    scene.answer(result)
    before = bytes(client.recorded)
    scene.net.advance(1.75)
    assert bytes(client.recorded) == before
    assert not scene.is_at_rest()
    scene.net.advance(0.5)
    told = bytes(client.recorded)[len(before) :]
    assert told == (outcome or encode(Outcome(code=4)))
    assert scene.failures == (1 if outcome == DENIED else 0)
    assert scene.is_at_rest()


def test_scram_waits_before_anything_is_compared() -> None:
    scene = Slowed(SCRAM)
    client = scene.login()
    scene.answer(KEYS)
    before = bytes(client.recorded)
    scene.net.advance(1.75)
    assert bytes(client.recorded) == before
    scene.net.advance(0.5)
    assert b"r=abcdefgh" in bytes(client.recorded)
    client.kill()
    assert scene.is_at_rest()


def test_a_wrong_password_counts_at_once_and_once() -> None:
    """Attack: to leave, or let the login time out, while the answer waits."""
    scene = Slowed()
    client = scene.login()
    scene.answer(WRONG)
    assert scene.failures == 1
    client.kill()
    assert scene.failures == 1
    assert scene.reasons == ["handshake_aborted"]
    assert scene.is_at_rest()
    scene.net.nothing_left()


def test_who_leaves_while_the_answer_waits_has_failed_though_it_is_right() -> None:
    scene = Slowed()
    client = scene.login()
    scene.answer(RIGHT)
    assert scene.failures == 0
    client.kill()
    assert scene.failures == 1
    assert scene.is_at_rest()


@pytest.mark.parametrize("close", [Connection.force_close, Connection.close_for_shutdown])
def test_nothing_waits_for_a_connection_that_the_router_closes(close: Callable[[Connection], None]) -> None:
    scene = Slowed()
    client = scene.login()
    scene.answer(RIGHT)
    close(client.router)
    scene.net.work.finish()
    client.kill()
    assert scene.failures == 0
    assert scene.is_at_rest()
    scene.net.nothing_left()


def test_more_bytes_than_are_kept_meanwhile_end_the_waiting() -> None:
    scene = Slowed()
    client = scene.login()
    scene.answer(WRONG)
    client.say(bytes(66_000))
    scene.net.pump()
    assert scene.reasons == ["preauth_buffer_exceeded"]
    assert scene.failures == 1
    assert scene.is_at_rest()


def test_the_answer_comes_before_the_deadline_of_the_login() -> None:
    scene = Slowed(handshake_timeout_s=3)
    client = scene.login()
    scene.net.advance(2)
    scene.answer(WRONG)
    scene.net.advance(0.75)
    assert bytes(client.recorded).endswith(DENIED)
    assert scene.reasons == ["sasl_failed"]


def test_a_host_that_is_banned_meanwhile_does_not_learn_that_its_password_is_right() -> None:
    scene = Slowed()
    client = scene.login()
    scene.answer(RIGHT)
    scene.net.gate.bans.bans.add(parse_ban("b", HOST, None, None, 0.0))
    scene.net.advance(3)
    assert GRANTED not in bytes(client.recorded)
    assert scene.reasons == ["banned"]
    assert scene.is_at_rest()


def test_a_wrong_password_is_recorded_as_such_though_it_brought_the_ban() -> None:
    scene = Slowed()
    scene.login()
    scene.answer(WRONG)
    scene.net.gate.bans.bans.add(parse_ban("b", HOST, None, None, 0.0))
    scene.net.advance(3)
    assert scene.reasons == ["sasl_failed"]


@pytest.mark.parametrize("result", [WRONG, RIGHT, KEYS])
def test_beyond_so_many_that_wait_none_is_answered(result: Answer) -> None:
    scene = Slowed(SCRAM if result is KEYS else PLAIN)
    clients = [scene.login() for _ in range(MAX_HELD_OF_HOST + 3)]
    for number in range(len(clients)):
        scene.answer(result, number)
    refused = [encode(Outcome(code=4)) in bytes(client.recorded) for client in clients]
    assert refused == [False] * MAX_HELD_OF_HOST + [True] * 3
    assert scene.reasons == ["too_many_guesses"] * 3
    events = scene.net.audits
    assert events[0]["detail"].startswith("too many logins of this host have failed")
    scene.net.advance(3)
    assert scene.is_at_rest()


def test_a_user_who_logs_in_is_known_there() -> None:
    scene = Slowed()
    scene.login()
    scene.answer(RIGHT)
    scene.net.advance(3)
    scene.login()
    scene.answer(RIGHT)
    assert scene.is_at_rest()
    assert scene.reasons == []


def test_without_guesses_nothing_is_slowed() -> None:
    assert made().delay(HOST, "alice", NOW, is_wrong=True) == 0
    assert Guesses(5, HostRanges(), b"", lambda _: 0).size == 0
