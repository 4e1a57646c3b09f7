"""The round trip of a logged-in client, while unauthenticated peers cause work."""

import datetime
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from benchmarks import wire
from benchmarks.report import Row, row
from benchmarks.subjects import HOSTNAME, USER, Site, Subject
from router.amqp.codec import encode
from router.values import Described, uint, ulong

# 99 % of the round trips must be answered within this multiple of the quiet value.
BUDGET = 5.0
QUIET_S = 3.0
PAUSE_S = 0.001
CERTIFICATES = 90
_TRANSFER = 0x14
_PAYLOAD = b"\x00\x53\x75\xa0\x04fine"
_PATIENCE_S = 60.0

PROFILE = """
sslProfile {{
    name: rsa-{bits}-tls
    certFile: {folder}/rsa-{bits}.crt
    privateKeyFile: {folder}/rsa-{bits}.key
    caCertFile: {folder}/root.crt
}}
listener {{
    name: rsa-{bits}
    host: 127.0.0.1
    port: 0
    sslProfile: rsa-{bits}-tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: PLAIN
}}
"""
CERTIFIED = """
listener {
    name: certified
    host: 127.0.0.1
    port: 0
    sslProfile: rsa-2048-tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: EXTERNAL
}
"""


def strangers(site: Site, runs: int) -> list[Row]:
    """99 % of a client's round trips beside 1,500 ClientHellos, 400 chains of 90 certificates, 2,500 headers.

    The floor's column has the same client of the same router without an attack.
    """
    _write_certificates(site.folder)
    more = "".join(PROFILE.format(bits=bits, folder=site.folder) for bits in (2048, 4096)) + CERTIFIED
    attacks = (
        ("1,500 ClientHellos, P-256", "hellos", "secure"),
        ("1,500 ClientHellos, RSA 2048", "hellos", "rsa-2048"),
        ("1,500 ClientHellos, RSA 4096", "hellos", "rsa-4096"),
        ("400 chains of 90 certificates", "chains", "certified"),
        ("2,500 headers at once", "headers", "clear"),
    )
    rows = []
    for figure, attack, listener in attacks:
        pairs = [_beside(site, more, attack, listener) for _ in range(runs)]
        rows.append(
            row("strangers", f"99 % beside {figure}", "µs", router=[beside for beside, _ in pairs],
                floor=[quiet for _, quiet in pairs], budget=BUDGET)
        )  # fmt: skip
    return rows


def _beside(site: Site, more: str, attack: str, listener: str) -> tuple[float, float]:
    """Returns the 99 % round trip beside the attack and that without it, in µs.

    Each call starts its own router, in which no host is banned yet.
    """
    with site.router(more=more) as router, _Bystander.of(router) as bystander:
        found = router.process.wait_for(rf"Listening on 127\.0\.0\.1:(\d+) \({listener}\)")[1]
        with _attackers(attack, found[1], site.folder) as strike:
            bystander.begin()
            time.sleep(QUIET_S)
            quiet = bystander.begin()
            strike()
            beside = bystander.begin()
    return _p99_us(beside), _p99_us(quiet)


def _p99_us(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)] * 1e6


@contextmanager
def _attackers(attack: str, port: str, folder: Path) -> Iterator["_Strike"]:
    """Yields the connected attackers. Errors: RefusedError unless all are answered."""
    command = [sys.executable, "-m", "benchmarks.strangers", attack, port, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        strike = _Strike(process)
        try:
            strike.read("ready")
            yield strike
        finally:
            process.kill()


class _Strike:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def read(self, wanted: str) -> str:
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if not said.startswith(wanted):
            raise wire.RefusedError(f"the attackers said {said!r} and not {wanted}")
        return said

    def __call__(self) -> None:
        """Makes all attackers speak. Returns when all were answered or refused."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        self.read("done")


class _Bystander:
    """A client that sends messages to itself, one after another, on its own thread."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._seconds: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._error: Exception | None = None

    @classmethod
    @contextmanager
    def of(cls, router: Subject) -> Iterator["_Bystander"]:
        login = wire.login(user=USER, password=router.password, hostname=HOSTNAME)
        with socket.create_connection(("127.0.0.1", router.port), _PATIENCE_S) as connected:
            connected.sendall(login + wire.session() + wire.sender("bench", 0) + wire.receiver("bench", 1))
            connected.sendall(wire.credit(1, 1 << 30))
            wire.until_attached(connected, 2, bytearray())
            time.sleep(0.1)  # the sender's credit arrives meanwhile; this program does not read it
            one = cls(connected)
            one._thread.start()
            try:
                yield one
            finally:
                one._is_over.set()
                one._thread.join(_PATIENCE_S)
        if one._error is not None:
            raise one._error

    def begin(self) -> list[float]:
        """Begins a new measurement, and returns the seconds of each round trip so far."""
        seconds, self._seconds = self._seconds, []
        return seconds

    def _play(self) -> None:
        try:
            number = 0
            while not self._is_over.wait(PAUSE_S):
                self._round_trip(number)
                number += 1
        except Exception as error:  # raised again at the end
            self._error = error

    def _round_trip(self, number: int) -> None:
        body = encode(Described(ulong(_TRANSFER), [uint(0), uint(number), number.to_bytes(4, "big"), uint(0), True]))
        frame = (len(body) + len(_PAYLOAD) + 8).to_bytes(4, "big") + bytes([2, 0, 0, 0]) + body + _PAYLOAD
        began = time.perf_counter()
        self._socket.sendall(frame)
        received = b""
        while _PAYLOAD not in received:
            data = self._socket.recv(65536)
            if not data:
                raise wire.RefusedError("the router has closed the bystander's connection")
            received += data
        self._seconds.append(time.perf_counter() - began)


def _write_certificates(folder: Path) -> None:
    """Writes rsa-BITS.crt and .key of the router; and root.crt, with a chain.pem and chain.key that it trusts."""
    small = rsa.generate_private_key(65537, 2048)
    large = rsa.generate_private_key(65537, 4096)
    root = _certificate("root", small, "root", small)
    for bits, key in ((2048, small), (4096, large)):
        (folder / f"rsa-{bits}.crt").write_bytes(_pem(_certificate(HOSTNAME, key, HOSTNAME, key)))
        (folder / f"rsa-{bits}.key").write_bytes(_key_pem(key))
    (folder / "root.crt").write_bytes(_pem(root))
    names = ["root", *(f"authority {number}" for number in range(1, CERTIFICATES)), USER]
    chain = [_certificate(name, small, issuer, small) for issuer, name in pairwise(names)]
    (folder / "chain.pem").write_bytes(b"".join(map(_pem, reversed(chain))))
    (folder / "chain.key").write_bytes(_key_pem(small))


def _certificate(name: str, key: rsa.RSAPrivateKey, issuer: str, signer: rsa.RSAPrivateKey) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    subject, above = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, issuer))
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(above)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=name != USER, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: rsa.RSAPrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
