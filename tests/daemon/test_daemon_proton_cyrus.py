"""python-qpid-proton with Cyrus SASL, as distributions have it, logs in; the wheels of the registry have PLAIN alone.

docs/spec/policy-and-auth.md §8.1, §8.10.
"""

import fcntl
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from certificates import Certificates
from daemon_process import LISTENER, ROOT, Daemon, denials, eventually
from kerberos_realm import KerberosRealm

from auth.secrets import Secret
from auth.verifiers.files import set_user
from auth.verifiers.hashes import Argon2idCost

pytestmark = pytest.mark.interop

PROTON = f"python-qpid-proton=={importlib.metadata.version('python-qpid-proton')}"
BUILD_LIMIT_S = 300.0
LOGIN_LIMIT_S = 60.0
# What its build and its mechanisms want, with the Debian packages. Without the first three it builds without Cyrus.
WANTED = {
    "/usr/bin/pkg-config": "pkg-config",
    "/usr/include/openssl/ssl.h": "libssl-dev",
    "/usr/include/sasl/sasl.h": "libsasl2-dev",
    "/usr/lib/*/sasl2/libscram.so": "libsasl2-modules",
    "/usr/lib/*/sasl2/libgssapiv2.so": "libsasl2-modules-gssapi-mit",
}

LogIn = Callable[..., dict[str, str]]


@pytest.fixture(scope="session")
def site() -> Path:
    """The folder with proton, built once for the checkout."""
    missing = [package for pattern, package in WANTED.items() if not list(Path("/").glob(pattern[1:]))]
    if missing:
        message = f"proton cannot be built with Cyrus SASL: apt-get install {' '.join(missing)}"
        if os.environ.get("PALISADE_REQUIRE_ALL"):
            pytest.fail(message)
        pytest.skip(message)
    folder = ROOT / ".cache" / "proton-with-cyrus" / PROTON
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Several test processes may come here at once. pip's own cache may have it without Cyrus.
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            made = folder.with_suffix(".unfinished")
            from_source = ["--no-cache-dir", "--no-binary", "python-qpid-proton", "--no-deps", "--upgrade"]
            command = [sys.executable, "-m", "pip", "install", "--quiet", *from_source, "--target", str(made), PROTON]
            subprocess.run(command, check=True, timeout=BUILD_LIMIT_S)
            made.rename(folder)
    return folder


@pytest.fixture
def log_in(site: Path, certificates: Certificates) -> LogIn:
    """`log_in(router, "PLAIN", "alice", "password")`: what the client printed."""

    def run(
        router: Daemon,
        mechanism: str,
        user: str | None = None,
        password: str | None = None,
        pair: tuple[str, str] | None = None,
        **environment: str,
    ) -> dict[str, str]:
        certificate, key = pair or (None, None)
        asked = {
            "port": router.port("login"),
            "ca": str(certificates.ca),
            "mechanism": mechanism,
            "user": user,
            "password": password,
            "certificate": certificate,
            "key": key,
        }
        ran = subprocess.run(
            [sys.executable, Path(__file__).with_name("proton_cyrus.py")],
            input=json.dumps(asked),
            env={**os.environ, "PYTHONPATH": str(site), **environment},
            capture_output=True,
            text=True,
            timeout=LOGIN_LIMIT_S,
        )
        assert ran.returncode == 0, ran.stderr
        found: dict[str, str] = json.loads(ran.stdout)
        return found

    return run


def configuration(certificates: Certificates, listener: str) -> str:
    certificate, key = certificates.pair("server")
    return (
        f"sslProfile {{\n name: tls\n certFile: {certificate}\n privateKeyFile: {key}\n"
        f" caCertFile: {certificates.ca}\n uidFormat: n\n}}\n"
        f"listener {{\n name: login\n host: 127.0.0.1\n port: 0\n sslProfile: tls\n requireSsl: yes\n"
        f" authenticatePeer: yes\n{listener}}}\n" + LISTENER
    )


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    (tmp_path / "audit").mkdir()
    return tmp_path / "audit"


@pytest.fixture
def by_password(daemon: Callable[..., Daemon], certificates: Certificates, tmp_path: Path, audit: Path) -> Daemon:
    cost = Argon2idCost(memory_kib=8, iterations=1, lanes=1)
    users, hashes = str(tmp_path / "users"), ("SHA-256", "SHA-512")
    set_user(users, "alice", Secret("wonderland"), cost=cost, scram=hashes, must_exist=False)
    people = f"fileAuthenticator {{\n name: people\n path: {users}\n}}\n"
    own = f"router {{\n auditDir: {audit}\n}}\n"
    return daemon(own + people + configuration(certificates, " authenticators: people\n"))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_by_its_password(by_password: Daemon, log_in: LogIn, audit: Path, mechanism: str) -> None:
    assert log_in(by_password, mechanism, "alice", "wonderland") == {"mechanism": mechanism, "received": "hello"}
    by_password.wait_for_log(rf"Connection Opened: .*auth={mechanism} user=alice ")
    for user, password in (("alice", "wrong"), ("nobody", "wonderland")):
        assert "amqp:unauthorized-access" in log_in(by_password, mechanism, user, password)["error"]
    assert eventually(lambda: len(denials(audit)) == 2)
    assert [(event["stage"], event["mechanism"]) for event in denials(audit)] == [("sasl", mechanism)] * 2


def test_it_takes_the_strongest_of_those_that_are_offered(by_password: Daemon, log_in: LogIn) -> None:
    every = "PLAIN SCRAM-SHA-256 SCRAM-SHA-512"
    assert log_in(by_password, every, "alice", "wonderland")["mechanism"] == "SCRAM-SHA-512"


def test_by_its_certificate(daemon: Callable[..., Daemon], certificates: Certificates, log_in: LogIn) -> None:
    router = daemon(configuration(certificates, " saslMechanisms: EXTERNAL\n"))
    assert log_in(router, "EXTERNAL", pair=certificates.pair("carol")) == {"mechanism": "EXTERNAL", "received": "hello"}
    router.wait_for_log(r"Connection Opened: .*auth=EXTERNAL user=carol ")
    assert "error" in log_in(router, "EXTERNAL")


def test_by_its_ticket(
    daemon: Callable[..., Daemon], certificates: Certificates, log_in: LogIn, realm: KerberosRealm, tmp_path: Path
) -> None:
    staff = f"kerberosAuthenticator {{\n name: staff\n keytab: {realm.keytab('amqp/localhost')}\n}}\n"
    text = staff + configuration(certificates, " authenticators: staff\n")
    router = daemon(text, environment=realm.environment)

    def by_ticket(cache: Path) -> dict[str, str]:
        return log_in(router, "GSSAPI", **realm.environment, KRB5CCNAME=f"FILE:{cache}")

    assert by_ticket(realm.log_in("alice", "wonderland")) == {"mechanism": "GSSAPI", "received": "hello"}
    router.wait_for_log(r"Connection Opened: .*auth=GSSAPI user=alice ")
    assert "error" in by_ticket(tmp_path / "none")
