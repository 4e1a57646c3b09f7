"""Users in a sasldb, as `saslpasswd2` maintains it. It has the passwords themselves, which serve PLAIN and SCRAM.

Blocking: the file is read and keys are derived here. Owner and mode must be as for a file of users (files.py).
Sources: docs/spec/policy-and-auth.md §7, §8.1, §8.10.
"""

import hmac
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from scramp import ScramException, ScramMechanism

from auth.credentials import (
    UNKNOWN_USER,
    WRONG_PASSWORD,
    Answer,
    CheckPassword,
    FetchScramKeys,
    Recheck,
    ScramKeys,
    VerifyRequest,
    VerifyResult,
    unavailable,
)
from auth.identity import Proof
from auth.scram import HASHES
from auth.secrets import Secret
from auth.verifiers.files import UserFileError, fingerprint, read_private
from auth.verifiers.sasldb_format import Passwords, SasldbError, read_passwords
from auth.verifiers.scram_keys import MIN_ITERATIONS
from auth.verifiers.verifier import DEFAULT, HASHING_THREADS

# Each SCRAM login derives the keys anew, 2 to 5 ms of one thread. More iterations would protect nothing: the file has
# the passwords. The keys are not cached: a fast answer would reveal users who have just logged in.
_ITERATIONS: Final = MIN_ITERATIONS

# saslpasswd2 writes the file page by page: a file younger than this is read until it stays the same.
_SETTLED_S: Final = 0.5
_LOOK_AGAIN_S: Final = 0.05


class SasldbVerifier:
    """Answers from a database that may change: the file is read again whenever it has changed.

    If it becomes unusable, every user is refused. May be called from several threads: the only state is one pair,
    replaced as a whole.
    """

    __slots__ = ("_loaded", "_path", "_realm", "_secret", "name")

    threads = HASHING_THREADS

    def __init__(self, path: str, name: str = DEFAULT, realm: str | None = None) -> None:
        """Reads the database.

        path   a Berkeley DB hash or a GDBM file
        realm  of users who write no @realm after their names; None: the host's name, as for saslpasswd2

        Errors  UserFileError if the file cannot be used now
        """
        self.name = name
        self._path = path
        self._realm = realm
        # Salts, made-up passwords and proofs are derived from it. They are useless in another process.
        self._secret = secrets.token_bytes(32)
        # The first question reads it again, off the event loop, where waiting for a writer does no harm.
        self._loaded: tuple[tuple[int, int, int, int] | None, Passwords] = (None, _parse(path, read_private(path)))

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return (*(f"SCRAM-{name}" for name in HASHES), "PLAIN")

    def verify(self, request: VerifyRequest) -> Answer:
        """Checks a password or an open connection's proof, or returns a user's SCRAM keys."""
        if not isinstance(request, CheckPassword | FetchScramKeys | Recheck):
            return unavailable("a sasldb holds passwords only")
        try:
            passwords = self._current()
        except UserFileError as fault:
            return unavailable(str(fault))
        user = request.proof.user if isinstance(request, Recheck) else request.user
        password = passwords.get(self._key(user))
        proof = None if password is None else Proof(verifier=self.name, user=user, value=self._value(user, password))
        if isinstance(request, Recheck):
            return VerifyResult(is_valid=proof == request.proof)
        if isinstance(request, FetchScramKeys):
            return self._scram_keys(request, password, proof)
        # Compared as digests, for an unknown user too: the time reveals neither names nor lengths.
        expected = proof.value if proof is not None else self._value(user, self._made_up(user))
        fits = hmac.compare_digest(self._value(user, request.password), expected)
        if proof is None:
            return VerifyResult(is_valid=False, detail=UNKNOWN_USER)
        return VerifyResult(is_valid=True, proof=proof) if fits else VerifyResult(is_valid=False, detail=WRONG_PASSWORD)

    def close(self) -> None:
        """Does nothing: the verifier holds no connections."""

    def _current(self) -> Passwords:
        loaded, passwords = self._loaded
        current = fingerprint(self._path)
        if current != loaded:
            passwords = _parse(self._path, _settled(self._path))
            self._loaded = (current, passwords)
        return passwords

    def _key(self, user: str) -> tuple[bytes, bytes]:
        name, at, realm = user.partition("@")
        if not at:
            realm = self._default_realm()
        return name.encode("utf-8", "surrogatepass"), realm.encode("utf-8", "surrogatepass")

    def _default_realm(self) -> str:
        if self._realm is not None:
            return self._realm
        realm, is_sure = host_realm()
        if is_sure:  # a temporary failure of the resolver must not lock users out forever
            self._realm = realm
        return realm

    def _scram_keys(self, request: FetchScramKeys, password: Secret | None, proof: Proof | None) -> ScramKeys:
        """Returns the user's keys, or those of a made-up password.

        Both take the same time to derive. One name always gets the same keys.
        """
        salt = self._drawn("salt:", request.user)[:16]
        try:
            keys = _derive(password or self._made_up(request.user), request.hash_name, salt)
        except ScramException:  # SASLprep forbids the password: its user can log in only by PLAIN
            password = None
            keys = _derive(self._made_up(request.user), request.hash_name, salt)
        return replace(keys, is_known=password is not None, proof=None if password is None else proof)

    def _made_up(self, user: str) -> Secret:
        """Returns a password that no user has."""
        return Secret(self._drawn("password:", user).hex())

    def _value(self, user: str, password: Secret) -> str:
        return self._drawn(f"proof:{len(user)}:{user}", password.reveal()).hex()

    def _drawn(self, what: str, text: str) -> bytes:
        return hmac.digest(self._secret, f"{what}{text}".encode("utf-8", "surrogatepass"), "sha256")


def host_realm() -> tuple[str, bool]:
    """Returns the default realm of saslpasswd2: the host's name, with its domain if known.

    Asks the resolver; blocking. The second value is false if the resolver does not answer.
    """
    name = socket.gethostname()
    if "." in name:
        return name.lower(), True
    try:
        return (socket.getaddrinfo(name, None, flags=socket.AI_CANONNAME)[0][3] or name).lower(), True
    except (OSError, UnicodeError):
        return name.lower(), False


def _parse(path: str, content: bytes) -> Passwords:
    try:
        return read_passwords(content)
    except SasldbError as fault:
        raise UserFileError(f"{path}: {fault}") from None


def _settled(path: str, sleep: Callable[[float], None] = time.sleep) -> bytes:
    """Returns the content once the file does not change between two reads. Waits half a second at most."""
    content = read_private(path)
    for _ in range(int(_SETTLED_S / _LOOK_AGAIN_S)):
        if not 0 <= time.time_ns() - fingerprint(path)[-1] < _SETTLED_S * 1e9:
            break
        sleep(_LOOK_AGAIN_S)
        before, content = content, read_private(path)
        if before == content:
            break
    return content


def _derive(password: Secret, hash_name: str, salt: bytes) -> ScramKeys:
    """Derives keys, not yet assigned to a user. Errors: ScramException for a password that SASLprep forbids."""
    _, stored, server, iterations = ScramMechanism(f"SCRAM-{hash_name}").make_auth_info(
        password.reveal(), iteration_count=_ITERATIONS, salt=salt
    )
    return ScramKeys(salt=salt, iterations=iterations, stored_key=stored, server_key=server, is_known=False)
