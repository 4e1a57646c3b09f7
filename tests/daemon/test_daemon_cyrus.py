"""The user databases of Cyrus SASL, kept by its own programs: docs/spec/policy-and-auth.md §7, §8.1, §8.10."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_process import LISTENER, Daemon, denials, eventually, run_configuration
from proton import ConnectionException as ProtonException
from proton.utils import BlockingConnection
from scramp import ScramClient

from auth import sasl_frames
from auth.secrets import Secret
from router.management.client import BadRequestStatus, ConnectionException

pytestmark = pytest.mark.interop

INTEROP = Path(__file__).resolve().parent.parent / "interop"

# What 1.20's packages put into /etc/sasl2/qdrouterd.conf.
SHIPPED = """
pwcheck_method: auxprop
auxprop_plugin: sasldb
sasldb_path: /var/lib/qdrouterd/qdrouterd.sasldb
mech_list: ANONYMOUS DIGEST-MD5 EXTERNAL PLAIN

#Adding the sql_select: dummy select keeps the sql plugin from filling the log.
sql_select: dummy select
"""
SASLAUTHD = "pwcheck_method: saslauthd\nsaslauthd_path: {}\nmech_list: PLAIN LOGIN GSSAPI ANONYMOUS\n"
LOGIN = "listener {{\n name: {0}\n host: 127.0.0.1\n port: 0\n authenticatePeer: yes\n {1}\n}}\n"

SASL_HEADER = b"AMQP\x03\x01\x00\x00"

Saslpasswd = Callable[..., None]


@pytest.fixture
def saslpasswd(require_tool: Callable[[str, str], Path], tmp_path: Path) -> Saslpasswd:
    """`saslpasswd("alice", "wonderland", "-u", "example.com")` in tmp_path/users.sasldb."""
    program = require_tool("saslpasswd2", "sasl2-bin")

    def run(user: str, password: str, *options: str) -> None:
        command = [str(program), "-p", "-f", f"{tmp_path}/users.sasldb", *options, user]
        subprocess.run(command, input=password, text=True, check=True, capture_output=True)

    return run


@pytest.fixture
def saslauthd(require_tool: Callable[[str, str], Path], tmp_path: Path, saslpasswd: Saslpasswd) -> Iterator[Path]:
    """The socket of a saslauthd with alice@example.com. It reads only /etc/sasldb2: there lies ours, for it alone."""
    program, unshare = require_tool("saslauthd", "sasl2-bin"), require_tool("unshare", "util-linux")
    saslpasswd("alice", "wonderland", "-c", "-u", "example.com")
    folder = tmp_path / "saslauthd"
    folder.mkdir()
    (tmp_path / "etc").mkdir()
    script = 'mount --bind "$1" /etc/sasldb2 && exec "$2" -a sasldb -m "$3" -n 2 -d'
    if not Path("/etc/sasldb2").exists():
        # The package makes it; without it there is nothing to lay ours upon.
        pytest.skip("/etc/sasldb2 is missing: dpkg-reconfigure sasl2-bin")
    with (tmp_path / "saslauthd.log").open("wb") as log:
        process = subprocess.Popen(
            [unshare, "-rm", "sh", "-c", script, "sh", str(tmp_path / "users.sasldb"), str(program), str(folder)],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        eventually(lambda: (folder / "mux").exists() or process.poll() is not None)
        if process.poll() is not None:
            pytest.skip("a namespace of its own is not permitted here: saslauthd would need the machine's /etc/sasldb2")
        yield folder / "mux"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(10)


def sasl(folder: Path, text: str) -> str:
    """The `router` entity, with the SASL configuration of this text."""
    (folder / "sasl").mkdir()
    (folder / "sasl" / "qdrouterd.conf").write_text(text)
    return f"router {{\n id: cyrus\n saslConfigDir: {folder}/sasl\n}}\n"


def is_let_in(router: Daemon, user: str, password: str, listener: str = "login") -> bool:
    try:
        router.client(listener, username=user, password=Secret(password)).close()
    except ConnectionException:
        return False
    return True


def scram_lets_in(router: Daemon, user: str, password: str, mechanism: str, listener: str = "login") -> bool:
    """By scramp's client, which believes no server that does not know the password."""
    client, reader = ScramClient([mechanism], user, password), sasl_frames.FrameReader()
    with socket.create_connection(("127.0.0.1", router.port(listener)), timeout=20) as connection:

        def next_frame() -> sasl_frames.SaslFrame:
            while (frame := reader.next_frame()) is None:
                data = connection.recv(4096)
                assert data
                reader.feed(data)
            return frame

        connection.sendall(SASL_HEADER)
        assert connection.recv(8, socket.MSG_WAITALL) == SASL_HEADER
        assert isinstance(next_frame(), sasl_frames.Mechanisms)
        first = client.get_client_first().encode()
        connection.sendall(sasl_frames.encode(sasl_frames.Init(mechanism=mechanism, initial_response=first)))
        while isinstance(frame := next_frame(), sasl_frames.Challenge):
            text = frame.challenge.decode()
            if text.startswith("v="):
                client.set_server_final(text)
                answer = b""
            else:
                client.set_server_first(text)
                answer = client.get_client_final().encode()
            connection.sendall(sasl_frames.encode(sasl_frames.Response(response=answer)))
    assert isinstance(frame, sasl_frames.Outcome)
    return frame.code == sasl_frames.OUTCOME_OK


