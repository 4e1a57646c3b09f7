"""Attack: a peer is refused thousands of times, so that records fill the disk or records of other peers are lost.

20,000 denied attaches of one connection that stayed wrote 23 MB of log and audit log; 4,000 bad headers without a login
wrote 2.8 MB. Now an owner's refusals are written in full within a budget of bytes, and beyond it as a number. All of
them are counted: the audit log, with its sums, and management say how many there were.
"""

import itertools
import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import raw_peer
from daemon_process import Daemon, audit_events, eventually, write_users
from daemons import logged_in, peer_of

from router.management.client import ManagementClient, NotFoundStatus

sys.path.insert(0, str(Path(__file__).parent.parent / "fuzz"))

import wire

ATTACHES = 20_000
HEADERS = 4_000
PARTY_BYTES, CONNECTION_BYTES = 1088 * 1024, 96 * 1024
REFUSED = b"link disallowed by local policy"
BYTES_PER_S = 640  # that come back to a connection and its user
CONFIGURATION = """
router {{
    id: flooded
    saslConfigDir: {sasl}
    auditDir: {folder}/audit
}}
policy {{
    enableVhostPolicy: yes
    policyDir: {folder}/policy
    maxRefusalRate: 0       # what is written, however fast they come
}}
listener {{
    name: plain
    host: 127.0.0.1
    port: 0
    authenticatePeer: yes
    saslMechanisms: PLAIN
}}
listener {{
    name: operator
    host: 127.0.0.1
    port: 0
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}}
"""
GROUPS = {
    "eve": {"users": "eve, bob", "remoteHosts": "*", "sources": "may", "targets": "may"},
    "operator": {"users": "anonymous", "remoteHosts": "*", "sources": "*", "targets": "*", "allowDynamicSource": True},
}


@pytest.fixture
def router(daemon: Callable[..., Daemon], tmp_path: Path) -> Daemon:
    sasl = write_users(tmp_path, {"eve": "eve's", "bob": "bob's"}, "PLAIN ANONYMOUS")
    (tmp_path / "policy").mkdir()
    vhost = {"hostname": "localhost", "groups": GROUPS}
    default = {"hostname": "$default", "groups": {"operator": GROUPS["operator"]}}
    (tmp_path / "policy" / "all.json").write_text(json.dumps([["vhost", vhost], ["vhost", default]]))
    return daemon(CONFIGURATION.format(sasl=sasl, folder=tmp_path))


def written_bytes(router: Daemon) -> int:
    """To the log and the audit log."""
    audit = sum(path.stat().st_size for path in (router.folder / "audit").glob("*.jsonl"))
    return audit + sum(len(line.encode()) + 1 for line in router.log())


def denials(folder: Path, **members: object) -> int:
    """As many as the audit log has on record, each sum taken for its number."""
    events = audit_events(folder / "audit")
    found = (each for each in events if all(each.get(name) == value for name, value in members.items()))
    return sum(event.get("attempts", 1) for event in found)


def attaches(numbers: range) -> bytes:
    """Requests for links that are refused, each with its Detach."""
    frames = (
        (wire.frame(wire.attach(f"l{n}", n % 1000, is_receiver=True, address=f"secret.{n}")),
         wire.frame(wire.detach(n % 1000)))
        for n in numbers
    )  # fmt: skip
    return b"".join(itertools.chain.from_iterable(frames))


def denied_attaches(peer: raw_peer.RawPeer, number: int) -> None:
    """Ask for links that are refused, a thousand at a time, and read the answers."""
    for first in range(0, number, 1000):
        numbers = range(first, min(first + 1000, number))
        sender = threading.Thread(target=peer.send, args=(attaches(numbers),))
        sender.start()
        answers = b""
        while answers.count(REFUSED) < len(numbers):
            data = peer.socket.recv(1 << 18)
            assert data, "the router closed the connection"
            answers += data
        sender.join()


def denied_in_management(router: Daemon) -> int:
    with router.client("operator") as client:
        return int(client.read(type="policy", identity="policy/None")["totalDenials"])


