"""The keys that tokens are signed with: which are taken, how long they are good, and what a server may answer.

Over TLS and against servers that misbehave: tests/interop/test_token_keys.py.
"""

import json
import os
import socket
import ssl
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from issuer import Issuer
from jwt.algorithms import RSAAlgorithm

from auth.verifiers import token_keys
from auth.verifiers.token_keys import (
    FETCH_PAUSE_S,
    MAX_KEYS,
    MAX_KEYS_BYTES,
    MAX_OUTAGE_S,
    KeyFile,
    KeysError,
    KeyServer,
    KeySet,
    parse_keys,
)

NONE_FIT = "no public key for signatures of RSA (2048 bits at least), EC or Ed25519 in it"
NO_JWKS = "not a JWKS: expected an object with at most 100 'keys'"


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


def refusal(ask: Callable[[], object]) -> str:
    with pytest.raises(KeysError) as caught:
        ask()
    return str(caught.value)


def jwks(*keys: object) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


# Which keys


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", NO_JWKS),
        (b"{}", NO_JWKS),
        (b'{"keys":{}}', NO_JWKS),
        (b'{"keys":[]}', NONE_FIT),
        (b'{"keys":[7,null,"x",[]]}', NONE_FIT),
    ],
)
def test_what_is_no_set_of_keys_is_said(content: bytes, why: str) -> None:
    assert refusal(lambda: parse_keys(content)) == why


def test_the_most_keys(issuer: Issuer) -> None:
    most = [issuer.jwk("ec"), *[7] * (MAX_KEYS - 1)]
    assert parse_keys(jwks(*most)).find("ec", "ES256") is not None
    assert refusal(lambda: parse_keys(jwks(*most, 7))) == NO_JWKS


@pytest.mark.parametrize(
    ("members", "is_taken"),
    [
        ({}, True),
        ({"use": "enc"}, False),
        ({"use": None}, False),
        ({"key_ops": ["verify"]}, True),
        ({"key_ops": ["sign", "verify"]}, True),
        ({"key_ops": ["sign"]}, False),
        ({"key_ops": []}, False),
        ({"key_ops": "verify"}, False),
        ({"kid": 7}, False),
        ({"kid": ["ec"]}, False),
        ({"alg": "ES256"}, True),
        ({"alg": "ES384"}, False),
        ({"alg": "RS256"}, False),
        ({"crv": "P-384"}, False),
        ({"crv": "secp256k1"}, False),
        ({"crv": 7}, False),
        ({"kty": "RSA"}, False),
        ({"kty": ["EC"]}, False),
        ({"kty": "ec"}, False),
        ({"x": 7}, False),
        ({"y": None}, False),
        ({"x": "!"}, False),
    ],
)
def test_which_keys_are_taken(issuer: Issuer, members: dict[str, Any], is_taken: bool) -> None:
    content = jwks(issuer.jwk("ec", **members), issuer.jwk("ed"))
    assert (parse_keys(content).find("ec", "ES256") is not None) is is_taken


def test_a_key_need_not_say_what_it_is_for_nor_have_a_name(issuer: Issuer) -> None:
    bare = {name: value for name, value in issuer.jwk("ec").items() if name not in ("use", "kid")}
    keys = parse_keys(jwks(bare))
    found = keys.find(None, "ES256")
    assert found is not None
    assert found.kid is None
    assert keys.find("ec", "ES256") is None, "another may have that name"


def test_a_key_is_for_the_algorithms_of_its_kind(issuer: Issuer) -> None:
    issuer.keys["p384"], issuer.keys["p521"] = (
        ec.generate_private_key(curve) for curve in (ec.SECP384R1(), ec.SECP521R1())
    )
    try:
        keys = parse_keys(issuer.jwks())
    finally:
        del issuer.keys["p384"], issuer.keys["p521"]
    every = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]
    expected = {"rsa": every, "ec": ["ES256"], "p384": ["ES384"], "p521": ["ES512"], "ed": ["EdDSA"]}
    for kid, algorithms in expected.items():
        for algorithm in [each for names in expected.values() for each in names]:
            found = keys.find(kid, algorithm)
            assert (found is not None) is (algorithm in algorithms), (kid, algorithm)
            if found is not None:
                assert found.by_algorithm[algorithm].algorithm_name == algorithm


