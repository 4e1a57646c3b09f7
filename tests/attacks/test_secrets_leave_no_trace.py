"""Attack: passwords are read in what the router writes: logs, management, the audit log, tracebacks, other processes.

Each secret is a marker. The test puts it into the configuration and into logins, makes everything fail that can fail,
and then searches everything that was written.
"""

import json
import socket
import stat
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import daemon_process
import pytest
import raw_peer
from certificates import Certificates
from cryptography.hazmat.primitives import serialization
from daemon_process import ROOT, Daemon, Started, eventually, run_python, run_tool, write_users
from daemons import peer_of
from issuer import AUDIENCE, ISSUER, Issuer
from scramp import ScramClient

from auth.secrets import Secret
from auth.verifiers.files import set_user
from auth.verifiers.hashes import Argon2idCost
from policy.configuration.schema import load_schema
from router.management.client import ConnectionException, ManagementClient, ManagementError
from router.tools.connection_options import ConnectionOptions
from router.tools.transport import SocketTransport
from router.values import symbol

RIGHT, WRONG, SCRAM, EXPLODING = "mrkRightPw", "mrkWrongPw", "mrkScramPw", "mrkExplodes"
CONNECTOR, VARIABLE, FILED = "mrkConnector", "mrkVariable", "mrkFiledPw"
KEY, WRONG_KEY, TOKEN, SENT = "mrkKeyPhrase", "mrkWrongKey", "mrkTokenText", "mrkSentByManagement"
BIND, FILED_BIND, OF_THE_DIRECTORY = "mrkBindPw", "mrkFiledBindPw", "mrkDirectoryPw"
CONFIGURATION = """
router {{
    id: discreet
    saslConfigDir: {sasl}
    auditDir: {folder}/audit
}}
policy {{
    enableVhostPolicy: yes
    policyDir: {folder}/policy
    verboseDenials: yes
}}
log {{
    module: DEFAULT
    enable: trace+
    includeSource: yes
    outputFile: {folder}/log
}}
sslProfile {{
    name: server-tls
    certFile: {certificate}
    privateKeyFile: {folder}/locked.key
    caCertFile: {ca}
    password: pass:{KEY}
}}
sslProfile {{
    name: broken-tls
    certFile: {certificate}
    privateKeyFile: {folder}/locked.key
    password: literal:{WRONG_KEY}
}}
listener {{
    name: plain
    host: 127.0.0.1
    port: 0
    authenticatePeer: yes
    saslMechanisms: PLAIN SCRAM-SHA-256
}}
listener {{
    name: tls
    host: 127.0.0.1
    port: 0
    sslProfile: server-tls
}}
listener {{
    name: broken
    host: 127.0.0.1
    port: 0
    sslProfile: broken-tls
}}
ldapAuthenticator {{
    name: directory
    urls: ldap://127.0.0.1:{directory}
    startTls: no
    bindDn: cn=router,dc=example
    bindPassword: pass:{BIND}
    userBase: ou=people,dc=example
    timeoutSeconds: 2
    retrySeconds: 1
}}
ldapAuthenticator {{
    name: filed
    urls: ldap://127.0.0.1:{directory}
    startTls: no
    bindDn: cn=router,dc=example
    bindPassword: file:{folder}/bind-password
    userDn: uid={{user}},dc=example
    timeoutSeconds: 2
    retrySeconds: 1
}}
tokenAuthenticator {{
    name: issued
    keysFile: {folder}/jwks.json
    issuer: {issuer}
    audience: {audience}
    allowUnencrypted: yes
}}
listener {{
    name: of-directory
    host: 127.0.0.1
    port: 0
    authenticatePeer: yes
    authenticators: directory
}}
listener {{
    name: of-filed
    host: 127.0.0.1
    port: 0
    authenticatePeer: yes
    authenticators: filed
}}
listener {{
    name: tokens
    host: 127.0.0.1
    port: 0
    authenticatePeer: yes
    authenticators: issued
}}
connector {{
    name: literal
    host: 127.0.0.1
    port: {broker}
    saslMechanisms: PLAIN
    saslUsername: router
    saslPassword: pass:{CONNECTOR}
}}
connector {{
    name: variable
    host: 127.0.0.1
    port: {broker}
    saslMechanisms: PLAIN
    saslUsername: router
    saslPassword: env:BROKER_PASSWORD
}}
connector {{
    name: file
    host: 127.0.0.1
    port: {broker}
    saslMechanisms: PLAIN
    saslUsername: router
    saslPassword: file:{folder}/password
}}
"""
GROUP = {
    "users": "*",
    "remoteHosts": "*",
    "sources": "*",
    "targets": "*",
    "allowDynamicSource": True,
    "allowAnonymousSender": True,
    "management": "administrator",
}
VHOST = {"hostname": "$default", "groups": {"$default": GROUP}}
# A verifier with a fault of the worst kind: the text of the exception is the password.
LAUNCHER = """
import sys
sys.path.insert(0, {root!r})
from auth.verifiers import files
def explode(password, phc, verify=files.verify_hash):
    text = password.reveal()
    if {exploding!r} in text:
        raise RuntimeError(f"cannot verify {{text}}", text)
    return verify(password, phc)
files.verify_hash = explode
from router.io.daemon import main
sys.exit(main(sys.argv))
"""


