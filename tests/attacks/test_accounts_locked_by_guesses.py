"""Attack: a directory counts wrong passwords and locks the account. One host locked 60 of 60 accounts within 5 s, for
the router held its answers back and asked the directory all the same.
"""

from collections import Counter
from collections.abc import Callable

import pytest
from memory_net import Client, Net

from auth.credentials import Answer, CheckPassword, VerifyRequest, VerifyResult
from auth.sasl_frames import Init, encode
from policy.hosts import HostRanges
from router.admission.guessing import FREE_OF_HOST, MAX_HELD_OF_HOST, Guesses

SASL = b"AMQP\x03\x01\x00\x00"
ATTACKER, OFFICE = "192.0.2.66", "192.0.2.1"
USERS, TRIES, THREADS = 60, 5, 2


class Directory:
    """Has two threads for a host, and locks an account after five wrong passwords."""

    def __init__(self) -> None:
        self.net = Net(mechanisms=lambda _channel: ("PLAIN",), handshake_timeout_s=30)
        self.net.gate.guesses = Guesses(5, HostRanges(), b"key", lambda _count: 0)
        self.net.verify = self._verify
        self.failures: Counter[str] = Counter()
        self._waiting: list[tuple[VerifyRequest, Callable[[], bool], Callable[[Answer], None]]] = []

    @property
    def locked(self) -> list[str]:
        return [user for user, count in self.failures.items() if count >= TRIES]

    def _verify(
        self, request: VerifyRequest, _host: str, begins: Callable[[], bool], done: Callable[[Answer], None]
    ) -> Callable[[], None]:
        self._waiting.append((request, begins, done))
        return lambda: None

    def login(self, host: str, user: str, password: str = "wrong") -> Client:
        self.net.remote_host = host
        client = self.net.client(opens=False)
        client.push_to_router = lambda: False  # type: ignore[method-assign]
        client.say(SASL + encode(Init(mechanism="PLAIN", initial_response=f"\0{user}\0{password}".encode())))
        return client

    def work(self) -> None:
        """Ask about all that wait, as many at a time as there are threads."""
        while self._waiting:
            asked = []
            for request, begins, done in [self._waiting.pop(0) for _ in range(min(THREADS, len(self._waiting)))]:
                if begins():
                    assert isinstance(request, CheckPassword)
                    is_right = request.password.reveal() == "right"
                    self.failures[request.user] += not is_right
                    asked.append((done, VerifyResult(is_valid=is_right)))
            for done, answer in asked:
                done(answer)
        self.net.work.finish()
        self.net.pump()


@pytest.mark.parametrize("leaves", [False, True], ids=["waits for the answer", "leaves at once"])
def test_attack_one_host_tries_every_account(leaves: bool) -> None:
    directory = Directory()
    for _ in range(20):  # 5 s of the clock
        clients = [directory.login(ATTACKER, f"user{number}") for number in range(USERS)]
        directory.work()
        if leaves:
            for client in clients:
                client.kill()
        directory.net.advance(0.25)
    assert len(directory.locked) <= 1, "one account of sixty, in 5 s"
    # The free ones, those under way meanwhile, and what the places for waiting answers let through.
    assert directory.failures.total() <= FREE_OF_HOST + THREADS + 4 * MAX_HELD_OF_HOST


def test_who_is_not_asked_about_is_told_to_come_again_and_does_not_count() -> None:
    directory = Directory()
    for _ in range(3):
        for number in range(USERS):
            directory.login(ATTACKER, f"user{number}")
        directory.work()
    directory.net.advance(0.5)
    reasons = Counter(event["reason"] for event in directory.net.audits)
    assert reasons["too_many_guesses"] > 100


def test_another_host_logs_in_meanwhile() -> None:
    directory = Directory()
    for _ in range(3):
        for number in range(USERS):
            directory.login(ATTACKER, f"user{number}")
        directory.work()
    client = directory.login(OFFICE, "carol", "right")
    directory.work()
    directory.net.pump()
    assert directory.failures["carol"] == 0
    assert b"\x53\x44" in bytes(client.recorded), "the outcome has come"
