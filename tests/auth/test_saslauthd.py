"""saslauthd's protocol against a false one: docs/spec/policy-and-auth.md §8.10. The real one: tests/daemon."""

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from auth.credentials import CheckPassword, FetchScramKeys, VerifyResult
from auth.secrets import Secret
from auth.verifiers import saslauthd
from auth.verifiers.saslauthd import SaslauthdVerifier

Serve = Callable[[bytes], tuple[str, list[list[bytes]]]]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """`serve(answer)`: the path of a socket where each question is answered so, and the questions as they come."""
    made: list[socket.socket] = []

    def run(answer: bytes) -> tuple[str, list[list[bytes]]]:
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
                    if answer[:2] == b"??":  # says no more, and stays
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
    result = ask(SaslauthdVerifier(serve(b"??")[0]))
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


def test_a_socket_of_somebody_else_is_sent_no_password(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: to put one's own socket where saslauthd's was, and gather passwords."""
    path, questions = serve(b"\0\x02OK")
    if os.geteuid() != 0:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    else:
        monkeypatch.setattr(saslauthd, "_PEER", Other("3i"))
    result = ask(SaslauthdVerifier(path))
    assert (result.is_valid, result.is_compared, questions) == (False, False, [])


class Other(struct.Struct):
    """A peer that is neither root nor this user."""

    def unpack(self, _buffer: object) -> tuple[int, int, int]:
        return (1, 12345, 12345)
