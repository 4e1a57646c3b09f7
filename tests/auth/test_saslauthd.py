"""saslauthd's protocol against a false one: docs/spec/policy-and-auth.md §8.10. The real one: tests/daemon."""

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from auth.credentials import WRONG_PASSWORD, CheckPassword, FetchScramKeys, VerifyResult, unavailable
from auth.secrets import Secret
from auth.verifiers import saslauthd
from auth.verifiers.saslauthd import SaslauthdVerifier

Serve = Callable[..., tuple[str, list[list[bytes]]]]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """`serve(answer)`: the path of a socket where each question is answered so, and the questions as they come.

    stays  it says no more, and does not close
    """
    made: list[socket.socket] = []

    def run(answer: bytes, *, stays: bool = False) -> tuple[str, list[list[bytes]]]:
        path = str(tmp_path / "mux")
        server = socket.socket(socket.AF_UNIX)
        server.bind(path)
        server.listen()
        made.append(server)
        questions: list[list[bytes]] = []

        def answer_all() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, connection.makefile("rb") as stream, suppress(struct.error):  # who asks nothing
                    questions.append([stream.read(struct.unpack("!H", stream.read(2))[0]) for _ in range(4)])
                    connection.sendall(answer)
                    if stays:
                        stream.read()

        threading.Thread(target=answer_all, daemon=True).start()
        return path, questions

    yield run
    for server in made:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def ask(verifier: SaslauthdVerifier, user: str = "alice", password: str = "pässword") -> VerifyResult:
    answer = verifier.verify(CheckPassword(user=user, password=Secret(password)))
    assert isinstance(answer, VerifyResult)
    return answer


def test_the_question_has_name_password_service_and_realm(serve: Serve) -> None:
    path, questions = serve(b"\0\x02OK")
    assert ask(SaslauthdVerifier(path)).is_valid
    assert ask(SaslauthdVerifier(path), "al@ice@example.com").is_valid
    assert ask(SaslauthdVerifier(path, "staff", service="imap", realm="r.org")).is_valid
    password = "pässword".encode()
    assert questions == [
        [b"alice", password, b"amqp", b""],
        [b"al@ice", password, b"amqp", b"example.com"],
        [b"alice", password, b"imap", b"r.org"],
    ]


@pytest.mark.parametrize(
    ("answer", "is_compared"),
    [
        (b"\0\x02NO", True),
        (b"\0\x10NO alice pa55word", True),
        (b"", False),
        (b"\0", False),
        (b"\0\0", False),
        (b"\0\x10OK", False),  # less than it says
        (b"\0\x02ok", False),
        (b"\0\x01OK", False),
        (b"\xff\xff" + b"OK" * 2000, False),
        (b"HTTP/1.1 200 OK\r\n", False),
    ],
)
def test_only_ok_lets_in(serve: Serve, answer: bytes, is_compared: bool) -> None:
    result = ask(SaslauthdVerifier(serve(answer)[0]))
    assert (result.is_valid, result.is_compared) == (False, is_compared)
    assert "pa55word" not in result.detail


def test_one_that_does_not_answer_is_waited_for_so_long(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saslauthd, "_TIMEOUT_S", 0.2)
    result = ask(SaslauthdVerifier(serve(b"??", stays=True)[0]))
    assert not result.is_compared
    assert "has not answered within" in result.detail