def test_a_name_that_two_keys_have_is_of_neither(issuer: Issuer) -> None:
    """Attack: one of them is withdrawn, and the other taken for it."""
    other = Issuer()
    keys = parse_keys(jwks(issuer.jwk("ec"), other.jwk("ec"), issuer.jwk("rsa", kid="ec")))
    assert keys.find("ec", "ES256") is None
    assert keys.find("ec", "RS256") is not None
    assert parse_keys(jwks(issuer.jwk("ec"), issuer.jwk("ec"))).find("ec", "ES256") is not None, "the same twice"


def rsa_of(bits: int) -> dict[str, Any]:
    """A public key of so many bits, whose private key nobody has."""
    number = (1 << (bits - 1)) | 1
    made: dict[str, Any] = RSAAlgorithm.to_jwk(rsa.RSAPublicNumbers(65537, number).public_key(), as_dict=True)
    return {**made, "kid": "rsa", "key_ops": ["verify"]}


@pytest.mark.parametrize(("bits", "is_taken"), [(2047, False), (2048, True), (8192, True), (8193, False)])
def test_sizes_of_rsa_keys(bits: int, is_taken: bool) -> None:
    """Short ones can be broken; the time of a verification grows with the size."""
    if is_taken:
        assert parse_keys(jwks(rsa_of(bits))).find("rsa", "RS256") is not None
    else:
        assert refusal(lambda: parse_keys(jwks(rsa_of(bits)))) == NONE_FIT


def test_the_thumbprint_is_that_of_the_standard() -> None:
    """The example of RFC 7638 §3.1: proofs outlive the process that made them, and other programs compute them too."""
    number = (
        "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknj"
        "hMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQ"
        "vRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzK"
        "nqDKgw"
    )
    jwk = {"kty": "RSA", "n": number, "e": "AQAB", "alg": "RS256", "kid": "2011-04-29"}
    keys = parse_keys(jwks(jwk))
    found = keys.find("2011-04-29", "RS256")
    assert found is not None
    assert urlsafe_b64encode(bytes.fromhex(found.thumbprint)) == b"NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs="
    assert found.thumbprint in keys
    assert "x" not in keys
    assert keys.find("2011-04-29", "PS256") is None


# A file


def test_a_file_is_read_again_only_where_it_is_another(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = issuer.write(tmp_path / "jwks.json")
    keys = KeyFile(str(path))
    first = keys.current()
    assert keys.current(is_missed=True) is first
    os.utime(path, ns=(1, 2))
    second = keys.current()
    assert second is not first
    assert keys.current() is second
    path.write_bytes(path.read_bytes() + b" ")
    assert keys.current() is not second


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o600, 0o644, 0o444])
def test_who_may_write_a_file_of_keys(issuer: Issuer, tmp_path: Path, mode: int) -> None:
    """Attack: who can write the keys can sign tokens."""
    path = issuer.write(tmp_path / "jwks.json")
    path.chmod(mode)
    if mode & 0o022:
        why = "others may write it: make it belong to root or this process' user, chmod go-w"
        assert refusal(lambda: KeyFile(str(path))) == f"{path}: {why}"
    else:
        KeyFile(str(path))


@pytest.mark.parametrize(("owner", "process", "is_safe"), [(0, 7, True), (7, 7, True), (7, 0, False), (1, 7, False)])
def test_whose_a_file_of_keys_may_be(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, process: int, is_safe: bool
) -> None:
    keys = KeyFile(str(issuer.write(tmp_path / "jwks.json")))
    found = list(os.stat(tmp_path / "jwks.json"))
    found[4] = owner
    monkeypatch.setattr(os, "geteuid", lambda: process)
    if is_safe:
        keys._check(os.stat_result(found))
    else:
        assert "make it belong to root" in refusal(lambda: keys._check(os.stat_result(found)))


def test_a_file_that_cannot_be_read_is_named(issuer: Issuer, tmp_path: Path) -> None:
    path = issuer.write(tmp_path / "jwks.json")
    keys = KeyFile(str(path))
    path.write_bytes(b"{")
    assert refusal(keys.current) == f"{path}: not JSON"
    path.unlink()
    assert refusal(keys.current) == f"{path}: cannot be read: No such file or directory"
    path.mkdir()
    assert refusal(keys.current).startswith(f"{path}: cannot be read: ")
    issuer.write(tmp_path / "new").write_bytes(b" " * (MAX_KEYS_BYTES + 1))
    assert refusal(lambda: KeyFile(str(tmp_path / "new"))).startswith(f"{tmp_path}/new: cannot be read: ")


