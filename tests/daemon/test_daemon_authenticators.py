"""Authenticators by name: docs/spec/policy-and-auth.md §8.10."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from daemon_process import LISTENER, Daemon, denials, start, write_users

from auth.secrets import Secret
from auth.verifiers.files import remove_user
from router.management.client import BadRequestStatus, ConnectionException

pytestmark = pytest.mark.interop

LISTEN = "listener {{\n name: {0}\n host: 127.0.0.1\n port: 0\n authenticatePeer: yes\n authenticators: {1}\n}}\n"


def configuration(folder: Path) -> str:
    for name in ("staff", "guests"):
        (folder / name).mkdir()
        write_users(folder / name, {"alice": f"of {name}"})
    return "".join(
        f"fileAuthenticator {{\n name: {name}\n path: {folder}/{name}/users\n}}\n" + LISTEN.format(f"for-{name}", name)
        for name in ("staff", "guests")
    )


def is_let_in(router: Daemon, listener: str, password: str) -> bool:
    try:
        router.client(listener, username="alice", password=Secret(password)).close()
    except ConnectionException:
        return False
    return True


def test_each_listener_asks_its_own(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    router = daemon(configuration(tmp_path) + LISTENER)
    answers = {
        (listener, password): is_let_in(router, f"for-{listener}", f"of {password}")
        for listener in ("staff", "guests")
        for password in ("staff", "guests")
    }
    assert answers == {
        ("staff", "staff"): True,
        ("staff", "guests"): False,
        ("guests", "staff"): False,
        ("guests", "guests"): True,
    }


def test_one_in_use_is_not_deleted_and_a_new_one_serves(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    router = daemon(configuration(tmp_path) + LISTENER)
    kind = "org.apache.qpid.dispatch.fileAuthenticator"
    with router.client() as operator:
        with pytest.raises(BadRequestStatus, match="authenticator 'staff' is used by listener for-staff"):
            operator.delete(type=kind, name="staff")
        with pytest.raises(BadRequestStatus, match="no-such-file: cannot be read"):
            operator.create({"path": f"{tmp_path}/no-such-file"}, type=kind, name="third")
        with pytest.raises(BadRequestStatus, match=r"no authenticator named 'third' \(known: guests, staff\)"):
            operator.create({"port": "0", "authenticators": "staff third"}, type="listener", name="of-the-third")
        operator.delete(type="listener", name="for-staff")
        operator.delete(type=kind, name="staff")


def test_a_wrong_file_stops_the_start(tmp_path: Path) -> None:
    router = start(tmp_path, f"fileAuthenticator {{\n name: staff\n path: {tmp_path}/none\n}}\n{LISTENER}")
    assert router.wait() == 1
    assert router.log(r"authenticator 'staff': .*/none: cannot be read: .*qdrouterd.conf:1")


def test_who_is_removed_is_disconnected(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    """Within revalidateInterval, on record; the others stay."""
    folder = tmp_path / "audit"
    folder.mkdir()
    users = tmp_path / "users"
    write_users(tmp_path, {"alice": "x", "bob": "x"})
    router = daemon(
        f"router {{\n auditDir: {folder}\n}}\npolicy {{\n onPolicyChange: enforce\n revalidateInterval: 1\n}}\n"
        f"fileAuthenticator {{\n name: staff\n path: {users}\n}}\n" + LISTEN.format("login", "staff") + LISTENER
    )
    with (
        router.client("login", username="bob", password=Secret("x")) as stays,
        router.client("login", username="alice", password=Secret("x")) as goes,
    ):
        remove_user(str(users), "alice")
        router.wait_for_log(r"Authenticator staff: the credentials of 'alice' hold no more: 1 connections closed")
        with pytest.raises(ConnectionException):
            goes.query("router")
        assert stays.query("router").rows
    router.end()
    (event,) = denials(folder)
    assert (event["reason"], event["user"]) == ("credentials_revoked", "alice")


def test_management_counts_what_each_was_asked(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    router = daemon(configuration(tmp_path) + LISTENER)
    outcomes = [is_let_in(router, "for-staff", password) for password in ("of staff", "of staff", "wrong")]
    assert outcomes == [True, True, False]
    rows = json.loads(router.tool("qdmanage", "query", "--type", "authenticatorStats").out)
    by_name = {row["authenticator"]: row for row in rows}
    counted = ("asked", "valid", "invalid", "unavailable", "continued", "cacheHits", "waiting", "running")
    assert [by_name["staff"][each] for each in counted] == [3, 2, 1, 0, 0, 0, 0, 0]
    assert [by_name["guests"][each] for each in counted] == [0] * 8
    assert by_name["staff"]["longestMilliseconds"] <= by_name["staff"]["milliseconds"]


def test_an_authenticator_that_has_no_answer_fails_the_check(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    """`qdstat --check` is for monitors: a count of answers that failed does not say whether it answers now."""
    router = daemon(configuration(tmp_path) + LISTENER)
    assert "2 authenticators answer" in router.tool("qdstat", "--check").out
    file = tmp_path / "staff" / "users"
    right = file.read_bytes()
    file.unlink()
    assert not is_let_in(router, "for-staff", "of staff")
    ran = router.tool("qdstat", "--check")
    assert (ran.status, "authenticator staff does not answer" in ran.out) == (1, True), ran.out
    file.touch(mode=0o600)
    file.write_bytes(right)
    assert is_let_in(router, "for-staff", "of staff")
    assert router.tool("qdstat", "--check").status == 0
