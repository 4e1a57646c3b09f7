"""Fixtures for tests of the daemon as a process.

The tests belong to the interop suite: real processes, real sockets.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The certificate authority of the tests against real peers is used here, too.
sys.path.append(str(Path(__file__).resolve().parent.parent / "interop"))

from daemon_process import LISTENER, Daemon, daemon, start
from fixtures import certificates
from kerberos_realm import gssapi, realm

__all__ = ["certificates", "daemon", "gssapi", "realm", "router"]


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Starts one router for the tests of a module; its log must contain nothing unexpected at the end."""
    made = start(tmp_path_factory.mktemp("router"), "router {\n id: wire\n metadata: about me\n}\n" + LISTENER)
    made.wait_for_log(r"Listening on")
    yield made
    made.end()
    unexpected = [line for line in made.log(r"Unexpected|Traceback|ERROR \(") if "handshake" not in line]
    assert unexpected == []
