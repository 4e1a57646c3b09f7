"""What a benchmark run says: medians, ratios taken run by run, and budgets; and that it sees a refusal."""

import json
from pathlib import Path

import pytest

from benchmarks import wire
from benchmarks.report import row, store, table


def test_the_ratio_is_the_median_of_the_runs_own_ratios() -> None:
    """The third run met a slow machine on both sides; its ratio is as good as the others'."""
    made = row("small", "CPU", "µs", router=[4.0, 5.0, 60.0], floor=[4.0, 4.0, 40.0])
    assert (made.router, made.floor, made.ratio) == (5.0, 4.0, 1.25)
    assert made.spread == (1.0, 1.5)


def test_a_budget_bounds_the_ratio_where_there_is_one_and_the_figure_elsewhere() -> None:
    assert row("c", "CPU", "µs", router=[9.0], floor=[3.0], budget=2.0).is_over
    assert not row("c", "CPU", "µs", router=[5.0], floor=[3.0], budget=2.0).is_over
    assert row("c", "memory", "kB", router=[61.0], budget=60.0).is_over
    assert row("c", "rate", "msg/s", router=[40.0], floor=[100.0], better="more", budget=0.5).is_over


def test_the_table_has_a_line_per_row_and_marks_what_is_over() -> None:
    within, over = row("a", "CPU", "µs", router=[1.0], budget=2.0), row("b", "CPU", "µs", router=[3.0], budget=2.0)
    heading, first, second = table([within, over]).splitlines()
    assert heading.split()[:3] == ["case", "figure", "router"]
    assert not first.endswith("over")
    assert second.endswith("≤ 2  over")


def test_results_are_stored_with_their_circumstances(tmp_path: Path) -> None:
    path = tmp_path / "results" / "run.json"
    store(path, [row("a", "CPU", "µs", router=[1.0, 3.0, 2.0])], {"commit": "abc"})
    found = json.loads(path.read_text())
    assert found["commit"] == "abc"
    assert (found["rows"][0]["router"], found["rows"][0]["spread"], found["rows"][0]["is_over"]) == (2.0, [1, 3], False)


ADMITTED = (
    wire.SASL_HEADER
    + bytes.fromhex("00000010020100000053 44c003015000".replace(" ", ""))
    + wire.AMQP_HEADER
    + bytes.fromhex("000000110200000000 5310c00401a10178".replace(" ", ""))
)


def test_a_client_is_admitted_by_the_open_however_the_bytes_are_cut() -> None:
    for cut in range(1, len(ADMITTED)):
        admission = wire.Admission(has_link=False)
        assert not admission.receive(ADMITTED[:cut])
        assert admission.receive(ADMITTED[cut:])


@pytest.mark.parametrize(
    "refusal",
    [b"", wire.SASL_HEADER + bytes.fromhex("000000100201000000 5344c003015001".replace(" ", "")), wire.close()],
    ids=["closed", "wrong password", "Close"],
)
def test_a_refusal_is_no_measurement(refusal: bytes) -> None:
    with pytest.raises(wire.RefusedError):
        wire.Admission(has_link=False).receive(refusal)
