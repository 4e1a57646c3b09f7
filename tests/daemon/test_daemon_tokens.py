"""Tokens and SCRAM on the wire: tools, connectors and rhea as clients; policy 66 to 74."""

import json
import socket
import ssl
import subprocess
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from daemon_process import LISTENER, Daemon, denials, eventually
from issuer import AUDIENCE, ISSUER, Issuer
from raw_peer import SASL, frame
from server_peer import MECHANISMS, OUTCOME, Call, serving

from auth.sasl_frames import Challenge, FrameReader, Init, Mechanisms, Outcome, Response, encode
from auth.secrets import Secret
from auth.verifiers.files import set_user
from auth.verifiers.hashes import Argon2idCost
from router.management.client import ConnectionException, ManagementClient
from router.values import Array, symbol, ubyte

pytestmark = pytest.mark.interop

INTEROP = Path(__file__).resolve().parent.parent / "interop"
Started = Callable[..., Daemon]


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


def token(issuer: Issuer, **claims: Any) -> str:
    return issuer.token(**{"exp": time.time() + 300, **claims})


def configuration(folder: Path, certificates: Certificates, issuer: Issuer, **attributes: str) -> str:
    """A listener `plain` for the operator, `tokens` with TLS, `clear` without; both ask for tokens of the issuer."""
    certificate, key = certificates.pair("server")
    issuer.write(folder / "jwks.json")
    said = {"keysFile": f"{folder}/jwks.json", "issuer": ISSUER, "audience": AUDIENCE, "groupsClaim": "groups"}
    text = "".join(f" {name}: {value}\n" for name, value in {**said, **attributes}.items())
    listen = "listener {{\n name: {0}\n host: 127.0.0.1\n port: 0\n authenticators: issued\n{1}}}\n"
    return (
        f"tokenAuthenticator {{\n name: issued\n{text}}}\n"
        f"sslProfile {{\n name: tls\n certFile: {certificate}\n privateKeyFile: {key}\n}}\n"
        + listen.format("tokens", " sslProfile: tls\n authenticatePeer: yes\n")
        + listen.format("clear", "")
        + LISTENER
    )


def log_in(router: Daemon, certificates: Certificates, said: str, **options: Any) -> ManagementClient:
    return router.client("tokens", is_tls=True, trust_file=certificates.ca, token=Secret(said), **options)


def user_of(client: ManagementClient) -> tuple[str, str]:
    """Name and mechanism of the asking connection, the one with a user."""
    rows = client.query("connection", ["user", "sasl"]).rows
    (found,) = [(row[0], row[1]) for row in rows if row[1] != "ANONYMOUS"]
    return found


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "XOAUTH2"])
@pytest.mark.parametrize("username", [None, "alice"])
def test_a_token_logs_its_user_in(
    daemon: Started, tmp_path: Path, certificates: Certificates, issuer: Issuer, mechanism: str, username: str | None
) -> None:
    """policy 67."""
    router = daemon(configuration(tmp_path, certificates, issuer))
    said = token(issuer)
    with log_in(router, certificates, said, mechanisms=(mechanism,), username=username) as client:
        assert user_of(client) == ("alice", mechanism)
    for wrong in (token(issuer, aud="x"), token(Issuer()), "a.b.c", said[:-3] + "AAA"):
        with pytest.raises(ConnectionException, match=rf"Authentication failed \[mech={mechanism}\]"):
            log_in(router, certificates, wrong, mechanisms=(mechanism,))
    with pytest.raises(ConnectionException):
        log_in(router, certificates, said, username="bob")
    written = "\n".join(router.log())
    assert said not in written
    assert "token: it is for another audience (Failed to authenticate client" in written


def test_the_tools_take_a_token(daemon: Started, tmp_path: Path, certificates: Certificates, issuer: Issuer) -> None:
    router = daemon(configuration(tmp_path, certificates, issuer))
    file = tmp_path / "token"
    file.write_text(token(issuer) + "\n")
    given = ("--ssl-trustfile", certificates.ca, "--sasl-token-file", str(file))
    ran = router.tool("qdstat", "-c", *given, name="tokens")
    assert (ran.status, ran.err) == (0, "")
    assert "alice(OAUTHBEARER)" in ran.out


def offered(router: Daemon, name: str) -> tuple[str, ...]:
    with socket.create_connection(("127.0.0.1", router.port(name)), 10) as peer:
        peer.sendall(SASL)
        data, reader = b"", FrameReader()
        while (found := reader.next_frame()) is None:
            piece = peer.recv(4096)
            assert piece
            data += piece
            if len(data) > 8:
                reader.feed(data[8:])
                data = data[:8]
        assert isinstance(found, Mechanisms)
        return found.names