def forms_of(secret: str) -> tuple[bytes, ...]:
    """As it is, in base64 at each offset, and in hexadecimal."""
    text = secret.encode()
    coded = (b64encode(bytes(pad) + text)[(0, 2, 3)[pad] : -4] for pad in range(3))
    return text, *coded, text.hex().encode()


@dataclass
class Searched:
    """Everything that was written, by where."""

    texts: list[tuple[str, bytes]] = field(default_factory=list)

    def add(self, where: str, text: object) -> None:
        data = text if isinstance(text, bytes) else str(text).encode("utf-8", "replace")
        self.texts.append((where, data))

    def found(self, secrets: tuple[str, ...]) -> list[tuple[str, str]]:
        return [
            (where, secret)
            for secret in secrets
            for where, text in self.texts
            if any(each.lower() in text.lower() for each in forms_of(secret))
        ]


class Broker:
    """Offers PLAIN to whoever comes, takes the password, and breaks off in different ways."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.received = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        answers = (
            raw_peer.frame(0x44, 1, kind=1),  # refused
            raw_peer.frame(0x42, b"more?", kind=1),  # a challenge that PLAIN does not have
            b"\xff" * 64,
            b"",
        )
        number = 0
        with suppress(OSError):
            while True:
                connected, _ = self.socket.accept()
                with connected, suppress(OSError):
                    connected.settimeout(5)
                    connected.recv(8)
                    connected.sendall(raw_peer.SASL + raw_peer.frame(0x40, [symbol("PLAIN")], kind=1))
                    self.received += connected.recv(4096)
                    connected.sendall(answers[number % len(answers)])
                    number += 1
                    connected.recv(4096)


class Directory:
    """Takes what is sent to an LDAP server, and breaks off in different ways."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.received = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        # The answer to the first request: the password is wrong. Bytes that are none of LDAP's. Nothing.
        answers = (bytes.fromhex("300c02010161070a013104000400"), b"\xff" * 32, b"")
        number = 0
        with suppress(OSError):
            while True:
                connected, _ = self.socket.accept()
                with connected, suppress(OSError):
                    connected.settimeout(5)
                    self.received += connected.recv(4096)
                    connected.sendall(answers[number % len(answers)])
                    number += 1
                    self.received += connected.recv(4096)


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker()
    yield made
    made.socket.close()


