"""Evidence packs: what the trail shows is shown, and a gap is said as a gap (issue 15)."""

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from literal_events import change_line, frame, line

from spark.compliance.controls import CHAIN, CONTROLS, STANDARDS, WITHOUT_ROWS
from spark.compliance.pack import Answer, Chain, answers, apart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHOLE = Chain(is_whole=True, is_signed=True, lines=9, signed=2, details=())


def asked(chain: Chain | None = WHOLE, *, rows: int = 3, lost: int = 0, missing: int = 0) -> dict[str, Answer]:
    counts = dict.fromkeys((name for control in CONTROLS for name in (*control.queries, *control.needs)), rows)
    made = answers(CONTROLS, counts, chain, lost=lost, missing=missing)
    return {f"{answer.control.standard} {answer.control.id}": answer for answer in made}


def test_every_control_of_the_issue_is_there() -> None:
    names = set(asked())
    assert {control.standard for control in CONTROLS} == set(STANDARDS)
    for family in ("AC-7", "AU-2", "AU-3", "AU-6", "AU-7", "AU-9", "AU-10"):
        assert f"nist-800-53 {family}" in names
    for part in (
        "pci-dss-4.0 10.2.",
        "pci-dss-4.0 10.4.",
        "soc-2 CC6.",
        "soc-2 CC7.",
        "iso-27001 A.8.15",
        "iso-27001 A.8.16",
    ):
        assert any(name.startswith(part) for name in names), part


def test_every_query_is_there_and_every_need_has_its_words() -> None:
    pytest.importorskip("pyspark")
    from spark.compliance.queries import FINDINGS, QUERIES

    for control in CONTROLS:
        assert set(control.queries) <= {*QUERIES, FINDINGS, CHAIN}, control.id
        assert set(control.needs) <= {*WITHOUT_ROWS, CHAIN}, control.id


def test_what_the_trail_shows_is_shown() -> None:
    found = asked()
    assert found["pci-dss-4.0 10.2.1.4"].result == "shown"
    assert found["nist-800-53 AU-10"].result == "shown"


def test_what_no_trail_can_show_is_a_gap_however_many_rows_there_are() -> None:
    found = asked(rows=1000)
    for name in ("pci-dss-4.0 10.2.1.3", "pci-dss-4.0 10.4.1", "nist-800-53 AU-6", "nist-800-53 AU-9"):
        assert found[name].result == "gap"
        assert "not in this trail" in found[name].gaps[0]


@pytest.mark.parametrize(
    ("chain", "said"),
    [
        (None, "were not verified"),
        (Chain(is_whole=False, is_signed=True, lines=9, signed=2, details=("f:3: was changed",)), "f:3: was changed"),
        (Chain(is_whole=True, is_signed=False, lines=9, signed=0, details=()), "signatures were not checked"),
    ],
)
def test_a_trail_that_is_not_verified_is_a_gap(chain: Chain | None, said: str) -> None:
    answer = asked(chain)["nist-800-53 AU-10"]
    assert answer.result == "gap"
    assert said in answer.gaps[0]


@pytest.mark.parametrize(
    ("verified", "taken", "there", "said"),
    [
        ({"a": 9, "b": 0}, {"a": 9}, 8, ""),
        ({"a": 9}, {"a": 7}, 8, "a has 9 lines, of which 7 were taken into the table"),
        ({"a": 9, "b": 2}, {"a": 9}, 8, "b has 2 lines, of which 0 were"),
        ({"a": 9}, {"a": 9, "x": 1}, 8, "lines of x are in the table, and the file is not among those verified"),
        ({"a": 9}, {"a": 9}, 7, "of 8 events taken into the table 7 are there"),
    ],
)
def test_attack_a_whole_trail_is_shown_beside_the_table_of_another(
    verified: dict[str, int], taken: dict[str, int], there: int, said: str
) -> None:
    """The pack called whole the chain of files that its rows were not of."""
    why = apart(verified, taken, told=8, there=there)
    assert why.startswith(said) if said else why == ""
    answer = asked(replace(WHOLE, apart=why))["nist-800-53 AU-10"]
    assert answer.result == ("gap" if said else "shown")
    assert all("the table is not that of the audit files" in gap for gap in answer.gaps)


def test_no_rows_and_missing_events_are_gaps() -> None:
    assert "auditAllows" in asked(rows=0)["pci-dss-4.0 10.2.1.1"].gaps[0]
    assert asked(lost=4)["pci-dss-4.0 10.2.1.4"].gaps == ("4 events could not be written by the routers",)
    assert asked(missing=2)["pci-dss-4.0 10.2.1.4"].gaps == ("2 events are missing between others",)


@pytest.mark.spark
def test_queries_answer(session: "SparkSession") -> None:
    pytest.importorskip("pyspark")
    from spark.compliance.queries import QUERIES

    lines = [
        line(event_id="1", user="eve"),
        line(event_id="2", stage="open", decision="allow", reason="allowed", user="alice"),
        line(event_id="3", stage="sasl", reason="sasl_failed", user="bob", attempts=4),
        line(event_id="4", stage="accept", reason="banned", user=None),
        line(event_id="5", stage="audit", reason="log_closed", user=None),
        change_line(event_id="6", user="anna"),
    ]
    events = frame(session, *lines)
    rows = {name: [row.asDict() for row in query(events).collect()] for name, query in QUERIES.items()}
    assert [(row["user"], row["requests"]) for row in rows["accesses"]] == [("alice", 1)]
    assert [(row["user"], row["requests"]) for row in rows["failed_logins"]] == [("bob", 4)]
    assert [row["reason"] for row in rows["held_back"]] == ["banned"]
    assert [(row["user"], row["operation"], row["done"]) for row in rows["administration"]] == [("anna", "CREATE", 1)]
    assert [row["has_end"] for row in rows["starts"]] == [True]
    assert {row["reason"] for row in rows["refusals"]} == {"target_not_allowed", "sasl_failed", "banned"}
    (accept,) = [row for row in rows["content"] if row["stage"] == "accept"]
    assert (accept["events"], accept["who"], accept["where_from"]) == (1, 0, 1)
