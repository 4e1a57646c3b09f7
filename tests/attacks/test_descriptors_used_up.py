"""Attack: a user who may connect does so until the process has no file descriptor left.

Then the router read no changed policies, the audit log could not begin a file, and the loop only tried to accept.
"""

import signal
import socket
from contextlib import ExitStack
from pathlib import Path

from daemon_process import Daemon, audit_events, eventually
from raw_peer import RawPeer
from test_silent_sockets import LIMIT, call, descriptors_of, events, few_descriptors, is_closed, log_in, write_policy

from auth.secrets import Secret

RESERVE = 64


def fill(router: Daemon, stack: ExitStack) -> list[RawPeer]:
    """Connect and log in until the router takes nobody any more. No event is in the audit log before that."""
    peers = []
    for _ in range(LIMIT):
        try:
            peers.append(log_in(router, "127.0.0.1"))
        except (ConnectionError, AssertionError):
            return peers
        stack.enter_context(peers[-1].socket)
    raise AssertionError("there was no end")


def test_there_is_one_left_for_whatever_the_router_has_to_do(tmp_path: Path) -> None:
    with few_descriptors(tmp_path) as router, ExitStack() as stack:
        peers = fill(router, stack)
        assert len(peers) > 100
        assert max(descriptors_of(router)) <= LIMIT - RESERVE + 3  # the policy watch, the audit log
        # The audit log begins its file only now.
        assert eventually(lambda: events(router, "descriptor_limit"))
        write_policy(tmp_path, "orders")
        router.wait_for_log(r"Reload of policyDir: 0 vhosts created, 1 updated")
        since = router.mark()
        router.signal(signal.SIGHUP)
        router.wait_for_log("Reload on SIGHUP finished", since=since)
        assert not router.log(r"\(error\)|\(critical\)|[Tt]oo many open files")


def test_further_ones_are_closed_at_once_and_told_as_a_number(tmp_path: Path) -> None:
    with few_descriptors(tmp_path) as router, ExitStack() as stack:
        peers = fill(router, stack)
        for _ in range(300):
            with call(router, "127.0.0.3") as refused:
                refused.settimeout(10)
                assert is_at_end(refused)
        assert not any(is_closed(peer.socket) for peer in peers)
        peers[0].socket.close()
        assert eventually(lambda: comes_in(router, stack))
        router.end()
        told = [event for event in events(router, "descriptor_limit") if event["remote_host"] == "127.0.0.3"]
        assert [event.get("attempts", 1) for event in told] == [1, 299]
        assert told[0]["limit"] == LIMIT - RESERVE
        assert len(audit_events(router.folder / "audit")) < 10


def test_management_shows_how_many_there_are(tmp_path: Path) -> None:
    with few_descriptors(tmp_path) as router, ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(call(router, "127.0.0.4"))
        for _ in range(2):
            stack.enter_context(log_in(router, "127.0.0.1").socket)
        with router.client(username="alice", password=Secret("right")) as client:
            row = client.read(type="router", identity="1")
        assert (row["fileDescriptorLimit"], row["handshakeCount"]) == (LIMIT, 3)
        assert row["handshakeBytes"] >= 3 * 1024
        assert 10 < row["fileDescriptorCount"] < 40


def is_at_end(connected: socket.socket) -> bool:
    try:
        return connected.recv(1) == b""
    except ConnectionError:
        return True


def comes_in(router: Daemon, stack: ExitStack) -> bool:
    try:
        stack.enter_context(log_in(router, "127.0.0.1").socket)
    except (ConnectionError, AssertionError):
        return False
    return True
