"""How often a user is refused, before his connections have to wait."""

import pytest

from router.admission.folding import Folding
from router.admission.refusal_pace import BURST, LONGEST_S, RefusalPace
from router.effects import ConnectionMembers, Log, Refused

RATE = 100


def refused(pace: RefusalPace, party: str, times: int, now: float) -> list[float]:
    return [pace.pause_s(party, now) for _ in range(times)]


def test_a_burst_is_refused_at_once_and_then_so_many_a_second() -> None:
    pace = RefusalPace(RATE)
    assert set(refused(pace, "eve", BURST, 1000.0)) == {0.0}
    assert refused(pace, "eve", 3, 1000.0) == pytest.approx([0.01, 0.02, 0.03])
    assert pace.pause_s("eve", 1000.5) == 0.0


def test_parties_have_a_pace_each() -> None:
    pace = RefusalPace(RATE)
    refused(pace, "eve", BURST + 50, 1000.0)
    assert pace.pause_s("bob", 1000.0) == 0.0


def test_a_pause_has_an_end() -> None:
    pace = RefusalPace(RATE)
    assert refused(pace, "eve", BURST + 10 * RATE, 1000.0)[-1] == LONGEST_S


def test_a_burst_comes_back_with_time() -> None:
    pace = RefusalPace(RATE)
    refused(pace, "eve", BURST, 1000.0)
    assert set(refused(pace, "eve", RATE, 1001.0)) == {0.0}
    assert pace.pause_s("eve", 1001.0) > 0


def test_parties_that_are_idle_are_forgotten_and_lose_nothing() -> None:
    pace = RefusalPace(RATE)
    refused(pace, "eve", BURST, 1000.0)
    pace.forget_idle(1000.0 + BURST / RATE / 2)
    assert set(refused(pace, "eve", BURST // 2, 1000.0 + BURST / RATE / 2)) == {0.0}
    assert pace.pause_s("eve", 1000.0 + BURST / RATE / 2) > 0
    pace.forget_idle(1000.0 + 10 * BURST / RATE)
    assert set(refused(pace, "eve", BURST, 1000.0 + 10 * BURST / RATE)) == {0.0}


def test_without_a_rate_nobody_waits() -> None:
    assert set(refused(RefusalPace(0), "eve", 10 * BURST, 1000.0)) == {0.0}


def of(connection: int, user: str | None, stage: str = "attach") -> Refused:
    facts: ConnectionMembers = {"connection": connection, "remote_host": "h", "user": user, "mechanism": "PLAIN"}
    line = Log(module="POLICY", level="info", text="DENY")
    return Refused(stage=stage, facts=facts, lines=(line,), what="refused")  # type: ignore[arg-type]


def test_the_connections_of_one_user_are_paused_and_no_others() -> None:
    paused: list[tuple[int, float]] = []
    folding = Folding(lambda _effect: None, lambda: 1000.0)
    folding.pace.rate = RATE
    folding.pause = lambda connection, seconds: paused.append((connection, seconds))
    for _ in range(BURST):
        folding.record(of(1, "eve"))
    folding.record(of(2, "bob"))
    assert paused == []
    folding.record(of(3, "eve"))
    assert [number for number, _ in paused] == [3]


def test_whoever_has_not_logged_in_has_other_limits() -> None:
    paused: list[tuple[int, float]] = []
    folding = Folding(lambda _effect: None, lambda: 1000.0)
    folding.pace.rate = RATE
    folding.pause = lambda connection, seconds: paused.append((connection, seconds))
    for _ in range(BURST + 10):
        folding.record(of(1, None, "sasl"))
    assert paused == []
