"""An LDAP directory with one user: OpenLDAP's slapd on loopback, without encryption."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.processes import Process, ProcessError

PEOPLE = "ou=people,dc=example,dc=com"
START_TIMEOUT_S = 15.0

_CONFIGURATION = """\
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
pidfile {folder}/slapd.pid
modulepath /usr/lib/ldap
moduleload back_mdb
database mdb
suffix "dc=example,dc=com"
directory {folder}/data
"""
_ENTRIES = """\
dn: dc=example,dc=com
objectClass: dcObject
objectClass: organization
dc: example
o: x

dn: ou=people,dc=example,dc=com
objectClass: organizationalUnit
ou: people

dn: uid={user},ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: {user}
cn: x
sn: x
userPassword: {password}
"""


def program() -> str | None:
    """Returns the path of slapd, None if it is not installed. Debian installs it in a folder of root's PATH."""
    return shutil.which("slapd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin:/usr/libexec")


@contextmanager
def running(folder: Path, *, user: str, password: str) -> Iterator[str]:
    """Yields the directory's URL, until the end of the body. Errors: ProcessError if it does not start."""
    slapd = program()
    if slapd is None:
        raise ProcessError("there is no slapd")
    (folder / "data").mkdir(parents=True)
    configuration = folder / "slapd.conf"
    configuration.write_text(_CONFIGURATION.format(folder=folder))
    entries = folder / "entries.ldif"
    entries.touch(mode=0o600)
    entries.write_text(_ENTRIES.format(user=user, password=password))
    load = [slapd, "-T", "add", "-f", str(configuration), "-l", str(entries)]
    loaded = subprocess.run(load, capture_output=True, text=True, check=False)
    if loaded.returncode:
        raise ProcessError(f"slapd does not take its entries: {loaded.stderr[-500:]}")
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = int(found.getsockname()[1])
    url = f"ldap://127.0.0.1:{port}"
    process = Process([slapd, "-d", "0", "-h", url, "-f", str(configuration)])
    try:
        _wait(process, port)
        yield url
    finally:
        process.stop()


def _wait(process: Process, port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise ProcessError(f"slapd does not listen:\n{process.tail()}") from None
            time.sleep(0.02)
        else:
            return
