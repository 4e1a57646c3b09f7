"""Real brokers behind a running router; a suite of its own."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

for name in ("interop", "daemon"):
    sys.path.append(str(Path(__file__).resolve().parent.parent / name))

import artemis as artemis_of  # noqa: E402  the folders come first
import broker_j as broker_j_of  # noqa: E402
import classic as classic_of  # noqa: E402
from broker_process import KINDS, QUEUES, Broker, BrokerError, MakeBroker  # noqa: E402


def _found(home: Callable[[Callable[[str, str], Path]], Path], require_tool: Callable[[str, str], Path]) -> Path:
    try:
        return home(require_tool)
    except BrokerError as error:
        if os.environ.get("PALISADE_REQUIRE_ALL"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def distribution(require_tool: Callable[[str, str], Path]) -> Path:
    """Of Artemis. Where it cannot be fetched, tests are skipped, and fail where PALISADE_REQUIRE_ALL is set."""
    return _found(artemis_of.home, require_tool)


@pytest.fixture(scope="session")
def make_broker(require_tool: Callable[[str, str], Path]) -> MakeBroker:
    """(kind, folder, files of a certificate and its key) → a broker with QUEUES, which is not running yet."""

    def make(kind: str, folder: Path, certificate: tuple[str, str] | None = None) -> Broker:
        if kind == "broker-j":
            return broker_j_of.BrokerJ(folder, _found(broker_j_of.home, require_tool), certificate=certificate)
        if kind == "classic":
            return classic_of.Classic(folder, _found(classic_of.home, require_tool), certificate=certificate)
        return artemis_of.Artemis(folder, _found(artemis_of.home, require_tool), *QUEUES, certificate=certificate)

    return make


@pytest.fixture(scope="module")
def artemis(make_broker: MakeBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with make_broker("artemis", tmp_path_factory.mktemp("artemis") / "broker").running() as made:
        yield made


@pytest.fixture(scope="module")
def broker_j(make_broker: MakeBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with make_broker("broker-j", tmp_path_factory.mktemp("broker-j") / "broker").running() as made:
        yield made


@pytest.fixture(scope="module")
def classic(make_broker: MakeBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with make_broker("classic", tmp_path_factory.mktemp("classic") / "broker").running() as made:
        yield made


@pytest.fixture(scope="module", params=KINDS)
def broker(request: pytest.FixtureRequest) -> Broker:
    """One of each kind, that runs."""
    made: Broker = request.getfixturevalue(request.param.replace("-", "_"))
    return made
