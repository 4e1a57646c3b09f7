"""A synthetic trail is valid, always the same for a seed, and has the incidents that its truth says (issue 15)."""

import json
from collections import Counter
from pathlib import Path

import pytest
from literal_events import EVENT

pytest.importorskip("pyarrow")

from spark.lines import quick
from spark.trails.generate import Wanted, generate

KINDS = {
    "brute_force", "password_spraying", "credential_stuffing", "address_probing", "privilege_probing",
    "denied_then_allowed", "first_seen", "dormant_user", "limit_saturation", "flapping", "authenticator_outage",
    "denial_surge",
}  # fmt: skip


@pytest.fixture(scope="module")
def trail(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trail") / "a"
    generate(folder, Wanted(events=5000, seed=7))
    return folder


@pytest.fixture(scope="module")
def events(trail: Path) -> dict[str, dict[str, object]]:
    lines = [json.loads(text) for path in trail.glob("audit/*.jsonl") for text in path.read_text("ascii").splitlines()]
    return {event["event_id"]: event for event in lines}


@pytest.fixture(scope="module")
def truth(trail: Path) -> list[dict[str, object]]:
    return [json.loads(text) for text in (trail / "truth.jsonl").read_text("ascii").splitlines()]


def test_every_line_is_a_valid_event(trail: Path) -> None:
    for path in trail.glob("audit/*.jsonl"):
        block = path.read_bytes()
        assert quick.columns(block, *quick.bounds(block)) is not None


def test_each_router_numbers_its_events_in_the_order_of_time(trail: Path) -> None:
    for router in range(4):
        texts = [
            text
            for path in sorted(trail.glob(f"audit/*-router-{router}-*.jsonl"))
            for text in path.open(encoding="ascii")
        ]
        told = [json.loads(text) for text in texts]
        assert [event["sequence"] for event in told] == list(range(len(told)))
        assert [event["time"] for event in told] == sorted(event["time"] for event in told)
        assert list(told[0])[: len(EVENT)] == [*EVENT][: list(EVENT).index("ruleset_digest") + 1] + [
            "redecision", "condition", "truncated",
        ][: len(EVENT) - list(EVENT).index("ruleset_digest") - 1]  # fmt: skip


def test_there_are_so_many_incidents_of_every_kind(truth: list[dict[str, object]]) -> None:
    assert Counter(one["detector"] for one in truth) == dict.fromkeys(KINDS, 2)


def test_the_events_of_an_incident_are_in_the_trail_and_of_its_subjects(
    truth: list[dict[str, object]], events: dict[str, dict[str, object]]
) -> None:
    for one in truth:
        found = [events[name] for name in one["events"]]  # type: ignore[attr-defined]
        assert [one["first"], one["last"]] == [found[0]["time"], found[-1]["time"]]
        for name, subject in one["subjects"].items():  # type: ignore[attr-defined]
            assert {event[name] for event in found} == {subject}


def test_the_same_seed_writes_the_same_bytes_and_another_one_others(trail: Path, tmp_path: Path) -> None:
    for seed, is_same in ((7, True), (8, False)):
        generate(tmp_path / str(seed), Wanted(events=5000, seed=seed))
        first, second = (
            {path.name: path.read_bytes() for path in folder.glob("audit/*.jsonl")}
            for folder in (trail, tmp_path / str(seed))
        )
        assert (first == second) is is_same


def test_everybody_is_seen_at_first(events: dict[str, dict[str, object]]) -> None:
    early = {event["user"] for event in events.values() if str(event["time"]) < "2026-01-08"}
    late = {event["user"] for event in events.values()} - early
    assert late == {"newcomer-0"}
