"""Keys from a server: docs/spec/policy-and-auth.md §8.10, policy 70."""

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from certificates import Certificates
from issuer import Issuer

from auth.verifiers import token_keys
from auth.verifiers.token_keys import (
    FETCH_PAUSE_S,
    MAX_KEYS_BYTES,
    MAX_OUTAGE_S,
    KeysError,
    KeyServer,
)

pytestmark = pytest.mark.interop


class Server:
    """Answers each connection with `answer`, in the clear or over TLS; None: it accepts and never says a word."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.answer: bytes | None = b""
        self.requests: list[bytes] = []
        self._silent: list[socket.socket] = []
        self._context = context
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def serve(self, content: bytes) -> None:
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content) + content

    def _run(self) -> None:
        while True:
            try:
                plain, _ = self._socket.accept()
            except OSError:
                return
            try:
                made = self._context.wrap_socket(plain, server_side=True) if self._context else plain
                self.requests.append(made.recv(4096))
                if self.answer is None:
                    self._silent.append(made)
                    continue
                made.sendall(self.answer)
                made.close()
            except OSError:
                plain.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
        for each in self._silent:
            each.close()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


Serve = Callable[..., Server]
Make = Callable[..., KeyServer]


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def serve(certificates: Certificates) -> Iterator[Callable[..., Server]]:
    made: list[Server] = []

    def start(name: str | None = "server") -> Server:
        context = None
        if name is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificates.pair(name))
        made.append(Server(context))
        return made[-1]

    yield start
    for each in made:
        each.close()


@pytest.fixture
def keys(certificates: Certificates) -> Callable[..., KeyServer]:
    def make(server: Server, clock: Callable[[], float], *, ca: str | None = certificates.ca) -> KeyServer:
        return KeyServer(f"https://localhost:{server.port}/keys?a=b", ca_file=ca, clock=clock)

    return make


def test_keys_are_fetched_once_and_again_when_they_are_old(issuer: Issuer, serve: Serve, keys: Make) -> None:
    server, clock = serve(), Clock()
    server.serve(issuer.jwks())
    asked = keys(server, clock)
    assert server.requests == []  # nobody is connected to before a token comes
    for _ in range(3):
        assert asked.current().find("ec", "ES256") is not None
    assert len(server.requests) == 1
    assert server.requests[0].startswith(b"GET /keys?a=b HTTP/1.1\r\nHost: localhost:")
    server.serve(issuer.jwks("rsa"))
    clock.now += 301
    assert asked.current().find("ec", "ES256") is None  # withdrawn
    assert len(server.requests) == 2


def test_a_missed_key_is_asked_for_at_a_bounded_rate(issuer: Issuer, serve: Serve, keys: Make) -> None:
    """policy 70. Attack: tokens that name keys which do not exist."""
    server, clock = serve(), Clock()
    server.serve(issuer.jwks("rsa"))
    asked = keys(server, clock)
    asked.current()
    server.serve(issuer.jwks())
    for _ in range(100):
        assert asked.current(is_missed=True).find("ec", "ES256") is None
    assert len(server.requests) == 1
    clock.now += FETCH_PAUSE_S
    for _ in range(100):
        assert asked.current(is_missed=True).find("ec", "ES256") is not None
    assert len(server.requests) == 2


def test_an_outage_is_bridged_for_a_while(issuer: Issuer, serve: Serve, keys: Make) -> None:
    server, clock = serve(), Clock()
    server.serve(issuer.jwks())
    asked = keys(server, clock)
    asked.current()
    server.answer = b"HTTP/1.1 503 Busy\r\n\r\n"
    clock.now += MAX_OUTAGE_S - 1
    assert asked.current().find("ec", "ES256") is not None
    clock.now += 1
    with pytest.raises(KeysError, match="cannot be fetched: localhost answers 503"):
        asked.current()
    server.serve(issuer.jwks())
    clock.now += FETCH_PAUSE_S
    assert asked.current().find("ec", "ES256") is not None


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "does not speak HTTP"),
        (b"hello\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\n{", "not JSON"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\n\r\n", "answers 302; a redirect is not followed"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b" " * MAX_KEYS_BYTES, "more than 262144 bytes"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n", "does not speak HTTP"),
    ],
)
def test_odd_answers(serve: Serve, keys: Make, answer: bytes, why: str) -> None:
    server = serve()
    server.answer = answer
    with pytest.raises(KeysError, match=why):
        keys(server, Clock()).current()


def test_a_server_that_never_answers_is_given_up(serve: Serve, keys: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_keys, "FETCH_S", 0.3)
    server, clock = serve(), Clock()
    server.answer = None
    asked = keys(server, clock)
    with pytest.raises(KeysError, match=r"localhost has not answered within 0\.3 s"):
        asked.current()
    with pytest.raises(KeysError):
        asked.current()
    assert len(server.requests) == 1  # the next one is not asked for a while


def test_a_server_that_nobody_vouches_for_is_not_believed(
    issuer: Issuer, serve: Serve, keys: Make, certificates: Certificates
) -> None:
    """Attack: keys of somebody in the middle."""
    server = serve("stranger")
    server.serve(issuer.jwks())
    with pytest.raises(KeysError, match="localhost: TLS failure"):
        keys(server, Clock()).current()
    genuine = serve()
    genuine.serve(issuer.jwks())
    with pytest.raises(KeysError, match="localhost: TLS failure"):  # by the system's authorities
        keys(genuine, Clock(), ca=None).current()
    other_name = KeyServer(f"https://127.1:{genuine.port}/", ca_file=certificates.ca)  # leads there, too
    with pytest.raises(KeysError, match=r"127\.1: TLS failure: .*mismatch"):
        other_name.current()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://localhost/", "has to begin with https"),
        ("file:///etc/passwd", "is no URL"),
        ("ftp://localhost/", "has to begin with https"),
        ("https:///x", "is no URL"),
        ("https://localhost:x/", "is no URL"),
        ("https://localhost:0/", "is no URL"),
        ("https://[::1/", "is no URL"),
        ("https://user:secret@localhost/", "has a password in it"),
        ("https://localhost/ HTTP/1.1", "is no URL"),
        ("https://localhost/\r\nX: y", "is no URL"),
        ("https://localhost/#x", "is no URL"),
        ("https://löcalhost/", "is no URL"),
    ],
)
def test_an_address_that_will_not_do(url: str, why: str) -> None:
    with pytest.raises(KeysError, match=why) as caught:
        KeyServer(url)
    assert "secret" not in str(caught.value)


def test_http_only_where_it_is_named(issuer: Issuer, serve: Serve) -> None:
    server = serve(None)
    server.serve(issuer.jwks())
    url = f"http://127.0.0.1:{server.port}"
    with pytest.raises(KeysError):
        KeyServer(url)
    assert KeyServer(url, is_http_permitted=True).current().find("ec", "ES256") is not None


def test_authorities_that_are_none(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path / "empty"):
        (tmp_path / "empty").write_text(json.dumps({}))
        with pytest.raises(KeysError, match="cannot be used as the authorities"):
            KeyServer("https://localhost/", ca_file=str(path))


def test_threads_share_one_fetch(issuer: Issuer, serve: Serve, keys: Make) -> None:
    server = serve()
    server.serve(issuer.jwks())
    asked = keys(server, Clock())
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(asked.current().find("ec", "ES256"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert None not in found
    assert len(server.requests) == 1
