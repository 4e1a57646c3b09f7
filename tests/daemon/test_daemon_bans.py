"""Bans on a running router, with real clients. Spec: docs/spec/policy-and-auth.md §3.15 (ours)."""

import contextlib
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from daemon_process import (
    LISTENER,
    Daemon,
    denials,
    eventually,
    run_configuration,
    write_users,
)
from free_ports import free_port
from process_log import PATIENCE_S

from auth.sasl_frames import Init, encode
from auth.secrets import Secret
from router.management.client import BadRequestStatus, ConnectionException, LinkDetached, ManagementClient
from router.tools.connection_options import ConnectionOptions
from router.tools.transport import SocketTransport

pytestmark = pytest.mark.interop

BAN = "org.apache.qpid.dispatch.ban"
LOGIN = "listener {\n name: login\n host: 127.0.0.1\n port: 0\n authenticatePeer: yes\n saslMechanisms: PLAIN\n}\n"
ATTACKER, OPERATOR = "127.0.0.2", "127.0.0.1"


class From(SocketTransport):
    """A client from another address of this machine."""

    source = ATTACKER

    def _dial(self) -> socket.socket:
        return socket.create_connection(
            (self._options.host, self._options.port), timeout=PATIENCE_S, source_address=(self.source, 0)
        )


def client_of(router: Daemon, name: str = "plain", **options: Any) -> ManagementClient:
    """A client from the attacker's address. Errors: ConnectionException or OSError when it is not let in."""
    given = {"host": "127.0.0.1", "port": router.port(name), "timeout_s": PATIENCE_S, **options}
    return ManagementClient(From(ConnectionOptions(**given)))


def is_let_in(router: Daemon, **options: Any) -> bool:
    try:
        client_of(router, **options).close()
    except (ConnectionException, OSError):
        return False
    return True


def is_lost(client: ManagementClient) -> bool:
    try:
        return not client.query("router").rows
    except (ConnectionException, LinkDetached):
        return True


def is_closed_without_a_byte(router: Daemon, source: str = ATTACKER) -> bool:
    """Before anything is said on either side."""
    with socket.create_connection(("127.0.0.1", router.port()), PATIENCE_S, source_address=(source, 0)) as peer:
        try:
            return peer.recv(1) == b""
        except ConnectionResetError:
            return True


def events(folder: Path) -> list[dict[str, Any]]:
    return denials(folder / "audit")


def with_users(folder: Path, policy: str) -> str:
    sasl = write_users(folder, {"alice": "right"})
    return (
        f"router {{\n id: bans\n saslConfigDir: {sasl}\n auditDir: {folder}/audit\n}}\n"
        f"policy {{\n{policy}\n}}\n" + LOGIN + LISTENER
    )