def test_tokens_are_not_offered_in_the_clear(
    daemon: Started, tmp_path: Path, certificates: Certificates, issuer: Issuer
) -> None:
    """policy 66: unless the authenticator says so."""
    router = daemon(configuration(tmp_path, certificates, issuer))
    assert offered(router, "clear") == ("ANONYMOUS",)
    (tmp_path / "open").mkdir()
    router = daemon(configuration(tmp_path / "open", certificates, issuer, allowUnencrypted="yes"))
    assert offered(router, "clear") == ("OAUTHBEARER", "XOAUTH2", "ANONYMOUS")


def test_a_listener_for_tokens_alone_starts(
    daemon: Started, tmp_path: Path, certificates: Certificates, issuer: Issuer
) -> None:
    text = configuration(tmp_path, certificates, issuer)
    router = daemon(text.replace("authenticatePeer: yes", "authenticatePeer: yes\n saslMechanisms: OAUTHBEARER"))
    with log_in(router, certificates, token(issuer)) as client:
        assert user_of(client) == ("alice", "OAUTHBEARER")


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ({"keysUrl": "https://x/"}, "expected one of keysFile and keysUrl"),
        ({"keysFile": ""}, "expected one of keysFile and keysUrl"),
        ({"keysFile": "", "keysUrl": "http://x/"}, "has to begin with https://"),
        ({"algorithms": "RS256 HS256"}, "algorithm 'HS256': expected some of"),
        ({"clockSkewSeconds": "3600"}, "clockSkewSeconds: '3600': expected 0 to 600"),
        ({"audience": " "}, "issuer and audience must not be empty"),
    ],
)
def test_a_wrong_authenticator_is_refused(
    daemon: Started, tmp_path: Path, issuer: Issuer, attributes: dict[str, str], why: str
) -> None:
    issuer.write(tmp_path / "jwks.json")
    router = daemon(LISTENER)
    said = {"keysFile": f"{tmp_path}/jwks.json", "issuer": ISSUER, "audience": AUDIENCE, **attributes}
    given = {name: value for name, value in said.items() if value}
    with router.client() as operator, pytest.raises(Exception, match=why):
        operator.create(given, type="org.apache.qpid.dispatch.tokenAuthenticator", name="other")


def test_an_expired_token_ends_the_connection(
    daemon: Started, tmp_path: Path, certificates: Certificates, issuer: Issuer
) -> None:
    """policy 71, on record."""
    folder = tmp_path / "audit"
    folder.mkdir()
    text = configuration(tmp_path, certificates, issuer, clockSkewSeconds="0")
    router = daemon(f"router {{\n auditDir: {folder}\n}}\n{text}")
    with log_in(router, certificates, token(issuer, exp=time.time() + 3)) as client:
        assert client.query("router").rows
        router.wait_for_log("The credentials have expired")
        with pytest.raises(ConnectionException):
            client.query("router")
    router.end()
    (event,) = denials(folder)
    assert (event["reason"], event["user"]) == ("credentials_expired", "alice")


def test_a_withdrawn_key_ends_the_connection(
    daemon: Started, tmp_path: Path, certificates: Certificates, issuer: Issuer
) -> None:
    """policy 71: within revalidateInterval, where onPolicyChange is enforce."""
    text = configuration(tmp_path, certificates, issuer)
    router = daemon(f"policy {{\n onPolicyChange: enforce\n revalidateInterval: 1\n}}\n{text}")
    with log_in(router, certificates, token(issuer)) as client:
        assert client.query("router").rows
        issuer.write(tmp_path / "new", "rsa").replace(tmp_path / "jwks.json")
        router.wait_for_log("Authenticator issued: the credentials of 'alice' hold no more: 1 connections closed")
        with pytest.raises(ConnectionException):
            client.query("router")
    with pytest.raises(ConnectionException):
        log_in(router, certificates, token(issuer))


