"""One file per attack. Each runs against a daemon that the test starts, and failed before the attack was closed."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
for folder in ("interop", "daemon"):
    sys.path.insert(0, str(HERE.parent / folder))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.interop)
