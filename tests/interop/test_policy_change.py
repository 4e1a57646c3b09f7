"""A policy that changes under load: the small form of `python -m benchmarks.policy_change`. Issue 5."""

from pathlib import Path

import pytest

from benchmarks.policy_change import measure

pytestmark = pytest.mark.interop

# How long a message may take on a machine that does much else; what a change adds on a quiet one is the benchmark's.
PATIENCE_S = 10.0


def test_messages_of_permitted_links_do_not_notice_a_change_of_the_policy(tmp_path: Path) -> None:
    """None is lost, doubled, overtaken or held up, while others' links are detached and their connections closed."""
    found = measure(tmp_path, connections=100, rate=4000, vhosts=20, seconds=1.0)
    assert [phase.due - len(phase.delays) for phase in found.phases] == [0] * len(found.phases)
    assert sum(phase.due for phase in found.phases) > 1000
    assert found.is_ordered
    assert (found.detached, found.closed) == (found.losing, found.closing)
    assert found.passes > 0
    assert max(phase.longest for phase in found.phases) < PATIENCE_S
