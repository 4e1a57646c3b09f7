"""Everything at once, for half a minute. `make attack` lays siege for an hour."""

from pathlib import Path

import pytest
from siege import faults, wage

pytestmark = [pytest.mark.slow, pytest.mark.timing]


def test_the_router_withstands_a_siege(tmp_path: Path) -> None:
    outcome = wage(tmp_path, seconds=30, seed=1122)
    assert not faults(outcome), outcome.text()