# A server, whose answers are made up


class Fetches:
    """What is fetched next: keys, or why not; counts the fetches."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.fault: str | None = None
        self.asked: list[Any] = []
        self.during: Callable[[], None] = lambda: None

    def __call__(self, address: Any, context: Any) -> bytes:
        self.asked.append((address, context))
        self.during()
        if self.fault is not None:
            raise KeysError(self.fault)
        return self.content


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def fetches(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> Fetches:
    made = Fetches(issuer.jwks("rsa"))
    monkeypatch.setattr(token_keys, "fetch", made)
    return made


@pytest.fixture
def clock() -> Clock:
    return Clock()


URL = "https://issuer.example/keys"


def has_ec(keys: KeySet) -> bool:
    return keys.find("ec", "ES256") is not None


def test_keys_are_fetched_when_they_are_asked_for_and_when_they_are_old(
    issuer: Issuer, fetches: Fetches, clock: Clock
) -> None:
    keys = KeyServer(URL, clock=clock, max_age_s=60)
    assert fetches.asked == []
    assert not has_ec(keys.current())
    fetches.content = issuer.jwks()
    clock.now += 59.9
    assert not has_ec(keys.current())
    assert len(fetches.asked) == 1
    clock.now += 0.1
    assert has_ec(keys.current())
    assert len(fetches.asked) == 2


def test_keys_are_kept_for_five_minutes_where_nothing_is_said(fetches: Fetches, clock: Clock) -> None:
    keys = KeyServer(URL, clock=clock)
    keys.current()
    clock.now += 299.9
    keys.current()
    assert len(fetches.asked) == 1
    clock.now += 0.1
    keys.current()
    assert len(fetches.asked) == 2


def test_a_missed_key_is_fetched_at_a_bounded_rate(issuer: Issuer, fetches: Fetches, clock: Clock) -> None:
    """Attack: tokens that name keys which do not exist."""
    keys = KeyServer(URL, clock=clock)
    keys.current()
    fetches.content = issuer.jwks()
    clock.now += FETCH_PAUSE_S - 0.1
    for _ in range(10):
        assert not has_ec(keys.current(is_missed=True))
    clock.now += 0.1
    for _ in range(10):
        assert has_ec(keys.current(is_missed=True))
    assert len(fetches.asked) == 2


def test_the_pause_counts_from_the_end_of_a_fetch(fetches: Fetches, clock: Clock) -> None:
    """A server that takes its time is not asked all the time; also one that fails."""
    fetches.during = lambda: setattr(clock, "now", clock.now + FETCH_PAUSE_S)
    for fault in (None, "away"):
        fetches.fault = fault
        keys = KeyServer(URL, clock=clock)
        fetches.asked.clear()
        for _ in range(2):
            try:
                keys.current(is_missed=True)
            except KeysError:
                assert fault
        assert len(fetches.asked) == 1


def test_keys_are_as_old_as_their_fetch(fetches: Fetches, clock: Clock) -> None:
    fetches.during = lambda: setattr(clock, "now", clock.now + 100)
    keys = KeyServer(URL, clock=clock, max_age_s=60)
    keys.current()
    clock.now += 59
    keys.current()
    assert len(fetches.asked) == 1


@pytest.mark.parametrize("max_age_s", [60.0, MAX_OUTAGE_S * 2])
def test_an_outage_is_bridged_for_so_long(fetches: Fetches, clock: Clock, max_age_s: float) -> None:
    """Beyond, a key that was withdrawn would be good for as long as its thief keeps the server away."""
    keys = KeyServer(URL, clock=clock, max_age_s=max_age_s)
    keys.current()
    fetches.fault = "issuer.example answers 503"
    clock.now += max(MAX_OUTAGE_S, max_age_s) - 0.1
    keys.current()
    clock.now += 0.1
    assert refusal(keys.current) == "the keys cannot be fetched: issuer.example answers 503"
    fetches.fault = None
    clock.now += FETCH_PAUSE_S
    keys.current()


def test_what_is_no_set_of_keys_leaves_the_old_ones(fetches: Fetches, clock: Clock) -> None:
    keys = KeyServer(URL, clock=clock, max_age_s=60)
    first = keys.current()
    fetches.content = b"{"
    clock.now += 60
    assert keys.current() is first
    clock.now += MAX_OUTAGE_S
    assert refusal(keys.current) == "the keys cannot be fetched: not JSON"


def test_without_any_keys_nobody_is_let_in(fetches: Fetches, clock: Clock) -> None:
    fetches.fault = "issuer.example: Connection refused"
    keys = KeyServer(URL, clock=clock)
    for _ in range(2):
        assert refusal(keys.current) == "the keys cannot be fetched: issuer.example: Connection refused"
    assert len(fetches.asked) == 1


@pytest.mark.parametrize(
    ("age_s", "is_missed", "waits"), [(60.0, False, False), (60.0, True, True), (MAX_OUTAGE_S, False, True)]
)
def test_who_has_keys_that_will_do_does_not_wait_for_a_fetch(
    issuer: Issuer, fetches: Fetches, clock: Clock, age_s: float, is_missed: bool, waits: bool
) -> None:
    """A server that is slow holds up only those who need its answer."""
    keys = KeyServer(URL, clock=clock, max_age_s=60)
    old = keys.current()
    fetches.content = issuer.jwks()
    clock.now += age_s
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert go_on.wait(10)

    fetches.during = wait
    found: list[KeySet] = []
    first = threading.Thread(target=lambda: found.append(keys.current()))
    first.start()
    assert begun.wait(10)
    second = threading.Thread(target=lambda: found.append(keys.current(is_missed=is_missed)))
    second.start()
    if waits:
        second.join(0.1)
        assert second.is_alive()
    else:
        second.join(10)
        assert found == [old]
    go_on.set()
    first.join(10)
    second.join(10)
    assert [has_ec(each) for each in found] == ([True, True] if waits else [False, True])
    assert len(fetches.asked) == 2


def test_who_waits_does_so_for_as_long_as_two_fetches_may_take(
    fetches: Fetches, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_keys, "FETCH_S", 0.05)
    keys = KeyServer(URL, clock=clock)
    keys._lock.acquire()
    began = time.monotonic()
    assert refusal(keys.current) == "the keys cannot be fetched: not asked yet"
    assert 0.1 <= time.monotonic() - began < 5
    assert fetches.asked == []


def test_after_a_fetch_that_broke_the_next_may_begin(fetches: Fetches, clock: Clock) -> None:
    keys = KeyServer(URL, clock=clock)

    def break_down() -> None:
        raise ZeroDivisionError

    fetches.during = break_down
    with pytest.raises(ZeroDivisionError):
        keys.current()
    fetches.during = lambda: None
    assert "not asked yet" in refusal(keys.current), "not at once"
    clock.now += FETCH_PAUSE_S
    keys.current()


# Addresses

FORM = "the address of the keys is no URL, expected https://HOST/PATH"
PLAIN = (
    "the address of the keys has to begin with https://: over http whoever is on the way can put keys of his own into "
    "it (where nobody is, keysOverHttp: yes permits it)"
)
PASSWORD = "the address of the keys has a password in it, which everybody could read: take it out"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", f"keysUrl: '': {FORM}"),
        ("file:///etc/passwd", f"keysUrl: 'file:///etc/passwd': {FORM}"),
        ("https://localhost:0/", f"keysUrl: 'https://localhost:0/': {FORM}"),
        ("https://localhost:x/", f"keysUrl: {FORM}"),
        ("https://localhost:65536/", f"keysUrl: {FORM}"),
        ("https://localhost/#x", f"keysUrl: 'https://localhost/#x': {FORM}"),
        ("https://localhost/a b", f"keysUrl: 'https://localhost/a b': {FORM}"),
        ("https://löcalhost/", f"keysUrl: 'https://löcalhost/': {FORM}"),
        ("https://localhost/\r\nX: y", f"keysUrl: {FORM}"),
        ("https://" + "a b" * 100, f"keysUrl: '{('https://' + 'a b' * 100)[:200]}': {FORM}"),
        ("https://u:p@localhost/", f"keysUrl: {PASSWORD}"),
        ("https://u@localhost/", f"keysUrl: {PASSWORD}"),
        ("https://u:p@localhost/ x", f"keysUrl: {FORM}"),
        ("http://localhost/", f"keysUrl: 'http://localhost/': {PLAIN}"),
        ("ftp://localhost/", f"keysUrl: 'ftp://localhost/': {PLAIN}"),
    ],
)
def test_an_address_that_will_not_do_is_named_without_a_password(url: str, why: str) -> None:
    assert refusal(lambda: KeyServer(url)) == why
    if url.startswith("ftp"):
        assert refusal(lambda: KeyServer(url, is_http_permitted=True)) == why


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://a.example", (True, "a.example", 443, "/")),
        ("https://A.Example:7/x/y?z=1", (True, "a.example", 7, "/x/y?z=1")),
        ("https://[::1]/x", (True, "::1", 443, "/x")),
        ("http://a.example/x", (False, "a.example", 80, "/x")),
        ("http://a.example:8080", (False, "a.example", 8080, "/")),
        ("https://a.example/user@example.org", (True, "a.example", 443, "/user@example.org")),
    ],
)
def test_where_an_address_leads(url: str, address: tuple[bool, str, int, str], fetches: Fetches, clock: Clock) -> None:
    KeyServer(url, is_http_permitted=True, clock=clock).current()
    ((found, _),) = fetches.asked
    assert (found.is_tls, found.host, found.port, found.target) == address


def test_servers_are_verified_by_the_authorities_that_are_named(
    pki: Any, tmp_path: Path, fetches: Fetches, clock: Clock
) -> None:
    KeyServer(URL, ca_file=pki.ca, clock=clock).current()
    ((_, context),) = fetches.asked
    assert [each["subject"] for each in context.get_ca_certs()] == [((("commonName", "Test CA"),),)]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    for path in (tmp_path / "none", tmp_path):
        why = f"keysCaFile {path}: cannot be used as the authorities to trust, expected PEM"
        assert refusal(lambda path=path: KeyServer(URL, ca_file=str(path))) == why  # type: ignore[misc]


# Fetching, in the clear


class Web:
    """Answers each connection in turn with the next of `answers`; None: never."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.answers: list[list[bytes]] = []
        self.requests: list[bytes] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                near, _ = self.socket.accept()
            except OSError:
                return
            with near:
                try:
                    self.requests.append(near.recv(65536))
                    for piece in self.answers.pop(0):
                        if piece:
                            near.sendall(piece)
                        else:
                            self._ended.wait(10)
                except OSError:
                    continue

    def close(self) -> None:
        self._ended.set()
        with suppress(OSError):  # closed already
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self._thread.join(10)

    def fetch(self, *pieces: bytes, host: str = "127.0.0.1", path: str = "/keys") -> bytes:
        self.answers.append(list(pieces))
        address = token_keys._Address(False, host, self.port, path)
        return token_keys.fetch(address, ssl.create_default_context())


