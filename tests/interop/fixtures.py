"""Fixtures of the tests against real peers; the conftest.py of each of their folders imports those it has use for."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Certificates
from harness import RunningRouter, running_router
from open_house import management

from router.management.client import ManagementClient


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
    """One router for the tests of a module, which then share its log and its audit records.

    The module may say in EXTRA_CONFIGURATION what the router has besides, in EXPECTED_ERRORS what its log may hold.
    """
    with running_router(
        tmp_path_factory.mktemp("router"),
        certificates,
        python=router_python,
        extra=getattr(request.module, "EXTRA_CONFIGURATION", ""),
        expected_errors=getattr(request.module, "EXPECTED_ERRORS", ()),
    ) as running:
        yield running


@pytest.fixture
def client(router: RunningRouter) -> Iterator[ManagementClient]:
    """The management client of someone who may do anything; for modules with the vhost of OPEN_HOUSE."""
    with management(router) as connected:
        yield connected
