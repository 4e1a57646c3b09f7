"""Checks passwords with saslauthd, over its Unix socket. Serves only PLAIN.

A question has four texts: the name, the password, the service and the realm. Each is a 16-bit big-endian length and
the bytes. The answer is one such text that begins with OK or NO. Each question has its own connection.
Sources: the manual page saslauthd(8), and tests with the daemon of Cyrus SASL 2.1.28;
docs/spec/policy-and-auth.md §7, §8.10.
"""

import os
import socket
import time
from struct import Struct
from typing import Final

from auth.credentials import WRONG_PASSWORD, Answer, CheckPassword, VerifyRequest, VerifyResult, unavailable
from auth.verifiers.verifier import DEFAULT

# The socket of Debian's and Red Hat's saslauthd.
DEFAULT_SOCKET: Final = "/run/saslauthd/mux"

# The service name of the router's own logins: a file of that name in /etc/pam.d.
DEFAULT_SERVICE: Final = "amqp"

# For connecting, asking and answering together. PAM delays wrong passwords by two or three seconds.
_TIMEOUT_S: Final = 15.0

# "NO" and a reason; stops a program that is not saslauthd from filling memory.
_MAX_ANSWER_BYTES: Final = 1024

_SIZE: Final = Struct("!H")
_PEER: Final = Struct("3i")  # struct ucred


class SaslauthdVerifier:
    """Stores only where to ask.

    saslauthd cannot be asked about a user without the password, so it gives no proof: an open connection is not checked
    again.
    """

    __slots__ = ("_path", "_realm", "_service", "name")

    mechanisms = ("PLAIN",)
    # The default number of saslauthd's processes.
    threads = 5

    def __init__(
        self,
        path: str = DEFAULT_SOCKET,
        name: str = DEFAULT,
        *,
        service: str = DEFAULT_SERVICE,
        realm: str = "",
    ) -> None:
        """Prepares the questions.

        path   of the socket itself
        realm  of users who write no @realm after their names; "": saslauthd decides
        """
        self.name = name
        self._path = path
        self._service = service
        self._realm = realm

    def verify(self, request: VerifyRequest) -> Answer:
        if not isinstance(request, CheckPassword):
            return unavailable("saslauthd knows passwords only")
        user, at, realm = request.user.rpartition("@")
        if not at:
            user, realm = request.user, self._realm
        words = [text.encode("utf-8", "surrogatepass") for text in (user, request.password.reveal())]
        question = [*words, self._service.encode(), realm.encode("utf-8", "surrogatepass")]
        try:
            answer = _ask(self._path, b"".join(_SIZE.pack(len(word)) + word for word in question))
        except TimeoutError:
            return unavailable(f"saslauthd at {self._path} has not answered within {_TIMEOUT_S:.0f} s")
        except OSError as fault:
            return unavailable(f"saslauthd at {self._path}: {fault.strerror or 'connection failed'}")
        match answer[:2]:
            case b"OK":
                return VerifyResult(is_valid=True)
            case b"NO":
                # saslauthd's own reason may quote the user.
                return VerifyResult(is_valid=False, detail=WRONG_PASSWORD)
            case _:
                return unavailable(f"saslauthd at {self._path} has ended the connection without an answer")

    def close(self) -> None:
        """Does nothing: the verifier holds no connections."""


def _ask(path: str, question: bytes) -> bytes:
    """Returns the text of the answer, or the part that arrived. Errors: OSError; TimeoutError."""
    deadline = time.monotonic() + _TIMEOUT_S
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
        _limit(connection, deadline)
        connection.connect(path)
        _check_peer(connection)
        connection.sendall(question)
        data = b""
        while len(data) < _SIZE.size or len(data) < _SIZE.size + _SIZE.unpack_from(data)[0]:
            if len(data) > _MAX_ANSWER_BYTES:
                raise OSError(0, f"answers with more than {_MAX_ANSWER_BYTES} bytes")
            _limit(connection, deadline)
            piece = connection.recv(_MAX_ANSWER_BYTES)
            if not piece:
                return b""
            data += piece
    return data[_SIZE.size : _SIZE.size + _SIZE.unpack_from(data)[0]]


def _limit(connection: socket.socket, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    connection.settimeout(left)


def _check_peer(connection: socket.socket) -> None:
    """Checks who runs the service. Attack: a user who can put a socket at the path would receive every password."""
    _, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    if uid not in (0, os.geteuid()):
        raise PermissionError(1, f"is run by uid {uid}; expected root or the user of this process")