@pytest.mark.parametrize("answers", [True, False])
def test_tokens_that_are_tried_count_whether_or_not_the_error_is_answered(
    daemon: Started, tmp_path: Path, certificates: Certificates, issuer: Issuer, answers: bool
) -> None:
    """policy 69. Attack: hang up on the error challenge, so that nothing is counted."""
    text = configuration(tmp_path, certificates, issuer)
    router = daemon("policy {\n banAfterFailures: 3\n banAllowList: 192.0.2.1\n}\n" + text)
    context = ssl.create_default_context(cafile=certificates.ca)
    for number in range(3):
        plain = socket.create_connection(("127.0.0.1", router.port("tokens")), 10)
        with context.wrap_socket(plain, server_hostname="localhost") as peer:
            peer.sendall(SASL)
            said = b"n,,\x01auth=Bearer a.b.c\x01\x01"
            peer.sendall(encode(Init(mechanism="OAUTHBEARER", initial_response=said)))
            reader = FrameReader()
            reader.feed(_exactly(peer, 8)[8:])
            frames: list[object] = []
            while not any(isinstance(each, Challenge) for each in frames):
                reader.feed(peer.recv(4096))
                while (found := reader.next_frame()) is not None:
                    frames.append(found)
            assert frames[-1] == Challenge(challenge=b'{"status":"invalid_token"}')
            if answers:
                peer.sendall(encode(Response(response=b"\x01")))
                reader.feed(peer.recv(4096))
                # The third is banned by then, and is closed.
                assert reader.next_frame() == (Outcome(code=1) if number < 2 else None)
    router.wait_for_log("[Bb]an")
    with pytest.raises((ConnectionException, OSError)):
        log_in(router, certificates, token(issuer))


