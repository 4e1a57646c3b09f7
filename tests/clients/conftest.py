"""Clients in other languages against a running router; a suite of its own."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parent.parent / "interop"))

from fixtures import certificates, client, router
from programs import BuildError, Program, built, running

__all__ = ["certificates", "client", "program", "router"]


@pytest.fixture(scope="module")
def program(request: pytest.FixtureRequest, require_tool: Callable[[str, str], Path]) -> Iterator[Program]:
    """The client program that the test is parametrised with.

    A build that fails fails the test where PALISADE_REQUIRE_ALL is set, as a missing tool does: a machine without
    registries skips it.
    """
    try:
        command = built(request.param, require_tool)
    except BuildError as error:
        if os.environ.get("PALISADE_REQUIRE_ALL"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    with running(request.param, command) as started:
        yield started
