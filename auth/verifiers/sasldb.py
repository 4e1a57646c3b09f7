"""Users in a sasldb, as `saslpasswd2` keeps them: their passwords themselves, which serve PLAIN and SCRAM alike.

Blocking: the file is read and keys are derived here. Owner and mode have to be those of a file of users (files.py).
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

# Each login by SCRAM derives its keys anew, 2 to 5 ms of one thread. More would protect no stored keys: the file has
# the passwords. They are not kept: an answer that comes at once for those who have just logged in names them.
_ITERATIONS: Final = MIN_ITERATIONS

# saslpasswd2 writes page by page into the file: what is younger than this is read until it stays the same.
_SETTLED_S: Final = 0.5
_LOOK_AGAIN_S: Final = 0.05


class SasldbVerifier:
    """Answers from a database that may change: it is read again when it is not the file that was read last.

    One that has become unusable refuses everybody. May be called from several threads: the only state is one pair,
    replaced as a whole.
    """

    __slots__ = ("_loaded", "_path", "_realm", "_secret", "name")

    threads = HASHING_THREADS

    def __init__(self, path: str, name: str = DEFAULT, realm: str | None = None) -> None:
        """path   a Berkeley DB hash or a GDBM file
        realm  of users who write no @realm behind their names; None: the host's name, as saslpasswd2 has it

        Errors  UserFileError when the file cannot be used now
        """
        self.name = name
        self._path = path
        self._realm = realm
        # What is made of it is worth nothing in another process: salts, made-up passwords, proofs.
        self._secret = secrets.token_bytes(32)
        # Read again by the first question, off the event loop, where it may wait for who is writing it.
        self._loaded: tuple[tuple[int, int, int, int] | None, Passwords] = (None, _parse(path, read_private(path)))

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return (*(f"SCRAM-{name}" for name in HASHES), "PLAIN")

    def verify(self, request: VerifyRequest) -> Answer:
        """Is the request's password its user's? What are its SCRAM keys?"""
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
        # Compared as digests, for an unknown user too: the time tells neither names nor lengths.
        expected = proof.value if proof is not None else self._value(user, self._made_up(user))
        fits = hmac.compare_digest(self._value(user, request.password), expected)
        if proof is None:
            return VerifyResult(is_valid=False, detail=UNKNOWN_USER)
        return VerifyResult(is_valid=True, proof=proof) if fits else VerifyResult(is_valid=False, detail=WRONG_PASSWORD)

    def close(self) -> None:
        """There is nothing to give back."""

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
        if is_sure:  # a resolver that is away now locks nobody out for good
            self._realm = realm
        return realm

    def _scram_keys(self, request: FetchScramKeys, password: Secret | None, proof: Proof | None) -> ScramKeys:
        """The user's, or those of a password that nobody has: made up in the same time, the same for the same name."""
        salt = self._drawn("salt:", request.user)[:16]
        try:
            keys = _derive(password or self._made_up(request.user), request.hash_name, salt)
        except ScramException:  # a password that SASLprep forbids: its user can log in by PLAIN alone
            password = None
            keys = _derive(self._made_up(request.user), request.hash_name, salt)
        return replace(keys, is_known=password is not None, proof=None if password is None else proof)

    def _made_up(self, user: str) -> Secret:
        """A password that nobody has."""
        return Secret(self._drawn("password:", user).hex())

    def _value(self, user: str, password: Secret) -> str:
        return self._drawn(f"proof:{len(user)}:{user}", password.reveal()).hex()

    def _drawn(self, what: str, text: str) -> bytes:
        return hmac.digest(self._secret, f"{what}{text}".encode("utf-8", "surrogatepass"), "sha256")


def host_realm() -> tuple[str, bool]:
    """The realm that saslpasswd2 gives users by default: the host's name, with its domain where that is known.

    Asks the resolver; blocking. The second is false where it does not answer.
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
    """The content, once nobody has written to the file between two looks. Waits half a second at most."""
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
    """Keys that are nobody's yet. Errors: ScramException for a password that SASLprep forbids."""
    _, stored, server, iterations = ScramMechanism(f"SCRAM-{hash_name}").make_auth_info(
        password.reveal(), iteration_count=_ITERATIONS, salt=salt
    )
    return ScramKeys(salt=salt, iterations=iterations, stored_key=stored, server_key=server, is_known=False)
