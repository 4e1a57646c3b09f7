"""Logins that end before their password was verified. Spec: docs/spec/policy-and-auth.md §3.15, §8.2, §8.6."""

from collections.abc import Callable
from typing import Any

import pytest
from memory_net import Client, Net

from auth.credentials import VerifyRequest, VerifyResult, unavailable
from auth.sasl_frames import Init, Outcome, encode
from policy.ban_set import parse_ban
from router.admission.breakoffs import Breakoffs
from router.connection.accepted import Connection
from router.effects import AdmissionFailed, Audit, Effect

SASL = b"AMQP\x03\x01\x00\x00"
LOGIN = SASL + encode(Init(mechanism="PLAIN", initial_response=b"\0eve\0perhaps"))
HOST = "10.0.0.1"


class Verifying:
    """A connection whose password is being verified."""

    def __init__(self, **listener: Any) -> None:
        self.net = Net(mechanisms=lambda _verified: ("PLAIN",), **listener)
        self.net.verify = self._verify
        self.begins: Callable[[], bool] | None = None
        self.answer: Callable[[VerifyResult], None] | None = None
        self.host = ""
        self.given_up = 0
        self.client: Client = self.net.client(opens=False)
        self.client.push_to_router = lambda: False  # type: ignore[method-assign]
        self.client.say(LOGIN)
        assert self.host == HOST

    def _verify(
        self, _request: VerifyRequest, host: str, begins: Callable[[], bool], done: Callable[[VerifyResult], None]
    ) -> Callable[[], None]:
        self.host, self.begins, self.answer = host, begins, done

        def give_up() -> None:
            self.given_up += 1

        return give_up

    @property
    def failures(self) -> list[str]:
        return [effect.remote_host for effect in self.net.effects if isinstance(effect, AdmissionFailed)]

    @property
    def reasons(self) -> list[object]:
        return [event["reason"] for event in self.net.audits]

    def finish(self, is_valid: bool) -> None:
        assert self.answer is not None
        self.answer(VerifyResult(is_valid=is_valid))
        self.net.work.finish()

    def end(self) -> None:
        self.client.kill()
        self.net.nothing_left()


@pytest.mark.parametrize("is_valid", [False, True])
def test_who_leaves_before_the_answer_has_failed_once(is_valid: bool) -> None:
    """Attack: passwords tried, or processor time taken, without a ban. Also where it is right, it says nothing then."""
    scene = Verifying()
    scene.client.kill()
    assert scene.given_up
    assert scene.failures == [HOST]
    assert scene.reasons == ["handshake_aborted"]
    scene.finish(is_valid)
    assert scene.failures == [HOST]
    scene.net.nothing_left()


def test_who_makes_the_router_close_before_the_answer_has_failed_once() -> None:
    """Attack: as before, by more bytes than the router keeps meanwhile."""
    scene = Verifying()
    scene.client.say(bytes(66_000))
    scene.net.pump()
    assert scene.client.is_closed_by_router
    assert scene.given_up
    assert scene.reasons == ["preauth_buffer_exceeded"]
    scene.finish(is_valid=False)
    assert scene.failures == [HOST]
    scene.end()


def test_who_has_the_answer_and_leaves_has_failed_no_more_than_once() -> None:
    scene = Verifying()
    scene.finish(is_valid=False)
    scene.client.kill()
    assert scene.failures == [HOST]
    assert not scene.given_up
    scene.net.nothing_left()


def test_who_is_let_in_and_leaves_has_not_failed() -> None:
    scene = Verifying()
    scene.finish(is_valid=True)
    scene.client.kill()
    assert scene.failures == []
    scene.net.nothing_left()


@pytest.mark.parametrize(
    ("answer", "failures"),
    [(None, []), (VerifyResult(is_valid=True), []), (unavailable("busy"), []), (VerifyResult(is_valid=False), [HOST])],
    ids=["waiting", "right", "not compared", "wrong"],
)
def test_at_the_deadline_what_counts_is_the_answer(answer: VerifyResult | None, failures: list[str]) -> None:
    """Attack: passwords sent just before it. That the router has many to verify is no fault of the peer's."""
    scene = Verifying(handshake_timeout_s=3)
    scene.net.advance(4)
    assert scene.client.is_closed_by_router
    assert scene.given_up
    assert scene.reasons == ["handshake_timeout"]
    if answer is not None:
        assert scene.answer is not None
        scene.answer(answer)
    assert scene.failures == failures
    scene.end()