def test_who_guesses_passwords_is_banned_and_after_a_while_let_in_again(
    daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    policy = f" banAfterFailures: 5\n banSeconds: 2\n banAllowList: {OPERATOR}"
    router = daemon(with_users(tmp_path, policy))
    right, wrong = {"username": "alice", "password": Secret("right")}, {"username": "alice", "password": Secret("x")}
    for _ in range(5):
        with pytest.raises(ConnectionException, match="unauthorized-access"):
            client_of(router, "login", **wrong)
    # The right password is too late, and nothing is said any more.
    assert is_closed_without_a_byte(router)
    with pytest.raises(ConnectionException, match="unauthorized-access"):
        router.client("login", **wrong)  # the allowed host is told that its password is wrong, as often as it likes
    with router.client("login", **right) as operator:
        (row,) = operator.query(BAN).entities()
    assert (row["name"], row["remoteHost"], row["origin"]) == (f"automatic-{ATTACKER}", ATTACKER, "automatic")
    assert row["hits"] >= 1
    assert row["expires"] > row["created"]
    assert eventually(lambda: is_let_in(router, name="login", **right))
    router.wait_for_log(r"POLICY \(info\) Ban 'automatic-127\.0\.0\.2' of 127\.0\.0\.2 has ended")
    with router.client() as operator:
        assert not operator.query(BAN).rows
        # Whatever was refused meanwhile is on record, by the event or by its number.
        denied = operator.read(type="org.apache.qpid.dispatch.policy", identity="policy/None")["totalDenials"]

    def recorded() -> int:
        return sum(event.get("attempts", 1) for event in events(tmp_path) if event["reason"] == "banned")

    assert eventually(lambda: recorded() == denied), (recorded(), denied)
    assert [event["reason"] for event in events(tmp_path)].count("sasl_failed") == 6


def test_failures_stop_who_is_on_his_way_in_and_nobody_who_has_got_in(
    daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    """Others behind the same address keep their connections. A login that was begun before the ban is not answered, not
    even where the password is right.
    """
    router = daemon(with_users(tmp_path, f" banAfterFailures: 1\n banAllowList: {OPERATOR}"))
    port = router.port("login")
    with client_of(router, "login", username="alice", password=Secret("right")) as inside:
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S, source_address=(ATTACKER, 0)) as waiting:
            waiting.sendall(b"AMQP\3\1\0\0")
            assert waiting.recv(8) == b"AMQP\3\1\0\0"
            with pytest.raises(ConnectionException, match="unauthorized-access"):
                client_of(router, "login", username="alice", password=Secret("wrong"))
            waiting.sendall(encode(Init(mechanism="PLAIN", initial_response=b"\0alice\0right")))
            heard = b""
            # It is closed in its turn, with what it has said unread: TCP tells that as a reset.
            with contextlib.suppress(ConnectionResetError):
                while data := waiting.recv(1000):
                    heard += data
            assert b"\0\x53\x40" in heard  # the mechanisms
            assert b"\0\x53\x44" not in heard  # no outcome
        assert eventually(lambda: [event["stage"] for event in events(tmp_path)] == ["sasl", "sasl"])
        assert [event["reason"] for event in events(tmp_path)] == ["sasl_failed", "banned"]
        assert is_closed_without_a_byte(router)
        assert inside.query("router").rows


def test_a_ban_by_hand_closes_what_is_open_and_lifting_it_lets_in(
    daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    router = daemon(with_users(tmp_path, " maxConnections: 100"))
    victim = client_of(router)
    with router.client() as operator:
        made = operator.create({"remoteHost": "127.0.0.4/30", "reason": "a test"}, type=BAN, name="n")
        assert made["origin"] == "manual"
        assert "expires" not in made
        assert is_let_in(router)  # 127.0.0.2 is not in it
        operator.create({"remoteHost": ATTACKER, "reason": "it scans"}, type=BAN, name="b")
        assert eventually(lambda: is_lost(victim))
        assert is_closed_without_a_byte(router)
        (row,) = [row for row in operator.query(BAN).entities() if row["name"] == "b"]
        assert row["hits"] == 2
        assert operator.read(type=BAN, name="b")["hits"] == 2
        operator.delete(type=BAN, name="b")
        assert is_let_in(router)
    assert eventually(lambda: len(events(tmp_path)) == 2)
    found = [(event["reason"], event["stage"], event["detail"]) for event in events(tmp_path)]
    assert found == [("banned", "engine", "it scans"), ("banned", "accept", "it scans")]
    assert not router.log(r"Traceback|ERROR \(")


def test_who_bans_himself_is_answered_first(daemon: Callable[..., Daemon]) -> None:
    """The operator's own connection goes as any other, but not without the answer."""
    router = daemon(LISTENER)
    operator = router.client()
    made = operator.create({"remoteHost": OPERATOR, "seconds": 1}, type=BAN, name="oops")
    assert made["remoteHost"] == OPERATOR
    assert eventually(lambda: is_lost(operator))
    router.wait_for_log(r"POLICY \(info\) \[C1\] Connection '127\.0\.0\.1:\d+' is closed based on ban 'oops'")
    assert is_closed_without_a_byte(router, OPERATOR)
    router.wait_for_log(r"Ban 'oops' of 127\.0\.0\.1 has ended")
    with router.client() as operator:
        assert operator.query("router").rows


def test_bans_of_the_file_hold_from_the_first_connection(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    sections = f"ban {{\n name: scanner\n remoteHost: {ATTACKER}\n reason: it scans\n}}\nban {{\n user: mallory\n}}\n"
    router = daemon(sections + LISTENER)
    assert is_closed_without_a_byte(router)
    with router.client() as operator:
        rows = {row["name"]: row for row in operator.query(BAN).entities()}
        assert {name: row["origin"] for name, row in rows.items()} == {"scanner": "manual", "ban/1": "manual"}
        assert rows["scanner"]["identity"] == "ban/scanner"
        assert rows["ban/1"]["user"] == "mallory"
    # What was made at run time, like any entity, is not there after a restart; what is in the file is.
    shown = router.tool("qdmanage", "query", "--type", "ban", "name", "remoteHost")
    assert json.loads(shown.out)[0] == {"name": "scanner", "remoteHost": ATTACKER}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "a ban names a remoteHost (an address or a network such as 10.0.0.0/8), a user, or both"),
    ({"remoteHost": "example.com"}, "'example.com' is neither an address nor a network"),
    ({"remoteHost": "10.0.0.1/8"}, "has host bits set"),
    ({"remoteHost": "0.0.0.0/0"}, "is every address"),
    ({"user": "eve", "seconds": 0}, "seconds: 0 is not within 1 to"),
    ({"user": "eve", "hits": 7}, "Cannot set attribute 'hits' in CREATE"),
    ({"user": "eve", "reason": "x" * 513}, "reason: it has 513 characters, and 512 at most"),
]


def test_a_ban_that_makes_no_sense_changes_nothing(daemon: Callable[..., Daemon]) -> None:
    router = daemon(LISTENER)
    with router.client() as operator:
        for given, text in WRONG:
            with pytest.raises(BadRequestStatus) as raised:
                operator.create(given, type=BAN, name="wrong")
            assert text in str(raised.value)
        operator.create({"user": "eve"}, type=BAN, name="b")
        with pytest.raises(BadRequestStatus, match="duplicates unique attribute 'name'"):
            operator.create({"user": "bob"}, type=BAN, name="b")
        assert [row["name"] for row in operator.query(BAN).entities()] == ["b"]


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ("ban {\n reason: none\n}\n", "a ban names a remoteHost"),
        ("ban {\n user: eve\n expires: 2030-01-01\n}\n", "'expires' is set by the router"),
        ("policy {\n banAfterFailures: 101\n}\n", "banAfterFailures: Value '101' is above maximum '100'."),
        ("policy {\n banAfterFailures: -1\n}\n", "banAfterFailures: Value '-1' is below minimum '0'."),
        ("policy {\n banWindowSeconds: 0\n}\n", "banWindowSeconds: Value '0' is below minimum '1'."),
        ("policy {\n banSeconds: 0\n}\n", "banSeconds: Value '0' is below minimum '1'."),
        ("policy {\n banAllowList: 10.0.0.0/8, example.com\n}\n", "host names are not looked up here"),
    ],
)
def test_a_configuration_that_makes_no_sense_does_not_start(tmp_path: Path, section: str, text: str) -> None:
    ran = run_configuration(tmp_path, section + LISTENER.replace("port: 0", f"port: {free_port()}"))
    assert ran.status == 1
    assert text in ran.err
    assert "qdrouterd.conf:" in ran.err