def test_one_connection_that_stays(router: Daemon, tmp_path: Path) -> None:
    started = time.monotonic()
    with peer_of(router) as eve, peer_of(router) as bob:
        logged_in(eve, "eve", "eve's").send(raw_peer.begin())
        before = written_bytes(router)
        denied_attaches(eve, ATTACHES)
        assert denied_in_management(router) == ATTACHES
        bound = CONNECTION_BYTES + (time.monotonic() - started) * BYTES_PER_S
        # A whole fleet's other denials are seen as ever.
        logged_in(bob, "bob", "bob's").send(raw_peer.begin())
        assert written_bytes(router) - before < bound + 8192
        denied_attaches(bob, 2)
        eventually(lambda: denials(tmp_path, user="bob") == 2)
        for address in ("secret.0", "secret.1"):
            assert len(router.log(f"DENY AMQP Attach .*'{address}' for user 'bob'")) == 1
    router.signal(signal.SIGTERM)
    assert router.wait() == 0
    assert denials(tmp_path, user="eve", reason="source_not_allowed") == ATTACHES
    sums = [event for event in audit_events(tmp_path / "audit") if "folded" in event]
    assert {each.get("folded", {}).get("owner") for each in sums} == {"connection"}
    assert router.log(r"\[C\d+\] \d+ times from .*DENY attach source_not_allowed")


def test_many_connections_of_one_user_with_a_few_refusals_each(router: Daemon, tmp_path: Path) -> None:
    started = time.monotonic()
    with peer_of(router) as eve:
        logged_in(eve, "eve", "eve's")
        before = written_bytes(router)
    for _ in range(100):
        with peer_of(router) as eve:
            logged_in(eve, "eve", "eve's").send(raw_peer.begin())
            denied_attaches(eve, 30)
    with router.client("operator"):
        pass
    accepted = 100 * 2000  # a permitted connection's own lines
    assert written_bytes(router) - before < PARTY_BYTES + accepted + (time.monotonic() - started) * BYTES_PER_S
    router.signal(signal.SIGTERM)
    assert router.wait() == 0
    assert denials(tmp_path, user="eve") == 3000


def bad_headers(router: Daemon, number: int) -> Iterator[None]:
    port = router.port()
    for _ in range(number):
        with socket.create_connection(("127.0.0.1", port), 10) as peer:
            peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while peer.recv(1000):
                pass
        yield


def test_nonsense_without_a_login(router: Daemon, tmp_path: Path) -> None:
    router.port()
    before, started = written_bytes(router), time.monotonic()
    for _ in bad_headers(router, HEADERS):
        pass
    bound = PARTY_BYTES + (time.monotonic() - started) * BYTES_PER_S
    with router.client("operator"):
        pass
    assert written_bytes(router) - before < bound + 65536
    router.signal(signal.SIGTERM)
    assert router.wait() == 0
    assert denials(tmp_path, reason="unexpected_header", remote_host="127.0.0.1") == HEADERS


def test_a_kill_costs_seconds_of_the_numbers_and_no_event(router: Daemon, tmp_path: Path) -> None:
    with peer_of(router) as eve:
        logged_in(eve, "eve", "eve's").send(raw_peer.begin())
        denied_attaches(eve, 1000)
        in_full = denials(tmp_path, user="eve")
        assert in_full < 1000
        eventually(lambda: denials(tmp_path, user="eve") == 1000)  # without a stop
        router.signal(signal.SIGKILL)
        router.wait()
    assert denials(tmp_path, user="eve") == 1000


def failing_requests(client: ManagementClient, number: int) -> None:
    for n in range(number):
        with pytest.raises(NotFoundStatus):
            client.read(type="listener", name=f"nobody.{n}")


def test_management_requests_that_fail(router: Daemon, tmp_path: Path) -> None:
    started = time.monotonic()
    with router.client("operator") as client:
        before = written_bytes(router)
        failing_requests(client, 2000)
        assert written_bytes(router) - before < CONNECTION_BYTES + (time.monotonic() - started) * BYTES_PER_S + 8192
    router.signal(signal.SIGTERM)
    assert router.wait() == 0
    texts = router.log("Error performing")
    summed = [int(line.split("]")[1].split()[0]) for line in texts if "times from" in line]
    assert sum(summed) + len(texts) - len(summed) == 2000
