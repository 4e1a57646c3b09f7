"""Real brokers behind a running router; a suite of its own."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

for name in ("interop", "daemon"):
    sys.path.append(str(Path(__file__).resolve().parent.parent / name))

from artemis import QUEUES, Artemis, BrokerError, home, running  # noqa: E402  the folders come first


@pytest.fixture(scope="session")
def distribution(require_tool: Callable[[str, str], Path]) -> Path:
    """Where it cannot be fetched, tests are skipped, and fail where PALISADE_REQUIRE_ALL is set."""
    try:
        return home(require_tool)
    except BrokerError as error:
        if os.environ.get("PALISADE_REQUIRE_ALL"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def artemis(distribution: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Artemis]:
    with running(tmp_path_factory.mktemp("artemis") / "broker", distribution, *QUEUES) as broker:
        yield broker
