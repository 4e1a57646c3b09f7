"""Attack: all attacks at once, for half a minute. `make attack` runs the campaign for an hour."""

from pathlib import Path

import pytest
from siege import faults, wage

pytestmark = [pytest.mark.slow, pytest.mark.timing]


def test_the_router_withstands_a_siege(tmp_path: Path) -> None:
    """Whatever else the machine does makes round trips longer, never shorter: of three sieges the best counts for them.

    All else is to be kept each time.
    """
    for seed in (1122, 1123, 1124):
        folder = tmp_path / str(seed)
        folder.mkdir()
        outcome = wage(folder, seconds=30, seed=seed)
        found = faults(outcome)
        if not found:
            return
        assert [each for each in found if not each.startswith("p99 ")] == [], outcome.text()
    pytest.fail(outcome.text())
