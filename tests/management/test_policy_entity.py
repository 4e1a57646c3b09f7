"""The `policy` entity over management (docs/spec/policy-and-auth.md §1.1)."""

import pytest
from agent_bench import Bench, bench

PREFIX = "org.apache.qpid.dispatch"


@pytest.fixture
def router() -> Bench:
    return bench()


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
def test_policy_is_only_read(router: Bench, operation: str) -> None:
    """policy 2"""
    response = router.ask(operation, {"maxConnections": 5}, type=f"{PREFIX}.policy", name="policy/None")
    assert response.status == 501
    assert response.description.startswith(f"Operation '{operation}' not implemented for '{PREFIX}.policy' ['READ']")