@pytest.fixture
def directory() -> Iterator[Directory]:
    made = Directory()
    yield made
    made.socket.close()


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def router(
    tmp_path: Path,
    certificates: Certificates,
    broker: Broker,
    directory: Directory,
    issuer: Issuer,
) -> Daemon:
    issuer.write(tmp_path / "jwks.json")
    (tmp_path / "bind-password").write_text(f"{FILED_BIND}\n")
    (tmp_path / "bind-password").chmod(0o600)
    users = tmp_path / "db"
    users.mkdir()
    sasl = write_users(users, {"alice": RIGHT, "bob": EXPLODING}, "PLAIN SCRAM-SHA-256")
    cost = Argon2idCost(memory_kib=8, iterations=1, lanes=1)
    set_user(str(users / "users"), "carol", Secret(SCRAM), cost=cost, scram=("SHA-256",))
    (tmp_path / "audit").mkdir()
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "all.json").write_text(json.dumps([["vhost", VHOST]]))
    (tmp_path / "password").write_text(f"{FILED}\n")
    certificate, key = certificates.pair("server")
    locked = serialization.load_pem_private_key(Path(key).read_bytes(), None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(KEY.encode()),
    )
    (tmp_path / "locked.key").write_bytes(locked)
    launcher = tmp_path / "launcher.py"
    launcher.write_text(LAUNCHER.format(root=str(ROOT), exploding=EXPLODING))
    configuration = CONFIGURATION.format(
        sasl=sasl, folder=tmp_path, certificate=certificate, ca=certificates.ca, broker=broker.port, KEY=KEY,
        WRONG_KEY=WRONG_KEY, CONNECTOR=CONNECTOR, BIND=BIND, directory=directory.port, issuer=ISSUER, audience=AUDIENCE,
    )  # fmt: skip
    command = (sys.executable, str(launcher))
    return daemon_process.start(tmp_path, configuration, command=command, environment={"BROKER_PASSWORD": VARIABLE})


def port_of(router: Daemon, name: str) -> int:
    def found() -> list[str]:
        log = router.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [line for line in lines if f"({name})" in line and "Listening on" in line]

    line = eventually(found)[0]
    return int(line.split("127.0.0.1:")[1].split()[0])


