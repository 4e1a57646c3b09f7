"""A KDC of our own on 127.0.0.1, with its users and services, in a folder of the test run."""

import importlib.util
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from daemon_process import eventually
from free_ports import free_port

REALM = "EXAMPLE.TEST"
# Permitted difference between clocks: a ticket is valid for that much longer.
SKEW_S = 2

_CLIENTS = """[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 rdns = false
 udp_preference_limit = 1
 clockskew = {skew_s}
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
"""
_KDC = """[kdcdefaults]
 kdc_listen = 127.0.0.1:{port}
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  acl_file = {folder}/acl
 }}
"""


@dataclass(frozen=True, slots=True)
class KerberosRealm:
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment of all its programs, of the router and of clients."""
        names = {"KRB5_CONFIG": "krb5.conf", "KRB5_KDC_PROFILE": "kdc.conf"}
        return {
            **{name: str(self.folder / file) for name, file in names.items()},
            "KRB5RCACHEDIR": str(self.folder),
            # Debian puts the programs of Kerberos where only root looks.
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
        }

    def run(self, *command: str, stdin: str = "", **more: str) -> None:
        environment = {**os.environ, **self.environment, **more}
        subprocess.run(command, input=stdin, text=True, check=True, capture_output=True, env=environment, timeout=30)

    def add_user(self, name: str, password: str) -> None:
        self.run("kadmin.local", "-q", f"addprinc -pw {password} {name}")

    def keytab(self, *principals: str) -> Path:
        """Returns a file with new keys of these services."""
        path = self.folder / f"{principals[0].replace('/', '-')}.keytab"
        for principal in principals:
            self.run("kadmin.local", "-q", f"addprinc -randkey {principal}")
            self.run("kadmin.local", "-q", f"ktadd -k {path} {principal}")
        return path

    def log_in(self, name: str, password: str, *options: str) -> Path:
        """Returns a file with the user's ticket."""
        cache = self.folder / f"{name.replace('/', '-')}.tickets"
        self.run("kinit", *options, "-c", f"FILE:{cache}", name, stdin=f"{password}\n")
        return cache


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def kerberos_realm(folder: Path) -> Iterator[KerberosRealm]:
    port = free_port()
    (folder / "krb5.conf").write_text(_CLIENTS.format(realm=REALM, port=port, skew_s=SKEW_S))
    (folder / "kdc.conf").write_text(_KDC.format(realm=REALM, port=port, folder=folder))
    realm = KerberosRealm(folder)
    realm.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
    log = folder / "kdc.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["krb5kdc", "-n"], stdout=output, stderr=output, env={**os.environ, **realm.environment}
        )
    try:
        assert eventually(lambda: process.poll() is not None or _listens(port))
        assert process.poll() is None, log.read_text()
        yield realm
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="session")
def gssapi() -> Any:
    if importlib.util.find_spec("gssapi") is None:
        message = "gssapi is missing: apt-get install libkrb5-dev; pip install gssapi"
        if os.environ.get("PALISADE_REQUIRE_ALL"):
            pytest.fail(message)
        pytest.skip(message)
    import gssapi

    return gssapi


@pytest.fixture(scope="module")
def realm(
    gssapi: Any, require_tool: Callable[[str, str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KerberosRealm]:
    for program, package in (("krb5kdc", "krb5-kdc"), ("kadmin.local", "krb5-admin-server"), ("kinit", "krb5-user")):
        require_tool(program, package)
    with kerberos_realm(tmp_path_factory.mktemp("kdc")) as made:
        made.add_user("alice", "wonderland")
        made.add_user("bob", "builder")
        yield made