def proton_lets_in(router: Daemon, user: str, password: str) -> bool:
    address = f"127.0.0.1:{router.port('login')}"
    login: dict[str, Any] = {"user": user, "password": password, "allowed_mechs": "PLAIN"}
    try:
        BlockingConnection(address, timeout=10, allow_insecure_mechs=True, **login).close()
    except ProtonException:
        return False
    return True


def rhea(router: Daemon, node: Path, user: str, password: str) -> dict[str, Any]:
    task = {"port": router.port("login"), "hostname": "localhost", "user": user, "password": password}
    command = [str(node), str(INTEROP / "rhea_client.js")]
    found = subprocess.run(command, input=json.dumps(task), capture_output=True, text=True, timeout=60, check=True)
    result: dict[str, Any] = json.loads(found.stdout)
    return result


def test_the_configuration_of_1_20_lets_its_users_in(
    daemon: Callable[..., Daemon], tmp_path: Path, saslpasswd: Saslpasswd, require_tool: Callable[[str, str], Path]
) -> None:
    """policy 56: only the path of the database is another one than its packages have."""
    node = require_tool("node", "nodejs")
    if not (INTEROP / "node_modules" / "rhea").is_dir():
        pytest.fail("rhea is not installed: npm ci --prefix tests/interop (`make test` does it)")
    saslpasswd("test", "of the domain", "-c", "-u", "domain.com")
    saslpasswd("bare", "of the host", "-c")
    text = SHIPPED.replace("/var/lib/qdrouterd/qdrouterd.sasldb", f"{tmp_path}/users.sasldb")
    router = daemon(sasl(tmp_path, text) + LOGIN.format("login", "") + LISTENER)
    assert len(router.log(r"AUTHSERVICE \(warning\) .*: DIGEST-MD5 cannot be offered")) == 1
    assert proton_lets_in(router, "test@domain.com", "of the domain")
    assert proton_lets_in(router, "bare", "of the host")
    assert not proton_lets_in(router, "test", "of the domain")
    assert not proton_lets_in(router, "test@domain.com", "of the host")
    assert rhea(router, node, "test@domain.com", "of the domain")["errors"] == []
    assert rhea(router, node, "test@domain.com", "wrong")["errors"] != []
    opened = router.log(r"Connection Opened: .*auth=PLAIN")
    assert [line.split(" user=")[1].split()[0] for line in opened] == ["test@domain.com", "bare", "test@domain.com"]