@pytest.fixture
def web() -> Iterator[Web]:
    made = Web()
    yield made
    made.close()


def answer(body: bytes, *, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 " + status + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def test_what_is_asked_for(web: Web) -> None:
    assert web.fetch(answer(b"{}"), path="/keys?a=b") == b"{}"
    assert web.requests == [
        b"GET /keys?a=b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: application/json\r\nAccept-Encoding: identity\r\n"
        b"User-Agent: palisade-router\r\nConnection: close\r\n\r\n" % web.port
    ]


def test_the_host_is_named_as_in_a_url(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    place = (socket.AF_INET6, socket.SOCK_STREAM, 0, "", ("127.0.0.1", web.port, 0, 0))  # as those of IPv6 are
    asked: list[Any] = []
    real = socket.getaddrinfo

    def resolve(host: str, *rest: Any, **options: Any) -> Any:
        if host != "::1":
            return real(host, *rest, **options)
        asked.append((host, *rest, options))
        return [place]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert web.fetch(answer(b"{}"), host="::1") == b"{}"
    assert b"\r\nHost: [::1]:%d\r\n" % web.port in web.requests[0]
    assert asked == [("::1", web.port, {"type": socket.SOCK_STREAM})]


def test_an_answer_may_come_in_pieces_and_chunks(web: Web) -> None:
    whole = answer(b"x" * 1000)
    assert web.fetch(whole[:10], whole[10:50], whole[50:]) == b"x" * 1000
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    assert web.fetch(chunked) == b"{}"
    assert web.fetch(b"HTTP/1.0 200 OK\r\n\r\n{}") == b"{}"


def test_an_answer_may_have_so_many_bytes(web: Web) -> None:
    head = answer(b"")
    body = b" " * (MAX_KEYS_BYTES - len(answer(b" " * 200_000)) + 200_000)
    assert len(answer(body)) == MAX_KEYS_BYTES
    assert web.fetch(answer(body)) == body
    assert refusal(lambda: web.fetch(answer(body + b" "))) == f"more than {MAX_KEYS_BYTES} bytes"
    assert refusal(lambda: web.fetch(head + b"x" * (MAX_KEYS_BYTES + 1))) == f"more than {MAX_KEYS_BYTES} bytes"


@pytest.mark.parametrize("status", [b"201 Created", b"204 No Content", b"301 Moved", b"404 Not Found", b"500 Oops"])
def test_any_other_answer_is_none(web: Web, status: bytes) -> None:
    why = f"127.0.0.1 answers {status[:3].decode()}; a redirect is not followed"
    assert refusal(lambda: web.fetch(answer(b"{}", status=status))) == why


@pytest.mark.parametrize("said", [b"", b"hello\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"])
def test_what_is_no_http_is_said(web: Web, said: bytes) -> None:
    assert refusal(lambda: web.fetch(*([said] if said else []))) == "127.0.0.1 does not speak HTTP"


def test_a_server_that_is_silent_or_slow_is_given_up(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a byte now and then, for ever."""
    monkeypatch.setattr(token_keys, "FETCH_S", 0.2)
    began = time.monotonic()
    for pieces in ((b"",), (answer(b"xx")[:-1], b"")):
        assert refusal(lambda pieces=pieces: web.fetch(*pieces)) == "127.0.0.1 has not answered within 0.2 s"  # type: ignore[misc]
    assert time.monotonic() - began < 8


def test_a_server_that_does_not_shake_hands_is_given_up(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: it takes the connection, and four of them hold all threads that judge tokens."""
    monkeypatch.setattr(token_keys, "FETCH_S", 0.2)
    web.answers.append([b""])
    address = token_keys._Address(True, "127.0.0.1", web.port, "/keys")
    why = "127.0.0.1 has not answered within 0.2 s"
    assert refusal(lambda: token_keys.fetch(address, ssl.create_default_context())) == why


def test_no_time_is_no_time(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_keys, "FETCH_S", 0.0)
    monkeypatch.setattr("auth.verifiers.token_keys.time.monotonic", lambda: 1000.0)
    assert refusal(lambda: web.fetch(answer(b"{}"))) == "127.0.0.1 has not answered within 0 s"


def test_a_server_that_speaks_no_tls_is_said(web: Web) -> None:
    web.answers.append([answer(b"{}")])
    address = token_keys._Address(True, "127.0.0.1", web.port, "/keys")
    why = refusal(lambda: token_keys.fetch(address, ssl.create_default_context()))
    assert why == "127.0.0.1: TLS failure: WRONG_VERSION_NUMBER"


def test_an_address_that_takes_no_connection_has_no_more_than_the_time_that_is_left(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float | None] = []

    def connect(_place: Any, timeout: float | None = None) -> socket.socket:
        waits.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", connect)
    resolved(monkeypatch, 1, 2)
    assert refusal(lambda: web.fetch(host="many.example")) == "many.example has not answered within 5 s"
    assert [wait is not None and 0 < wait <= 5 for wait in waits] == [True, True]


def test_a_server_that_does_not_listen_is_said(web: Web) -> None:
    web.close()
    assert refusal(lambda: web.fetch()) == "127.0.0.1: Connection refused"


def resolved(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    places = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port)) for port in ports]
    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *rest, **options: places if host == "many.example" else real(host, *rest, **options),
    )


def test_the_addresses_of_a_host_are_tried_in_turn(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        free = int(found.getsockname()[1])
    resolved(monkeypatch, free, web.port)
    assert web.fetch(answer(b"{}"), host="many.example") == b"{}"
    resolved(monkeypatch, free, free)
    assert refusal(lambda: web.fetch(host="many.example")) == "many.example: Connection refused"
    resolved(monkeypatch)
    assert refusal(lambda: web.fetch(host="many.example")) == "many.example: no such host"


def test_an_unknown_host_is_said(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert refusal(lambda: web.fetch(host="none.example")) == "none.example: Name or service not known"
