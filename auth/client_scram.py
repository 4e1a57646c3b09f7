"""The client side of SCRAM, with channel binding to the server's certificate (-PLUS).

Pure. The server chooses how long PBKDF2 takes. So the mechanism returns a `Derive`, which its owner computes where
waiting does no harm. The server has to prove that it knows the password too; otherwise its success is not believed.
Sources: RFC 5802, 7677, 5929; docs/spec/policy-and-auth.md §8b.
"""

import hashlib
import re
import secrets
from base64 import b64decode, b64encode
from dataclasses import dataclass
from hmac import compare_digest, digest
from typing import Final

from scramp import ScramException
from scramp.core import saslprep

from auth.scram import BINDING, PLUS, hash_of
from auth.secrets import Secret

# RFC 7677 §4. Attack: a man in the middle asks for 1 iteration, so that the password is cheap to guess from our answer.
MIN_ITERATIONS: Final = 4096
# About half a second. Attack: a server asks for ten million iterations, and occupies our processor.
MAX_ITERATIONS: Final = 1_000_000

MAX_MESSAGE_BYTES: Final = 4096

_FIRST: Final = re.compile(r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=([1-9][0-9]{0,8})(?:,[a-zA-Z]=[^,]+)*")
_FINAL: Final = re.compile(r"v=([A-Za-z0-9+/=]+)(?:,[a-zA-Z]=[^,]+)*")
_ERROR: Final = re.compile(r"e=([a-z-]{1,64})(?:,.*)?")


class MechanismFault(ValueError):
    """The server's messages do not fit the mechanism, or the credentials cannot be put into it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Derive:
    """A computation for the owner: call `derive` off the event loop, and pass the result to `resume`."""

    password: Secret
    salt: bytes
    iterations: int
    hash_name: str


def derive(question: Derive) -> bytes:
    """Returns the salted password of RFC 5802 §3. Takes up to a second; other threads run meanwhile."""
    password = question.password.reveal().encode("utf-8")
    return hashlib.pbkdf2_hmac(_digest(question.hash_name), password, question.salt, question.iterations)


class Scram:
    """One exchange of a SCRAM mechanism."""

    def __init__(self, name: str, username: str, password: Secret, *, binding: bytes | None, offers_plus: bool) -> None:
        """Prepares the exchange.

        name         a mechanism that `hash_of` knows
        binding      of the server's certificate; None outside TLS. A -PLUS mechanism needs one
        offers_plus  the server has offered the -PLUS form of this mechanism
        Errors       MechanismFault
        """
        self.name = name
        self._hash = hash_of(name) or ""
        try:
            # The server prepares the password in the same way, but not the name. So the name is sent as configured.
            self._password = Secret(saslprep(password.reveal()))
        except (ScramException, UnicodeError):
            raise MechanismFault("the password has a character that SCRAM does not permit (RFC 4013)") from None
        is_bound = name.endswith(PLUS)
        # By `y` a server notices that an attacker removed its -PLUS mechanisms from the offer.
        flag = f"p={BINDING}" if is_bound else "n" if binding is None or offers_plus else "y"
        self._header = f"{flag},,".encode()
        self._binding = self._header + (binding or b"" if is_bound else b"")
        self._nonce = secrets.token_urlsafe(24)
        self._username = username
        self._first = b""
        self._auth_message = b""
        self._without_proof = b""
        self._server_signature: bytes | None = None
        self._is_proven = False

    def initial_response(self) -> bytes:
        if not self._username.isprintable():
            raise MechanismFault("the user name has an unprintable character")
        name = self._username.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={name},r={self._nonce}".encode()
        return self._header + self._first

    def answer(self, challenge: bytes) -> bytes | Derive:
        if self._server_signature is not None:
            self._check(challenge)
            return b""
        if self._auth_message:
            raise MechanismFault("a challenge that SCRAM does not have")
        return self._begin(_text(challenge))

    def derived(self, salted: bytes) -> bytes:
        """Returns the client-final message, given the result of `derive`."""
        name = _digest(self._hash)
        client_key = digest(salted, b"Client Key", name)
        signature = digest(hashlib.new(name, client_key).digest(), self._auth_message, name)
        self._server_signature = digest(digest(salted, b"Server Key", name), self._auth_message, name)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return self._without_proof + b",p=" + b64encode(proof)

    def confirm(self, additional_data: bytes | None) -> None:
        """Checks the server's proof. A server may send its last message with the outcome instead of before it."""
        if not self._is_proven and additional_data:
            self._check(additional_data)
        if not self._is_proven:
            raise MechanismFault("the server says success and has not proven that it knows the password")

    def _begin(self, message: str) -> Derive:
        found = _FIRST.fullmatch(message)
        if found is None:
            raise _refused(message, "the server's first message is not SCRAM's")
        nonce, salt, iterations = found[1], _decoded(found[2]), int(found[3])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise MechanismFault("the server's nonce does not go on from ours")
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise MechanismFault(f"the server wants {iterations} iterations, not {MIN_ITERATIONS} to {MAX_ITERATIONS}")
        self._without_proof = b"c=" + b64encode(self._binding) + f",r={nonce}".encode()
        self._auth_message = b",".join((self._first, message.encode(), self._without_proof))
        return Derive(password=self._password, salt=salt, iterations=iterations, hash_name=self._hash)

    def _check(self, message: bytes) -> None:
        text = _text(message)
        found = _FINAL.fullmatch(text)
        if found is None:
            raise _refused(text, "the server's last message is not SCRAM's")
        if self._server_signature is None or not compare_digest(_decoded(found[1]), self._server_signature):
            raise MechanismFault("the server does not know the password: is it the one it should be?")
        self._is_proven = True


def _refused(message: str, otherwise: str) -> MechanismFault:
    error = _ERROR.fullmatch(message)
    return MechanismFault(f"the server refuses: {error[1]}" if error is not None else otherwise)


def _text(message: bytes) -> str:
    if len(message) > MAX_MESSAGE_BYTES:
        raise MechanismFault("a message of the server is too long")
    try:
        return message.decode("utf-8")
    except UnicodeDecodeError:
        raise MechanismFault("a message of the server is not UTF-8") from None


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise MechanismFault("a message of the server is not base64") from None


def _digest(hash_name: str) -> str:
    return hash_name.replace("-", "").lower()