def test_management_and_the_end_of_the_router_count_for_nobody() -> None:
    for close in (Connection.force_close, Connection.close_for_shutdown):
        scene = Verifying()
        close(scene.client.router)
        scene.net.work.finish()
        scene.client.kill()
        assert scene.given_up
        assert scene.failures == []


def test_a_login_of_a_host_that_was_banned_meanwhile_is_not_begun() -> None:
    """Attack: hundreds of logins at once; all but the first few wait when those have failed."""
    scene = Verifying()
    assert scene.begins is not None
    assert scene.begins()
    scene.net.gate.bans.bans.add(parse_ban("b", HOST, None, None, 0.0))
    assert not scene.begins()
    scene.net.pump()
    assert scene.client.is_closed_by_router
    assert scene.reasons == ["banned"]
    assert scene.failures == []
    scene.net.nothing_left()


def test_an_error_while_the_ban_is_looked_up_verifies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Verifying()

    def broken(*_arguments: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(scene.net.gate.bans, "ban_of", broken)
    assert scene.begins is not None
    assert not scene.begins()
    scene.net.pump()
    assert scene.client.is_closed_by_router
    assert scene.reasons == ["internal_error"]


def test_where_nothing_was_compared_the_client_may_come_again_and_has_not_failed() -> None:
    scene = Verifying()
    assert scene.answer is not None
    scene.answer(unavailable("512 logins of this host wait already"))
    scene.net.work.finish()
    assert encode(Outcome(code=4)) in bytes(scene.client.recorded)
    assert scene.failures == []
    (event,) = scene.net.audits
    assert (event["reason"], event["user"]) == ("verifier_unavailable", "eve")
    assert event["detail"].startswith("verifier unavailable: 512 logins of this host wait already")
    scene.end()


def broken_off(breakoffs: Breakoffs, effects: list[Effect]) -> list[Any]:
    """The events since the last call, with those that were due."""
    for _ in breakoffs.reports():
        pass
    events = [each.event for each in effects if isinstance(each, Audit)]
    effects.clear()
    return events


def test_who_leaves_on_his_way_in_is_told_once_and_then_by_numbers() -> None:
    """Attack: a peer that connects and leaves, again and again, to fill the disk."""
    effects: list[Effect] = []
    breakoffs = Breakoffs(effects.append)
    for _ in range(1000):
        breakoffs.record("tls", {"connection": 7, "remote_host": HOST})
    breakoffs.record("sasl", {"connection": 8, "remote_host": HOST})
    breakoffs.record("tls", {"connection": 9, "remote_host": "10.0.0.2"})
    said = {"decision": "deny", "reason": "handshake_aborted", "rule": None}
    first = {"detail": "the peer left before its Open", **said}
    assert broken_off(breakoffs, effects) == [
        {"connection": 7, "remote_host": HOST, "stage": "tls", **first},
        {"connection": 8, "remote_host": HOST, "stage": "sasl", **first},
        {"connection": 9, "remote_host": "10.0.0.2", "stage": "tls", **first},
        {"remote_host": HOST, "stage": "tls", "attempts": 999,
         "detail": "of this host, at this stage, since the last event", **said},
    ]  # fmt: skip
    assert broken_off(breakoffs, effects) == []


def test_hosts_that_are_too_many_are_told_as_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: many addresses, to fill the memory."""
    monkeypatch.setattr("router.admission.breakoffs.MAX_HOSTS", 1)
    effects: list[Effect] = []
    breakoffs = Breakoffs(effects.append)
    for number in range(5):
        breakoffs.record("tls", {"remote_host": f"10.0.0.{number}"})
    breakoffs.record("sasl", {"remote_host": "10.0.0.9"})
    _first, *sums = broken_off(breakoffs, effects)
    said = "of hosts that were too many to be named, at this stage, since the last event"
    assert [(each["stage"], each["remote_host"], each["attempts"], each["detail"]) for each in sums] == [
        ("tls", None, 4, said),
        ("sasl", None, 1, said),
    ]
