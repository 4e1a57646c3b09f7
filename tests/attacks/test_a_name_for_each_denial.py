"""Attack: a stranger without a password logs in with a new name each time, to fill the memory of the audit's workers.

5,000,000 such denials with names of 200 bytes took 2.5 GB in each worker, and once Spark ran out of memory. Now a
worker keeps as text only names that may have a burst of denials, and passes data to Spark in small portions.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from spark.sums import bursts, cells
from spark.sums.bursts import MAY_BURST, Focus, Watch
from spark.sums.cells import Asked
from spark.sums.files import Share
from spark.transforms.sign import Sign

STRANGERS, GUESSES = 20_000, 10
FAILED = Sign(among={"decision": ("deny",), "reason": ("sasl_failed",)}, has=("user",))


def denials(names: Sequence[str]) -> pa.Table:
    count = len(names)
    texts = {"decision": "deny", "reason": "sasl_failed", "stage": "sasl", "router": "R1", "remote_host": "192.0.2.7"}
    return pa.table(
        {
            "time": pa.repeat(pa.scalar(datetime(2026, 11, 20, 12, tzinfo=UTC), pa.timestamp("us", "UTC")), count),
            "user": pa.array(names).dictionary_encode(),
            **{name: pa.repeat(text, count).dictionary_encode() for name, text in texts.items()},
        }
    )


def test_a_name_for_each_denial_is_not_held_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[int] = []
    join = bursts._joined

    def counted(held: Sequence[Any]) -> Any:
        joined.append(sum(map(len, held)))
        return join(held)

    monkeypatch.setattr(bursts, "_joined", counted)
    focus = Focus(signs=(FAILED,), keys=("user", "host"), min_requests=GUESSES, window_s=600)
    watch = Watch(focuses={"brute_force": focus}, absence_days=30)
    strangers = [f"{'a' * 190}{n}" for n in range(STRANGERS)]
    pieces = [denials([*strangers, *["alice"] * (GUESSES // 2)]), denials(["alice"] * (GUESSES // 2))]
    whole = Share(["one"], {"2026-11-20": 1}, 1)
    batches = list(cells.cells(pieces, Asked(has_denials=True, seed=1, watch=watch), whole))
    assert joined == [2]  # alice, of both pieces
    found = [row["keys"] for batch in batches for row in batch.to_pylist() if row["kind"] == MAY_BURST]
    assert found == [["brute_force", "alice", "192.0.2.7"]]
    users = [row["keys"][0] for batch in batches for row in batch.to_pylist() if row["kind"] == "by_user"]
    assert sorted(users) == sorted([*strangers, "alice", "alice"])
    assert max(map(len, batches)) <= 4096
