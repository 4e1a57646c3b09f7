"""Tests of the daemon as a process. They are of the interop suite: real processes, real sockets."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# The certificate authority of the tests against real peers serves here too.
sys.path.append(str(Path(__file__).resolve().parent.parent / "interop"))

from certificates import Certificates
from daemon_process import LISTENER, Daemon, start


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """`daemon(configuration, *options)`: a qdrouterd in tmp_path that serves; ended with the test."""
    started: list[Daemon] = []

    def run(configuration: str, *options: str, **settings: object) -> Daemon:
        made = start(tmp_path, configuration, *options, **settings)  # type: ignore[arg-type]
        started.append(made)
        made.wait_for_log(r"SERVER \(notice\) Operational")
        return made

    yield run
    for each in started:
        each.end()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One router for the tests of a module; nothing unexpected may stand in its log at the end."""
    made = start(tmp_path_factory.mktemp("router"), "router {\n id: wire\n metadata: about me\n}\n" + LISTENER)
    made.wait_for_log(r"Listening on")
    yield made
    made.end()
    unexpected = [line for line in made.log(r"Unexpected|Traceback|ERROR \(") if "handshake" not in line]
    assert unexpected == []
