"""The engine's decisions against the naive evaluator of benchmarks/policy_agreement.py, on random policies."""

import os
import random
from collections import Counter

import pytest

from benchmarks.policy_agreement import REQUESTS_PER_POLICY, disagreement

# PALISADE_POLICY_REQUESTS=1000000 is the whole comparison, minutes on a quiet core.
REQUESTS = int(os.environ.get("PALISADE_POLICY_REQUESTS", "4000"))
SEED = int(os.environ.get("PALISADE_POLICY_SEED", "13"))
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_decisions_agree_with_the_naive_evaluator(part: int) -> None:
    """With tenants, lists of users, nulls, and limits at the edges of 32 and 64 bits."""
    chance = random.Random(f"{SEED} {part}")
    reasons: Counter[str] = Counter()
    asked = 0
    while asked < REQUESTS // PARTS:
        assert disagreement(chance, REQUESTS_PER_POLICY, reasons) is None
        asked = sum(count for name, count in reasons.items() if name.startswith("connection"))
    assert min(reasons[name] for name in ("policy refused", "policy taken", "connection allowed", "link allowed")) > 0
