"""Links and routers of a network die for a while. `make chaos` does it for five minutes (docs/reliability.md)."""

import os
from pathlib import Path

import pytest
from network_chaos import wreak

pytestmark = [pytest.mark.slow, pytest.mark.timing]
SECONDS = float(os.environ.get("PALISADE_CHAOS_SECONDS", "15"))
SEED = int(os.environ.get("PALISADE_CHAOS_SEED", "1520"))


def test_nobody_is_told_what_is_not_true_when_links_and_routers_die(tmp_path: Path) -> None:
    """network 24, 35, 74, 75, 76, 81: and all of the network goes back to what it was"""
    outcome = wreak(tmp_path, SECONDS, SEED)
    print(outcome.text())
    assert outcome.wrong == [], f"{outcome.text()}\n" + "\n".join(outcome.wrong[:20])
    assert outcome.told["accepted"] > SECONDS * 20