def exchange(port: int, *messages: bytes, answers: Callable[[bytes], bytes] | None = None) -> bytes:
    """Send, read to the end; `answers` gives the further messages by what came."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), 10) as peer, suppress(OSError):
        peer.settimeout(3)
        for message in messages:
            peer.sendall(message)
        while piece := peer.recv(65536):
            received += piece
            if answers is not None and (reply := answers(received)):
                peer.sendall(reply)
    return received


def scram_login(port: int, user: str, password: str) -> bytes:
    client = ScramClient(["SCRAM-SHA-256"], user, password)
    first = raw_peer.sasl_init("SCRAM-SHA-256", client.get_client_first().encode())
    sent: list[int] = []

    def answer(received: bytes) -> bytes:
        challenges = [fields[0] for kind, code, fields in raw_peer.frames_in(received) if (kind, code) == (1, 0x42)]
        if len(challenges) == 1 and not sent:
            sent.append(1)
            challenge = challenges[0]
            assert isinstance(challenge, bytes)
            client.set_server_first(challenge.decode())
            return raw_peer.frame(0x43, client.get_client_final().encode(), kind=1)
        return b""

    return exchange(port, raw_peer.SASL + first, answers=answer)


def log_in_in_every_way(port: int, seen: Searched) -> None:
    plain, init = raw_peer.plain, raw_peer.sasl_init
    logins = [
        plain("alice", WRONG),
        plain("nobody", WRONG),
        plain("bob", EXPLODING),
        init("PLAIN", f"alice\0{WRONG}".encode()),
        init("PLAIN", f"\0alice\0{WRONG}\0{WRONG}".encode()),
        init("PLAIN", f"alice\0bob\0{WRONG}".encode()),
        init("PLAIN", f"\0alice\0{WRONG}".encode() + b"\xff"),
        init("PLAIN", f"\0alice\0{WRONG * 500}".encode()),
        init("OAUTHBEARER", f"n,a=alice,\1auth=Bearer {TOKEN}\1\1".encode()),
        init("XOAUTH2", f"user=alice\1auth=Bearer {TOKEN}\1\1".encode()),
        init("SCRAM-SHA-256", f"n,,n=alice,r=abc,{WRONG}".encode()),
        init("PLAIN", f"\0alice\0{RIGHT}".encode()) + bytes(70_000),
        init("PLAIN", f"\0alice\0{RIGHT}".encode())[:-4],
        init("PLAIN", f"\0alice\0{RIGHT}".encode()) + WRONG.encode(),
        raw_peer.frame(0x43, f"\0alice\0{RIGHT}".encode(), kind=1),
    ]
    for number, login in enumerate(logins):
        seen.add(f"answer to login {number}", exchange(port, raw_peer.SASL + login))
    seen.add("password in place of a header", exchange(port, WRONG.encode() * 3))
    seen.add("scram", scram_login(port, "carol", WRONG))
    seen.add("scram", scram_login(port, "nobody", WRONG))


def log_in_at_the_directory(router: Daemon, seen: Searched) -> None:
    for number in range(4):
        for name in ("of-directory", "of-filed"):
            login = raw_peer.SASL + raw_peer.plain("alice", OF_THE_DIRECTORY)
            seen.add(f"answer {number} {name}", exchange(port_of(router, name), login))
        time.sleep(0.3)  # a server that has failed is left alone for a second


def log_in_by_tokens(port: int, issuer: Issuer, seen: Searched) -> tuple[str, ...]:
    """What is secret of the tokens: their signatures, by which they are good."""
    now_s = time.time()
    good = issuer.token(exp=now_s + 300)
    tokens = (
        good,
        issuer.token(exp=now_s - 3000),
        issuer.token(exp=now_s + 300, aud="another"),
        issuer.token(exp="soon"),
        issuer.token(exp=now_s + 300, sub="line\nbreak"),
        issuer.token(exp=now_s + 300, header={"kid": "unknown"}),
    )
    for number, token in enumerate(tokens):
        for message in (
            raw_peer.sasl_init("OAUTHBEARER", f"n,,\1auth=Bearer {token}\1\1".encode()),
            raw_peer.sasl_init("XOAUTH2", f"user=mallory\1auth=Bearer {token}\1\1".encode()),
            raw_peer.sasl_init("PLAIN", f"\0alice\0{token}".encode()),
        ):
            seen.add(f"answer to token {number}", exchange(port, raw_peer.SASL + message))
    login = raw_peer.sasl_init("OAUTHBEARER", f"n,,\1auth=Bearer {good}\1\1".encode())
    answer = exchange(port, raw_peer.SASL + login + raw_peer.AMQP + raw_peer.open_frame() + raw_peer.frame(0x18))
    assert 0x10 in [code for _, code, _ in raw_peer.frames_in(answer)], "a good token is let in"
    seen.add("answers to a good token", answer)
    return tuple(token.rpartition(".")[2][:40] for token in tokens)


def manage_in_every_way(port: int, seen: Searched) -> None:
    with router_client(port, RIGHT) as client:
        for kind in load_schema().types:
            with suppress(ManagementError):
                seen.add(f"QUERY {kind}", list(client.query(kind).rows))
        requests: list[tuple[str, dict[str, object]]] = [
            ("connector", {"host": "127.0.0.1", "port": "1", "saslUsername": "u", "saslPassword": SENT}),
            ("connector", {"host": "127.0.0.1", "port": "1", "role": "none", "saslPassword": f"pass:{SENT}"}),
            ("connector", {"port": "x" * 9, "saslPassword": [SENT]}),
            ("connector", {"saslPasword": SENT}),
            ("sslProfile", {"password": f"literal:{SENT}", "certFile": "/none", "caCertFile": "/none"}),
            ("sslProfile", {"pasword": SENT}),
            ("listener", {"port": "0", "saslPassword": SENT}),
        ]
        for number, (kind, attributes) in enumerate(requests):
            try:
                seen.add("CREATE", client.create(attributes, type=kind, name=f"made-{number}"))
                seen.add("READ", client.read(type=kind, name=f"made-{number}"))
            except ManagementError as error:
                seen.add("refused CREATE", f"{error!r} {error} {error.description}")
        for name in ("literal", "variable", "file"):
            seen.add("READ", client.read(type="connector", name=name))
        with suppress(ManagementError):
            client.update({"saslPassword": SENT}, type="connector", name="literal")
        seen.add("GET-LOG", client.node("GET-LOG"))
        seen.add("GET-SCHEMA", client.node("GET-SCHEMA"))


def router_client(port: int, password: str) -> ManagementClient:
    # alice has no keys for SCRAM, which is offered too.
    options = ConnectionOptions(
        host="127.0.0.1",
        port=port,
        timeout_s=10,
        mechanisms=("PLAIN",),
        username="alice",
        password=Secret(password),
    )
    return ManagementClient(SocketTransport(options))


def use_the_tools(port: int, folder: Path, seen: Searched) -> None:
    (folder / "typed").write_text(f"{RIGHT}\n")
    (folder / "mistyped").write_text(f"{WRONG}\n")
    bus = ("-b", f"127.0.0.1:{port}", "--sasl-username", "alice")
    for file in ("typed", "mistyped"):
        login = (*bus, "--sasl-password-file", str(folder / file))
        for tool, *arguments in (
            ("qdstat", "-c", "-v"),
            ("qdstat", "--log"),
            ("qdmanage", "query", "--type", "connector"),
            ("qdmanage", "query", "--type", "sslProfile"),
            ("qdmanage", "get-log"),
            ("qdmanage", "create", "--type", "connector", "--name", "t", "port=1", f"saslPassword={SENT}"),
        ):
            ran = run_tool(tool, *login, *arguments)
            seen.add(f"{tool} {arguments}", ran.out + ran.err)
    for options in ((), ("--format", "sarif"), ("--format", "json")):
        ran = run_python("-m", "policy.cli.main", "lint", *options, str(folder / "qdrouterd.conf"))
        seen.add(f"qdpolicy lint {options}", ran.out + ran.err)


def children_of(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def watch_children(router: Daemon, seen: Searched) -> int:
    """Have the policy folder read by the process that does so, and look at it. Returns how often one was seen."""
    looks = 0
    (router.folder / "policy" / "all.json").write_text(json.dumps([["vhost", {**VHOST, "maxConnections": 77}]]))
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline and looks < 20:
        for child in children_of(router.process.pid):
            with suppress(OSError):
                environment = Path(f"/proc/{child}/environ").read_bytes()
                command = Path(f"/proc/{child}/cmdline").read_bytes()
                if b"policy_reader" in command:
                    looks += 1
                    seen.add("environment of a child", environment)
                    seen.add("command line of a child", command)
        time.sleep(0.005)
    return looks


def test_no_secret_is_written_anywhere(
    tmp_path: Path, router: Daemon, broker: Broker, directory: Directory, issuer: Issuer
) -> None:
    seen = Searched()
    try:
        port = port_of(router, "plain")
        log_in_in_every_way(port, seen)
        log_in_at_the_directory(router, seen)
        signatures = log_in_by_tokens(port_of(router, "tokens"), issuer, seen)
        scram_login(port, "carol", SCRAM)
        manage_in_every_way(port, seen)
        with pytest.raises(ConnectionException) as refused:
            router_client(port, WRONG).query("router")
        seen.add("a client's exception", f"{refused.value!r} {refused.getrepr(showlocals=False)}")
        exchange(port_of(router, "tls"), b"\x16\x03\x01\x00\x05hello")
        exchange(port_of(router, "broken"), b"\x16\x03\x01\x00\x05hello")
        use_the_tools(port, tmp_path, seen)
        seen.add("command line", Path(f"/proc/{router.process.pid}/cmdline").read_bytes())
        assert watch_children(router, seen), "the process that reads the policy was seen"
        eventually(lambda: all(each.encode() in broker.received for each in (CONNECTOR, VARIABLE, FILED)))
        users = tmp_path / "db" / "users"
        users.chmod(0o666)
        seen.add("answer of a broken verifier", exchange(port, raw_peer.SASL + raw_peer.plain("alice", RIGHT)))
        users.chmod(0o600)
        router.process.send_signal(1)
        seen.add("after SIGHUP", exchange(port, raw_peer.SASL + raw_peer.plain("alice", WRONG)))
    finally:
        router.end()
    for file in ("log", *(f"audit/{path.name}" for path in (tmp_path / "audit").iterdir())):
        seen.add(file, (tmp_path / file).read_bytes())
    seen.add("standard error", "\n".join(router.lines))
    log = (tmp_path / "log").read_text()
    for happened in ("the verifier failed with RuntimeError", "Password verification failed", "PROTOCOL (trace)",
                     "mode 666", "broken-tls", "Failed to authenticate"):  # fmt: skip
        assert happened in log, happened
    assert all(each.encode() in directory.received for each in (BIND, OF_THE_DIRECTORY)), directory.received
    secrets = (RIGHT, WRONG, SCRAM, EXPLODING, CONNECTOR, VARIABLE, FILED, KEY, WRONG_KEY, TOKEN, SENT)
    assert seen.found((*secrets, BIND, FILED_BIND, OF_THE_DIRECTORY, *signatures)) == []


def test_a_configuration_that_is_refused_shows_no_secret(tmp_path: Path) -> None:
    """Attack: a router that does not start writes why, where many read it."""
    seen = Searched()
    for number, text in enumerate(
        (
            f"sslProfile {{\n password: pass:{KEY}\n protocols: none\n}}\n",
            f"connector {{\n port: 70000\n saslPassword: {CONNECTOR}\n}}\n",
            f"connector {{\n saslPassword {CONNECTOR}\n}}\n",
            f"connector {{\n saslPassword: env:NOT_SET\n host: {CONNECTOR[:0]}\n}}\nlistener {{\n port: {{\n",
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        ran = daemon_process.run_configuration(folder, text)
        assert ran.status != 0
        seen.add(text, ran.out + ran.err)
    assert seen.found((KEY, CONNECTOR)) == []


def test_no_core_is_dumped_and_nobody_else_looks_into_the_process() -> None:
    """Attack: a crash, and a reader of its core; a debugger of another service of the same user."""
    program = (
        "import ctypes, os, resource\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, resource.getrlimit(resource.RLIMIT_CORE)[1]))\n"
        "from router.io.memory import forbid_core_dumps\n"
        "forbid_core_dumps()\n"
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), resource.getrlimit(resource.RLIMIT_CORE)[0])\n"
    )
    for setting, expected in (("", "0 0"), ("1", "1 1048576")):
        found = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT), "PALISADE_CORE_DUMPS": setting},
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.strip() == expected


def test_the_running_router_is_closed_to_others(daemon: Started) -> None:
    router = daemon(daemon_process.LISTENER)
    limits = Path(f"/proc/{router.process.pid}/limits").read_text()
    (core,) = (line for line in limits.splitlines() if line.startswith("Max core file size"))
    assert core.split()[4] == "0"
    status = Path(f"/proc/{router.process.pid}/environ").stat()
    assert status.st_uid == 0
    assert stat.S_IMODE(status.st_mode) == 0o400
    with peer_of(router) as peer:
        peer.send(raw_peer.SASL)
