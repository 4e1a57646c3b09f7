"""The harness holds a router to account; a harness that does not would let every other test here pass too easily."""

import re
import socket
from pathlib import Path

import pytest
from certificates import Certificates
from harness import connect, running_router


def test_a_router_starts_on_ports_of_the_systems_choice_and_stops_with_status_0(
    certificates: Certificates, router_python: Path, tmp_path: Path
) -> None:
    with running_router(tmp_path / "router", certificates, python=router_python) as router:
        assert len(set(router.ports.values())) == 3
        connect(router, "clear").close()
        router.wait_for_log(r"\[C1\] Accepted connection to 127\.0\.0\.1:0 from 127\.0\.0\.1:\d+")
    assert router.process.returncode == 0


def test_an_error_in_the_log_fails_the_test_that_caused_it(
    certificates: Certificates, router_python: Path, tmp_path: Path
) -> None:
    profile = "sslProfile {\n    name: broken\n    certFile: /nonexistent\n    privateKeyFile: /nonexistent\n}\n"
    listener = "listener {\n    name: broken-tls\n    host: 127.0.0.1\n    port: 0\n    sslProfile: broken\n}\n"
    extra = profile + listener

    def provoke() -> None:
        with running_router(tmp_path / "router", certificates, python=router_python, extra=extra) as router:
            port = int(router.wait_for_log(r"Listening on 127\.0\.0\.1:(\d+) \(broken-tls\)")[1])
            with socket.create_connection(("127.0.0.1", port), 10) as client:
                client.sendall(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00")
                router.wait_for_log(r"ERROR \(error\)")

    with pytest.raises(AssertionError, match=re.escape("Cannot set SSL credentials")):
        provoke()
