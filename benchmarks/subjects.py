"""The measured programs: the router with a policy of 100 users, and the floor.

Both are started for each benchmark run, on ports that the system chooses. Both serve the same clients, unencrypted and
over TLS.
"""

import datetime
import ipaddress
import json
import secrets
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from auth.secrets import Secret
from auth.verifiers.files import set_user
from auth.verifiers.hashes import Argon2idCost, hash_password
from benchmarks.directory import PEOPLE
from benchmarks.processes import Process

USERS = 100
TEAMS = 20
# The user of all measurements, except those of password hashing.
USER = "user-042"
# The user with a password hashed as by qdpasswd. Hashing is slow by design and would hide everything else.
SLOW_USER = "user-099"
CHEAP = Argon2idCost(memory_kib=8, iterations=1, lanes=1)
LOAD_PASSWORD_VARIABLE = "PALISADE_BENCH_PASSWORD"
HOSTNAME = "bench.example"
LISTENERS = ("clear", "secure", "secure-slow")

CONFIGURATION = """\
router {{
    mode: {mode}
    id: {name}
    saslConfigDir: {folder}/sasl
    auditDir: {folder}/audit/{name}
}}
policy {{
    enableVhostPolicy: yes
    policyDir: {folder}/policy
}}
sslProfile {{
    name: bench-tls
    certFile: {folder}/server.crt
    privateKeyFile: {folder}/server.key
}}
address {{
    prefix: multicast
    distribution: multicast
}}
listener {{
    name: clear
    host: 127.0.0.1
    port: 0
    authenticatePeer: yes
    saslMechanisms: PLAIN
}}
listener {{
    name: secure
    host: 127.0.0.1
    port: 0
    sslProfile: bench-tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: PLAIN SCRAM-SHA-256
}}
fileAuthenticator {{
    name: slow
    path: {folder}/slow-users
}}
listener {{
    name: secure-slow
    host: 127.0.0.1
    port: 0
    sslProfile: bench-tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: PLAIN
    authenticators: slow
}}
"""
# Of a router in a chain, whose neighbours are on loopback too.
ROUTERS_CONFIGURATION = """\
listener {
    name: routers
    host: 127.0.0.1
    port: 0
    role: inter-router
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}
"""
NEIGHBOUR_CONFIGURATION = """\
connector {{
    name: neighbour
    host: 127.0.0.1
    port: {port}
    role: inter-router
    saslMechanisms: ANONYMOUS
}}
"""
DIRECTORY_CONFIGURATION = """\
ldapAuthenticator {{
    name: directory
    urls: {url}
    startTls: no
    userDn: uid={{user}},{people}
    cacheSeconds: 600
}}
listener {{
    name: secure-directory
    host: 127.0.0.1
    port: 0
    sslProfile: bench-tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: PLAIN
    authenticators: directory
}}
"""
SASL_CONFIGURATION = """\
pwcheck_method: auxprop
auxprop_plugin: userfile
userfile_path: {folder}/users
mech_list: PLAIN SCRAM-SHA-256 ANONYMOUS EXTERNAL
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A running router or floor.

    login        options with which the load client logs in; the password is passed in the environment
    tls_port     TLS from the first byte
    directory_tls_port  the same, for a user of an LDAP directory; 0 without one
    slow_tls_port  the same, for the user whose password is hashed as by qdpasswd. That user has a separate file, since
                   each login computes a hash of each cost in its file
    ready_after_s  from starting the process until it reported that it serves
    """

    name: str
    process: Process
    port: int
    tls_port: int
    password: str
    ready_after_s: float
    login: Sequence[str]
    slow_tls_port: int = 0
    directory_tls_port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The files of one benchmark run: configuration, policy, users, certificate."""

    folder: Path
    password: str
    router_command: Sequence[str]
    floor_options: Sequence[str]

    @classmethod
    def make(cls, folder: Path, *, router_command: str, is_floor_on_uvloop: bool) -> "Site":
        """Writes the files of a run.

        router_command  how to start qdrouterd; ` -c FILE` is added. "" for the one of this checkout.
        """
        password = secrets.token_urlsafe(12)
        for name in ("sasl", "policy", "audit"):
            (folder / name).mkdir()
        _write_certificate(folder)
        (folder / "sasl" / "qdrouterd.conf").write_text(SASL_CONFIGURATION.format(folder=folder))
        (folder / "policy" / "bench.json").write_text(json.dumps([["vhost", _vhost()]], indent=1))
        cheap = hash_password(Secret(password), CHEAP)
        users = folder / "users"
        users.touch(mode=0o600)
        users.write_text("".join(f"{name}:{cheap}\n" for name in map(_user, range(USERS))))
        set_user(str(folder / "slow-users"), SLOW_USER, Secret(password), cost=Argon2idCost(), must_exist=False)
        set_user(str(users), USER, Secret(password), cost=CHEAP, scram=("SHA-256",))
        command = shlex.split(router_command) or [sys.executable, "-m", "router.io.daemon"]
        options = ["--uvloop"] if is_floor_on_uvloop else []
        return cls(folder=folder, password=password, router_command=command, floor_options=options)

    @contextmanager
    def router(self, directory_url: str = "", *, more: str = "") -> Iterator[Subject]:
        """Yields the router, until the end of the body. Errors: ProcessError if it does not start.

        directory_url  of an LDAP directory, for an additional listener
        more           sections of its configuration
        """
        listeners: tuple[str, ...] = LISTENERS
        text = self._configuration("bench", mode="standalone") + more
        if directory_url:
            text += DIRECTORY_CONFIGURATION.format(url=directory_url, people=PEOPLE)
            listeners = (*LISTENERS, "secure-directory")
        process = self._start("bench", text)
        try:
            ready_after_s, _ = process.wait_for(r"SERVER \(notice\) Operational, ")
            listening = r"Listening on 127\.0\.0\.1:(\d+) "
            ports = [int(process.wait_for(rf"{listening}\({name}\)")[1][1]) for name in listeners]
            yield Subject(
                name="router",
                process=process,
                port=ports[0],
                tls_port=ports[1],
                slow_tls_port=ports[2],
                directory_tls_port=ports[3] if directory_url else 0,
                password=self.password,
                ready_after_s=ready_after_s,
                login=("--user", USER, "--password-env", LOAD_PASSWORD_VARIABLE),
            )
        finally:
            process.stop()

    def _configuration(self, name: str, *, mode: str) -> str:
        return CONFIGURATION.format(folder=self.folder, name=name, mode=mode)

    def _start(self, name: str, configuration: str) -> Process:
        (self.folder / "audit" / name).mkdir(exist_ok=True)
        path = self.folder / f"{name}.conf"
        path.write_text(configuration)
        return Process([*self.router_command, "-c", str(path)])

    @contextmanager
    def chain(self, count: int) -> Iterator[tuple[Subject, ...]]:
        """Yields `count` routers, each connected to the next, from the senders' to the receivers'.

        Errors  ProcessError if they do not start, or the first finds no way to the last
        """
        with ExitStack() as stack:
            routers: list[Subject] = []
            neighbour = 0
            for index in range(count, 0, -1):
                name = f"bench-{count}-{index}"
                text = self._configuration(name, mode="interior") + ROUTERS_CONFIGURATION
                if neighbour:
                    text += NEIGHBOUR_CONFIGURATION.format(port=neighbour)
                process = self._start(name, text)
                stack.callback(process.stop)
                ready_after_s, _ = process.wait_for(r"SERVER \(notice\) Operational, ")
                port, neighbour = (
                    int(process.wait_for(rf"Listening on 127\.0\.0\.1:(\d+) \({listener}\)")[1][1])
                    for listener in ("clear", "routers")
                )
                routers.append(
                    Subject(
                        name=name,
                        process=process,
                        port=port,
                        tls_port=0,
                        password=self.password,
                        ready_after_s=ready_after_s,
                        login=("--user", USER, "--password-env", LOAD_PASSWORD_VARIABLE),
                    )
                )
            routers.reverse()
            ends = routers[0], routers[-1]
            for here, there in (ends, ends[::-1]):
                here.process.wait_for(rf"ROUTER_LS \(info\) Computed costs: .*'{there.name}': ")
            yield tuple(routers)

    @contextmanager
    def floors(self, count: int) -> Iterator[tuple[Subject, ...]]:
        """Yields `count` floors, each of which sends everything to the next. Errors: as for `floor`."""
        with ExitStack() as stack:
            floors: list[Subject] = []
            for _ in range(count):
                floors.insert(0, stack.enter_context(self.floor(to=floors[0].port if floors else 0)))
            yield tuple(floors)

    @contextmanager
    def floor(self, *, to: int = 0) -> Iterator[Subject]:
        """Yields the floor, until the end of the body. Errors: ProcessError if it does not start.

        to  the port of another floor, to which it sends everything
        """
        files = [str(self.folder / "server.crt"), str(self.folder / "server.key")]
        onward = ["--to", str(to)] if to else []
        process = Process([sys.executable, "-m", "benchmarks.floor", *files, *self.floor_options, *onward])
        try:
            ready_after_s, found = process.wait_for(r"Listening on (\d+) (\d+)")
            yield Subject(
                name="floor",
                process=process,
                port=int(found[1]),
                tls_port=int(found[2]),
                password=self.password,
                ready_after_s=ready_after_s,
                login=(),
            )
        finally:
            process.stop()


def _user(number: int) -> str:
    return f"user-{number:03d}"


def _vhost() -> dict[str, object]:
    """Returns one vhost with 20 teams of five.

    It allows the addresses of all measured messages, but not by a plain `*`.
    """
    groups = {}
    for team in range(TEAMS):
        addresses = f"team-{team}.*, ${{user}}.*, shared.news, bench, bench.*, crowd.*, multicast.*"
        groups[f"team-{team}"] = {
            "users": ", ".join(_user(number) for number in range(team, USERS, TEAMS)),
            "remoteHosts": "10.0.0.0-10.255.255.255, 127.0.0.1",
            "sources": addresses,
            "targets": f"{addresses}, $management",
            "maxSessions": 10,
            "maxSenders": 100,
            "maxReceivers": 100,
            "allowDynamicSource": True,
        }
    # The load client sends the address that it connects to as its hostname.
    return {"hostname": HOSTNAME, "aliases": "127.0.0.1", "allowUnknownUser": False, "groups": groups}


def _write_certificate(folder: Path) -> None:
    """Writes server.crt and server.key: self-signed, P-256, for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOSTNAME)])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "server.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.key").touch(mode=0o600)
    (folder / "server.key").write_bytes(private)
