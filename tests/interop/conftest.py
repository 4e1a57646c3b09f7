"""Fixtures of the tests against real peers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Certificates
from harness import RunningRouter, running_router


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def router(
    certificates: Certificates, router_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningRouter]:
    """One router for the tests of a module, which then share its log and its audit records."""
    with running_router(tmp_path_factory.mktemp("router"), certificates, python=router_python) as running:
        yield running