def _exactly(peer: ssl.SSLSocket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += peer.recv(size - len(data))
    return data


# rhea


@pytest.fixture
def rhea(require_tool: Callable[[str, str], Path]) -> Callable[..., dict[str, Any]]:
    node = require_tool("node", "nodejs")
    if not (INTEROP / "node_modules" / "rhea").is_dir():
        pytest.fail("rhea is not installed: npm ci --prefix tests/interop (`make test` does it)")

    def run(router: Daemon, certificates: Certificates, **task: Any) -> dict[str, Any]:
        given = {"port": router.port("tokens"), "tls": {"ca": certificates.ca}, "hostname": "localhost", **task}
        ran = subprocess.run(
            [node, INTEROP / "rhea_client.js"],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            timeout=40,
            check=True,
        )
        found: dict[str, Any] = json.loads(ran.stdout)
        return found

    return run


def test_rhea_logs_in_with_a_token(
    daemon: Started, tmp_path: Path, certificates: Certificates, issuer: Issuer, rhea: Callable[..., dict[str, Any]]
) -> None:
    """XOAUTH2 is rhea's own; of OAUTHBEARER the exchange is."""
    router = daemon(configuration(tmp_path, certificates, issuer))
    for given in ({"user": "alice", "token": token(issuer)}, {"bearer": token(issuer)}):
        found = rhea(router, certificates, **given)
        assert (found["ended"], found["errors"]) == ("closed", []), found
    for given in ({"user": "bob", "token": token(issuer)}, {"bearer": token(issuer, aud="x")}):
        found = rhea(router, certificates, **given)
        assert "Failed to authenticate: 1" in json.dumps(found["errors"])
    assert '{\\"status\\":\\"invalid_token\\"}' in json.dumps(found["errors"])


# Connectors


def server(folder: Path, certificates: Certificates, issuer: Issuer) -> str:
    """Listeners with SCRAM and tokens beside each other, for connectors of the same router."""
    cost = Argon2idCost(memory_kib=8, iterations=1, lanes=1)
    set_user(str(folder / "users"), "alice", Secret("x"), cost=cost, scram=("SHA-256", "SHA-512"), must_exist=False)
    (folder / "password").write_text("x")
    text = configuration(folder, certificates, issuer)
    return (
        f"fileAuthenticator {{\n name: staff\n path: {folder}/users\n}}\n"
        f"sslProfile {{\n name: out-tls\n caCertFile: {certificates.ca}\n}}\n"
        + text.replace("name: tokens\n host: 127.0.0.1\n port: 0\n authenticators: issued",
                       "name: tokens\n host: 127.0.0.1\n port: 0\n authenticators: issued staff")
    )  # fmt: skip


def reached(operator: ManagementClient, name: str = "out") -> str:
    """connectionMsg once the attempt has ended."""

    def found() -> str:
        row = operator.read(type="connector", name=name)
        return str(row["connectionMsg"]) if row["connectionMsg"] else ""

    message = eventually(found)
    assert isinstance(message, str)
    return message


@pytest.mark.parametrize(
    ("attributes", "mechanism"),
    [
        ({"saslUsername": "alice", "saslPassword": "file:{0}/password"}, "SCRAM-SHA-512-PLUS"),
        (
            {"saslUsername": "alice", "saslPassword": "file:{0}/password", "saslMechanisms": "SCRAM-SHA-256 PLAIN"},
            "SCRAM-SHA-256",
        ),
        ({"saslToken": "file:{0}/token"}, "OAUTHBEARER"),
        ({"saslToken": "file:{0}/token", "saslMechanisms": "XOAUTH2"}, "XOAUTH2"),
    ],
)
def test_a_connector_takes_the_strongest(
    daemon: Started,
    tmp_path: Path,
    certificates: Certificates,
    issuer: Issuer,
    attributes: dict[str, str],
    mechanism: str,
) -> None:
    """policy 72."""
    router = daemon(server(tmp_path, certificates, issuer))
    (tmp_path / "token").write_text(token(issuer) + "\n")
    given = {name: value.format(tmp_path) for name, value in attributes.items()}
    with router.client() as operator:
        port = str(router.port("tokens"))
        operator.create(
            {"host": "localhost", "port": port, "sslProfile": "out-tls", **given}, type="connector", name="out"
        )
        assert f" auth={mechanism} " in reached(operator)
        users = {(row[0], row[1]) for row in operator.query("connection", ["user", "sasl"]).rows}
        assert ("alice", mechanism) in users


def test_a_connectors_token_is_read_anew_for_each_attempt(
    daemon: Started, tmp_path: Path, certificates: Certificates, issuer: Issuer
) -> None:
    router = daemon(server(tmp_path, certificates, issuer))
    file = tmp_path / "token"
    with router.client() as operator:
        port = str(router.port("tokens"))
        out = {"host": "localhost", "port": port, "sslProfile": "out-tls", "saslToken": f"file:{file}"}
        operator.create(out, type="connector", name="out")
        assert f"saslToken: {file} cannot be read: No such file or directory" in reached(operator)
        file.write_text(token(issuer, aud="x"))
        router.wait_for_log(r"Authentication failed \[mech=OAUTHBEARER\]")
        file.write_text(token(issuer))
        router.wait_for_log(r"Connection Opened: dir=out .* auth=OAUTHBEARER")
        assert operator.read(type="connector", name="out")["saslToken"] != f"file:{file}"
        for wrong in ("plain text", "pass:x", "file:"):
            with pytest.raises(Exception, match="saslToken: expected file:PATH or env:VARIABLE"):
                operator.create({**out, "saslToken": wrong}, type="connector", name="wrong")


def test_no_token_is_sent_to_a_server_without_tls(daemon: Started, tmp_path: Path, issuer: Issuer) -> None:
    (tmp_path / "token").write_text(token(issuer))
    router = daemon(LISTENER)

    def behave(call: Call) -> None:
        call.sasl(("OAUTHBEARER", "XOAUTH2"))

    with serving(behave) as peer, router.client() as operator:
        out = {"host": "127.0.0.1", "port": str(peer.port), "saslToken": f"file:{tmp_path}/token"}
        operator.create(out, type="connector", name="out")
        assert "Authentication failed [mech=none]" in reached(operator)
        assert peer.calls[0].init is None


def scram_server(iterations: int, *, last: bytes | None) -> Callable[[Call], None]:
    """A server that knows no password. last  what it sends with the outcome of success"""

    def behave(call: Call) -> None:
        assert call.read(8) == SASL
        call.send(SASL + frame(MECHANISMS, Array(symbol, (symbol("SCRAM-SHA-256"),)), kind=1))
        call.init = call.expect(0x41)
        nonce = bytes(call.init[1]).rpartition(b"r=")[2].decode()
        first = f"r={nonce}abc,s={b64encode(bytes(16)).decode()},i={iterations}"
        call.send(encode(Challenge(challenge=first.encode())))
        call.expect(0x43)
        call.send(frame(OUTCOME, ubyte(0), *(() if last is None else (last,)), kind=1))
        call.stay()

    return behave


@pytest.mark.parametrize(
    ("iterations", "last", "why"),
    [
        (10_000_000, None, "the server wants 10000000 iterations, not 4096 to 1000000"),
        (1, None, "the server wants 1 iterations"),
        (1_000_000, None, "the server says success and has not proven that it knows the password"),
        (4096, b"v=AAAA", "the server does not know the password"),
    ],
)
def test_a_hostile_server_is_not_believed_and_holds_nobody_up(
    daemon: Started, tmp_path: Path, iterations: int, last: bytes | None, why: str
) -> None:
    """policy 73, 74."""
    (tmp_path / "password").write_text("x")
    router = daemon(LISTENER)
    with serving(scram_server(iterations, last=last)) as peer, router.client() as operator:
        out = {"host": "127.0.0.1", "port": str(peer.port), "saslUsername": "alice"}
        operator.create({**out, "saslPassword": f"file:{tmp_path}/password"}, type="connector", name="out")
        message = reached(operator)
        assert why in message
        assert "(Authentication failed [mech=SCRAM-SHA-256])" in message