def test_an_outage_says_nothing_about_the_user(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (f"{tmp_path}/none", f"{tmp_path}/file", f"{tmp_path}/{'x' * 200}"):
        result = ask(SaslauthdVerifier(path))
        assert (result.is_valid, result.is_compared) == (False, False)
        assert path in result.detail
    other = SaslauthdVerifier(f"{tmp_path}/none").verify(FetchScramKeys(user="alice", hash_name="SHA-256"))
    assert isinstance(other, VerifyResult)
    assert not other.is_compared


@pytest.mark.parametrize(("uid", "own", "is_asked"), [(0, 7, True), (7, 7, True), (1, 7, False), (12345, 0, False)])
def test_a_socket_of_somebody_else_is_sent_no_password(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, uid: int, own: int, is_asked: bool
) -> None:
    """Attack: to put one's own socket where saslauthd's was, and gather passwords. uid  whose socket it is"""
    path, questions = serve(b"\0\x02OK")
    monkeypatch.setattr(os, "geteuid", lambda: own)
    monkeypatch.setattr(saslauthd, "_PEER", Peer("3i", uid))
    result = ask(SaslauthdVerifier(path))
    assert (result.is_valid, len(questions)) == (is_asked, int(is_asked))
    if not is_asked:
        why = f"is run by uid {uid}; expected root or the user of this process"
        assert result == unavailable(f"saslauthd at {path}: {why}")


class Peer(struct.Struct):
    """The credentials of a peer that a certain user runs."""

    def __init__(self, form: str, uid: int) -> None:
        super().__init__(form)
        self._uid = uid

    def unpack(self, _buffer: object) -> tuple[int, int, int]:
        return (1, self._uid, self._uid)


def test_its_name_is_that_of_the_authenticator() -> None:
    assert SaslauthdVerifier(name="staff").name == "staff"


def test_what_it_is_not_asked_for_it_says() -> None:
    answer = SaslauthdVerifier().verify(FetchScramKeys(user="alice", hash_name="SHA-256"))
    assert answer == unavailable("saslauthd knows passwords only")


def test_what_is_no_text_is_asked_about_and_breaks_nothing(serve: Serve) -> None:
    path, questions = serve(b"\0\x02NO")
    assert ask(SaslauthdVerifier(path), "al\ud800@r\ud800", "\ud800") == VerifyResult(
        is_valid=False, detail=WRONG_PASSWORD
    )
    half = b"\xed\xa0\x80"
    assert questions == [[b"al" + half, half, b"amqp", b"r" + half]]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", " has ended the connection without an answer"),
        (b"\0\0", " has ended the connection without an answer"),
        (b"\xff\xff" + b"OK" * 2000, ": answers with more than 1024 bytes"),
    ],
)
def test_what_is_wrong_with_an_answer_is_said(serve: Serve, answer: bytes, why: str) -> None:
    path, _ = serve(answer)
    assert ask(SaslauthdVerifier(path)) == unavailable(f"saslauthd at {path}{why}")


def test_an_empty_answer_is_one(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can come behind it, so nothing is waited for."""
    monkeypatch.setattr(saslauthd, "_TIMEOUT_S", 5.0)
    path, _ = serve(b"\0\0", stays=True)
    assert "without an answer" in ask(SaslauthdVerifier(path)).detail


@pytest.mark.parametrize(("name", "why"), [("none", "No such file or directory"), ("x" * 200, "connection failed")])
def test_a_socket_that_cannot_be_reached_is_named_with_the_reason(tmp_path: Path, name: str, why: str) -> None:
    path = f"{tmp_path}/{name}"
    assert ask(SaslauthdVerifier(path)) == unavailable(f"saslauthd at {path}: {why}")


def test_an_answer_may_come_in_pieces(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the longest size that is read at once."""
    monkeypatch.setattr(saslauthd, "_MAX_ANSWER_BYTES", 4)
    path, _ = serve(b"\0\x06NO bad")
    assert ask(SaslauthdVerifier(path)) == VerifyResult(is_valid=False, detail=WRONG_PASSWORD)


@pytest.mark.parametrize(("limit_s", "is_valid"), [(0.0, False), (0.5, True)])
def test_a_login_ends_when_its_time_is_over(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, limit_s: float, is_valid: bool
) -> None:
    path, _ = serve(b"\0\x02OK")
    monkeypatch.setattr(saslauthd, "_TIMEOUT_S", limit_s)
    monkeypatch.setattr("auth.verifiers.saslauthd.time.monotonic", lambda: 1000.0)
    result = ask(SaslauthdVerifier(path))
    assert result.is_valid is is_valid
    if not is_valid:
        assert result == unavailable(f"saslauthd at {path} has not answered within 0 s")
