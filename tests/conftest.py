"""Shared by all suites: the suites themselves, and the handling of a missing outside tool."""

import gc
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from run_suites import INTEROP, INTEROP_FOLDERS, ONE_FOLDER

# The same examples in every run: a test that fails, fails for a reason that a commit made. Long runs look for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=2000)  # ms; a loaded machine is slow as well
settings.register_profile("mutants", derandomize=True, deadline=None)  # a slow machine kills no mutant
if "PALISADE_FUZZ_EXAMPLES" not in os.environ:
    settings.load_profile("repeatable")

TESTS = Path(__file__).parent
# Folder -> the suite its tests are of (tests/run_suites.py); everything else is a unit test.
FOLDER_SUITES = {name: name for name in ONE_FOLDER} | dict.fromkeys(INTEROP_FOLDERS, "interop")
# slapd lives in sbin, which is not in everybody's PATH.
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark a test with the suite whose folder it lies in, before `-m` selects; refuse what no suite would find."""
    for item in items:
        path = item.path.relative_to(TESTS)
        folder = path.parts[0]
        if folder in FOLDER_SUITES:
            item.add_marker(FOLDER_SUITES[folder])
        for suite in ONE_FOLDER:
            if item.get_closest_marker(suite) and folder != suite:
                raise pytest.UsageError(f"{item.nodeid} is marked {suite}: only in tests/{suite} is it run")
        if folder not in ONE_FOLDER and not any(path.is_relative_to(place) for place in INTEROP):
            for suite in ("interop", "timing"):
                if item.get_closest_marker(suite):
                    raise pytest.UsageError(f"{item.nodeid} is marked {suite}: no place of INTEROP in run_suites.py")


def pytest_collection_finish() -> None:
    """Keep ten thousand collected tests out of every garbage collection: a full one takes 0.8 s with them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def require_tool() -> Callable[[str, str], Path]:
    """`require_tool("slapd", "slapd")`: the path of a program, with the Debian package that has it.

    Missing: the test is skipped with the package's name, and fails where PALISADE_REQUIRE_ALL is set (.ci/run),
    so that a gap in the machine cannot pass for a green run.
    """

    def require(program: str, package: str) -> Path:
        found = shutil.which(program, path=SEARCH_PATH)
        if found is not None:
            return Path(found)
        message = f"{program} is missing: apt-get install {package}"
        if os.environ.get("PALISADE_REQUIRE_ALL"):
            pytest.fail(message)
        pytest.skip(message)

    return require


@pytest.fixture(scope="session")
def router_python() -> Path:
    """The Python beside whose executable the `qdrouterd` under test is installed.

    tests/packaging points it at an installation outside the checkout, on an AMQP engine without TLS and SASL.
    """
    return Path(os.environ.get("PALISADE_PYTHON", sys.executable))
