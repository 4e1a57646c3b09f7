"""Fixtures that the files here import by name."""

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
    request: pytest.FixtureRequest,
    certificates: Certificates,
    router_python: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningRouter]:
    """One router for the tests of a module, configured as for the interop suite, and by its EXTRA_CONFIGURATION."""
    with running_router(
        tmp_path_factory.mktemp("router"),
        certificates,
        python=router_python,
        extra=getattr(request.module, "EXTRA_CONFIGURATION", ""),
        expected_errors=getattr(request.module, "EXPECTED_ERRORS", ()),
    ) as running:
        yield running
