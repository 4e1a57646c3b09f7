"""Attack: logins at a directory that accepts connections and never answers, to delay traffic and other logins."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import raw_peer
from bystander import bystander
from certificates import Certificates
from daemon_process import LISTENER, Daemon, Started, eventually
from raw_peer import RawPeer

pytestmark = pytest.mark.timing

LOGINS = 200
HOSTS = 50
OUTCOME = 0x44
SYS_TEMP = 4
TRIPS = 300
CONFIGURATION = """
ldapAuthenticator {{
    name: dead
    urls: ldaps://127.0.0.1:{port} ldap://127.0.0.1:{port}
    caCertFile: {ca}
    userBase: ou=people
    timeoutSeconds: 2
    retrySeconds: 3600
}}
listener {{
    name: login
    host: 127.0.0.1
    port: 0
    authenticatePeer: yes
    authenticators: dead
    initialHandshakeTimeoutSeconds: 60
}}
"""


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=LOGINS) as listening:
        yield listening


class _Running:
    """What `bystander` wants of a router."""

    def __init__(self, daemon: Daemon) -> None:
        self.ports = {"plain": daemon.port("plain")}
        self.mark = daemon.mark


def resources(router: Daemon) -> tuple[int, int]:
    """Descriptors, and KiB of memory in use."""
    folder = Path(f"/proc/{router.process.pid}")
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    return len(list((folder / "fd").iterdir())), int(status["VmRSS"].split()[0])


def test_logins_that_hang_hold_up_no_traffic_and_are_freed(
    daemon: Started, silent: socket.socket, certificates: Certificates
) -> None:
    port = silent.getsockname()[1]
    router = daemon(CONFIGURATION.format(port=port, ca=certificates.ca) + LISTENER)
    login = router.port("login")
    with bystander(_Running(router), "plain") as honest, ExitStack() as attack:  # type: ignore[arg-type]
        assert eventually(lambda: len(honest.seconds) >= TRIPS)
        before, descriptors = honest.percentile_s(0.5), resources(router)[0]
        memory_kib = resources(router)[1]
        honest.seconds.clear()
        peers = []
        for number in range(LOGINS):
            source = f"127.0.1.{number % HOSTS + 1}"
            made = attack.enter_context(socket.create_connection(("127.0.0.1", login), 10, source_address=(source, 0)))
            made.sendall(raw_peer.SASL + raw_peer.plain(f"user{number}", "secret"))
            peers.append(RawPeer(made, 0))
        began = time.monotonic()
        assert eventually(lambda: len(honest.seconds) >= TRIPS)
        during = honest.percentile_s(0.5)
        assert {int(peer.read_until(OUTCOME, 30)[0]) for peer in peers} == {SYS_TEMP}
        waited_s = time.monotonic() - began
    print(f"round trip {before * 1e3:.2f} -> {during * 1e3:.2f} ms; the last login was answered after {waited_s:.1f} s")
    assert during < 2 * before + 0.001
    assert waited_s < 15
    assert eventually(lambda: resources(router)[0] <= descriptors)
    assert resources(router)[1] < memory_kib + 20 * 1024
