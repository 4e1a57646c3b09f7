"""A real LDAP server: OpenLDAP's slapd on loopback, with a certificate of the tests and people of its own."""

import ctypes
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ldap3
from certificates import Certificates
from free_ports import free_port
from process_log import PATIENCE_S, ProcessLog

SUFFIX = "dc=example,dc=com"
PEOPLE = f"ou=people,{SUFFIX}"
GROUPS = f"ou=groups,{SUFFIX}"
ROOT = f"cn=root,{SUFFIX}"
SERVICE = f"cn=router,{SUFFIX}"
SERVICE_PASSWORD = "the-service's-own"
MANY = 500

_SCHEMAS = ("core", "cosine", "inetorgperson", "nis")
_CONFIGURATION = """
{includes}
pidfile {folder}/slapd.pid
modulepath /usr/lib/ldap
moduleload back_mdb
moduleload ppolicy
TLSCACertificateFile {ca}
TLSCertificateFile {certificate}
TLSCertificateKeyFile {key}
sizelimit 600
{extra}
database mdb
suffix "{suffix}"
directory {folder}/data
rootdn "{root}"
rootpw root
index uid,member,memberUid,objectClass eq
overlay ppolicy
access to attrs=userPassword by self auth by anonymous auth by * none
access to dn.subtree="{people}" by dn.exact="{service}" read by self read by * none
access to * by dn.exact="{service}" read by users read by * none
"""


def _entry(dn: str, *lines: str) -> str:
    return "\n".join((f"dn: {dn}", *lines)) + "\n\n"


def person(name: str, password: str) -> str:
    lines = (f"uid: {name}", f"cn: {name}", "sn: x", f"userPassword: {password}")
    return _entry(f"uid={name},{PEOPLE}", "objectClass: inetOrgPerson", *lines)


def group(name: str, *members: str) -> str:
    """members  DNs"""
    lines = (f"cn: {name}", *(f"member: {each}" for each in members))
    return _entry(f"cn={name},{GROUPS}", "objectClass: groupOfNames", *lines)


def dn_of(name: str, *, is_group: bool = False) -> str:
    return f"cn={name},{GROUPS}" if is_group else f"uid={name},{PEOPLE}"


def contents() -> str:
    """alice: in staff, which is in company, which is in everybody; bob: in the ring of three groups; mallory: in none;
    bulk: in MANY groups; carol, who has a certificate: in machines; posix: by name.
    """
    people = ("alice", "bob", "mallory", "bulk", "carol", "d*ve", "a(b)c", "back\\slash", "comma, plus+", "jürgen")
    return "".join(
        (
            _entry(SUFFIX, "objectClass: dcObject", "objectClass: organization", "dc: example", "o: x"),
            _entry(PEOPLE, "objectClass: organizationalUnit", "ou: people"),
            _entry(GROUPS, "objectClass: organizationalUnit", "ou: groups"),
            _entry(SERVICE, "objectClass: organizationalRole", "objectClass: simpleSecurityObject",
                   "cn: router", f"userPassword: {SERVICE_PASSWORD}"),
            *(person_of_any_name(name, f"of {name}") for name in people),
            group("staff", dn_of("alice")),
            group("machines", dn_of("carol")),
            group("company", dn_of("staff", is_group=True)),
            group("everybody", dn_of("company", is_group=True)),
            group("ring-1", dn_of("bob"), dn_of("ring-3", is_group=True)),
            group("ring-2", dn_of("ring-1", is_group=True)),
            group("ring-3", dn_of("ring-2", is_group=True)),
            _entry(f"cn=posix,{GROUPS}", "objectClass: posixGroup", "cn: posix", "gidNumber: 7", "memberUid: alice"),
            *(group(f"many-{number:03}", dn_of("bulk")) for number in range(MANY)),
        )
    )  # fmt: skip


def person_of_any_name(name: str, password: str) -> str:
    """As `person`, for names that have to be escaped in a DN."""
    escaped = "".join(each if each.isalnum() else f"\\{ord(each):02x}" for each in name)
    lines = (f"uid: {name}", "cn: x", "sn: x", f"userPassword: {password}")
    return _entry(f"uid={escaped},{PEOPLE}", "objectClass: inetOrgPerson", *lines)


def _wait_for_port(port: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, f"nobody listens on port {port}"
            time.sleep(0.01)
        else:
            return


@dataclass(slots=True, kw_only=True)
class Slapd:
    """One server; its ports stay the same when it is started again."""

    program: Path
    loader: Path
    folder: Path
    certificates: Certificates
    port: int
    tls_port: int
    process: ProcessLog | None = None

    @property
    def ldap(self) -> str:
        return f"ldap://127.0.0.1:{self.port}"

    @property
    def ldaps(self) -> str:
        return f"ldaps://127.0.0.1:{self.tls_port}"

    def load(self, ldif: str, *, certificate: str = "server", extra: str = "") -> None:
        (self.folder / "data").mkdir()
        cert, key = self.certificates.pair(certificate)
        text = _CONFIGURATION.format(
            includes="\n".join(f"include /etc/ldap/schema/{name}.schema" for name in _SCHEMAS),
            folder=self.folder, ca=self.certificates.ca, certificate=cert, key=key,
            suffix=SUFFIX, root=ROOT, people=PEOPLE, service=SERVICE, extra=extra,
        )  # fmt: skip
        (self.folder / "slapd.conf").write_text(text)
        command = [str(self.loader), "-q", "-f", str(self.folder / "slapd.conf")]
        loaded = subprocess.run(command, input=ldif, text=True, check=False, capture_output=True, timeout=PATIENCE_S)
        assert loaded.returncode == 0, loaded.stderr

    def start(self) -> None:
        process = subprocess.Popen(
            [str(self.program), "-f", str(self.folder / "slapd.conf"), "-h", f"{self.ldap} {self.ldaps}", "-d", "256"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL),
        )
        self.process = ProcessLog(process=process)
        threading.Thread(target=self.process.read_log, daemon=True).start()
        self.process.wait_for_log("slapd starting")
        for port in (self.port, self.tls_port):
            _wait_for_port(port)

    @property
    def log(self) -> ProcessLog:
        assert self.process is not None
        return self.process

    def signal(self, number: int) -> None:
        self.log.process.send_signal(number)

    def stop(self) -> None:
        if self.process is not None:
            self.signal(signal.SIGCONT)
            self.process.process.kill()
            self.process.process.wait(PATIENCE_S)
            self.process = None

    @contextmanager
    def administrator(self) -> Iterator[Any]:
        connection = ldap3.Connection(ldap3.Server(self.ldap), ROOT, "root", auto_bind=True)
        try:
            yield connection
        finally:
            connection.unbind()

    def change(self, dn: str, attribute: str, values: Iterable[str]) -> None:
        with self.administrator() as administrator:
            done = administrator.modify(dn, {attribute: [(ldap3.MODIFY_REPLACE, list(values))]})
            assert done, administrator.result

    def remove(self, dn: str) -> None:
        with self.administrator() as administrator:
            assert administrator.delete(dn), administrator.result


@contextmanager
def running(
    program: Path, folder: Path, certificates: Certificates, *, certificate: str = "server", extra: str = ""
) -> Iterator[Slapd]:
    """A started server with `contents`."""
    loader = program.parent / "slapadd"
    made = Slapd(
        program=program, loader=loader, folder=folder, certificates=certificates, port=free_port(), tls_port=free_port()
    )
    made.load(contents(), certificate=certificate, extra=extra)
    made.start()
    try:
        yield made
    finally:
        made.stop()