def test_shipped_without_its_database_stops_only_who_asks_for_passwords(
    daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    if Path("/var/lib/qdrouterd/qdrouterd.sasldb").exists():
        pytest.skip("this machine has a router of its own")
    head = sasl(tmp_path, SHIPPED)
    daemon(head + LISTENER)
    ran = run_configuration(tmp_path, head + LOGIN.format("login", "saslMechanisms: PLAIN"))
    assert ran.status == 1
    assert "/var/lib/qdrouterd/qdrouterd.sasldb: cannot be read: No such file or directory" in ran.err


@pytest.mark.parametrize(("content", "mode"), [(b"LMDB, perhaps", 0o600), (b"", 0o600), (b"x", 0o644)])
def test_a_database_that_cannot_be_used_stops_the_start(tmp_path: Path, content: bytes, mode: int) -> None:
    path = tmp_path / "users.sasldb"
    path.write_bytes(content)
    path.chmod(mode)
    text = f"auxprop_plugin: sasldb\nsasldb_path: {path}\n"
    ran = run_configuration(tmp_path, sasl(tmp_path, text) + LOGIN.format("login", ""))
    assert ran.status == 1
    assert f"{path}: " in ran.err
    assert "qdpasswd -c -f FILE USER" in ran.err


def test_scram_from_the_passwords_of_a_sasldb(
    daemon: Callable[..., Daemon], tmp_path: Path, saslpasswd: Saslpasswd
) -> None:
    saslpasswd("alice", "wonderland", "-c", "-u", "example.com")
    mechanisms = "PLAIN SCRAM-SHA-256 SCRAM-SHA-1 ANONYMOUS"
    text = f"auxprop_plugin: sasldb\nsasldb_path: {tmp_path}/users.sasldb\nmech_list: {mechanisms}\n"
    router = daemon(sasl(tmp_path, text) + LOGIN.format("login", "") + LISTENER)
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-1"):
        assert scram_lets_in(router, "alice@example.com", "wonderland", mechanism)
        assert not scram_lets_in(router, "alice@example.com", "Wonderland", mechanism)
        assert not scram_lets_in(router, "mallory", "wonderland", mechanism)


def test_who_is_removed_is_disconnected(daemon: Callable[..., Daemon], tmp_path: Path, saslpasswd: Saslpasswd) -> None:
    """Within revalidateInterval, on record; the others stay."""
    folder = tmp_path / "audit"
    folder.mkdir()
    for user in ("alice", "bob"):
        saslpasswd(user, "x", "-c", "-u", "example.com")
    router = daemon(
        f"router {{\n auditDir: {folder}\n}}\npolicy {{\n onPolicyChange: enforce\n revalidateInterval: 1\n}}\n"
        f"sasldbAuthenticator {{\n name: staff\n path: {tmp_path}/users.sasldb\n realm: example.com\n}}\n"
        + LOGIN.format("login", "authenticators: staff")
        + LISTENER
    )
    with (
        router.client("login", username="bob", password=Secret("x")) as stays,
        router.client("login", username="alice", password=Secret("x")) as goes,
    ):
        saslpasswd("alice", "", "-d", "-u", "example.com")
        router.wait_for_log(r"Authenticator staff: the credentials of 'alice' hold no more: 1 connections closed")
        with pytest.raises(ConnectionException):
            goes.query("router")
        assert stays.query("router").rows
    router.end()
    (event,) = denials(folder)
    assert (event["reason"], event["user"]) == ("credentials_revoked", "alice")


def test_saslauthd_of_the_sasl_configuration(daemon: Callable[..., Daemon], tmp_path: Path, saslauthd: Path) -> None:
    router = daemon(sasl(tmp_path, SASLAUTHD.format(saslauthd)) + LOGIN.format("login", "") + LISTENER)
    assert len(router.log(r"AUTHSERVICE \(warning\) .*: LOGIN GSSAPI cannot be offered")) == 1
    assert proton_lets_in(router, "alice@example.com", "wonderland")
    assert not proton_lets_in(router, "alice@example.com", "Wonderland")
    assert not proton_lets_in(router, "alice", "wonderland")
    assert not is_let_in(router, "alice@example.com", "x" * 4000)
    assert not is_let_in(router, "x" * 1000, "wonderland")
    assert is_let_in(router, "alice@example.com", "wonderland")
    assert router.log("verifier unavailable") == []


def test_authenticators_of_both_kinds_by_name(
    daemon: Callable[..., Daemon], tmp_path: Path, saslauthd: Path, saslpasswd: Saslpasswd
) -> None:
    saslpasswd("bob", "builder", "-c", "-u", "example.com")
    router = daemon(
        f"sasldbAuthenticator {{\n name: file\n path: {tmp_path}/users.sasldb\n}}\n"
        f"saslauthdAuthenticator {{\n name: asked\n path: {saslauthd}\n realm: example.com\n}}\n"
        f"saslauthdAuthenticator {{\n name: away\n path: {tmp_path}/none\n}}\n"
        + LOGIN.format("from-file", "authenticators: file")
        + LOGIN.format("from-asked", "authenticators: asked")
        + LOGIN.format("from-away", "authenticators: away")
        + LISTENER
    )
    assert scram_lets_in(router, "bob@example.com", "builder", "SCRAM-SHA-512", "from-file")
    assert not is_let_in(router, "bob", "builder", "from-file")
    assert is_let_in(router, "bob", "builder", "from-asked")
    assert is_let_in(router, "bob@example.com", "builder", "from-asked")
    assert not is_let_in(router, "bob", "wrong", "from-asked")
    assert not is_let_in(router, "bob", "builder", "from-away")
    assert router.wait_for_log(r"verifier unavailable: saslauthd at .*/none: No such file or directory")
    with router.client() as operator:
        with pytest.raises(BadRequestStatus, match="authenticator 'file' is used by listener from-file"):
            operator.delete(type="sasldbAuthenticator", name="file")
        with pytest.raises(BadRequestStatus, match="no-such-file: cannot be read"):
            operator.create({"path": f"{tmp_path}/no-such-file"}, type="sasldbAuthenticator", name="third")
        operator.delete(type="listener", name="from-asked")
        operator.delete(type="saslauthdAuthenticator", name="asked")


def test_nothing_that_is_written_has_a_password(
    daemon: Callable[..., Daemon], tmp_path: Path, saslpasswd: Saslpasswd
) -> None:
    saslpasswd("alice", "plantedMarker", "-c", "-u", "example.com")
    text = f"auxprop_plugin: sasldb\nsasldb_path: {tmp_path}/users.sasldb\n"
    router = daemon(sasl(tmp_path, text) + LOGIN.format("login", "") + "log {\n module: DEFAULT\n enable: trace+\n}\n")
    assert is_let_in(router, "alice@example.com", "plantedMarker")
    assert scram_lets_in(router, "alice@example.com", "plantedMarker", "SCRAM-SHA-256")
    (tmp_path / "users.sasldb").write_bytes(b"damaged" + (tmp_path / "users.sasldb").read_bytes())
    assert not is_let_in(router, "alice@example.com", "plantedMarker")
    router.end()
    assert router.log("plantedMarker") == []
