"""The server side of SCRAM: SCRAM-SHA-1, -SHA-256, -SHA-512 and their -PLUS forms.

scramp's server is four times slower, which is a tenth of the time of a login, so we have our own. Tests compare its
verdicts with scramp's. The name is taken as the client wrote it, as in PLAIN. SASLprep only checks that it is well
formed.
Sources: RFC 5802, 7677, 5929; docs/spec/policy-and-auth.md §8.1.
"""

import hashlib
import re
import secrets
from base64 import b64decode, b64encode
from hmac import compare_digest, digest
from typing import Final

from scramp import ScramException
from scramp.core import saslprep

from auth.credentials import (
    MAX_USER_BYTES,
    UNKNOWN_USER,
    WRONG_PASSWORD,
    Answer,
    FetchScramKeys,
    ScramKeys,
    VerifyResult,
)
from auth.mechanisms import NOT_OWN_AUTHZID, Accepted, Ask, Challenge, Channel, Refused, Step

PLUS: Final = "-PLUS"

# The hashes, strongest first.
HASHES: Final = ("SHA-512", "SHA-256", "SHA-1")

# A message has a name, a nonce and a proof. Attack: an unknown client makes us hold and parse more.
MAX_MESSAGE_BYTES: Final = MAX_USER_BYTES + 1024
# The nonce returns in our challenge, whose frame may have 512 bytes. Attack: a nonce of 1,500 characters, whose
# challenge could not be sent. That would be our error, which counts for no ban. Clients send 16 to 64 characters.
MAX_NONCE_CHARACTERS: Final = 256

# The only channel binding for both TLSv1.2 and 1.3 here: Python's ssl has no tls-exporter.
BINDING: Final = "tls-server-end-point"


# RFC 5802 §7. No attribute occurs twice or in a wrong place, and `m` must be understood.
_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS: Final = r"((?:,[bdfghjkloqtuw-zA-Z]=[^,\0]+)*)"
_FIRST: Final = re.compile(rf"n=([^,\0]+),r=({_NONCE}){_EXTENSIONS}")
_LAST: Final = re.compile(rf"c=([^,\0]+),r=({_NONCE}){_EXTENSIONS},p=([^,\0]+)")
_ESCAPED_NAME: Final = re.compile(r"(?:[^=]|=2C|=3D)+")


class _FaultyMessageError(ValueError):
    """The text is an error name of RFC 5802 §7."""


def mechanism_names(hash_name: str) -> tuple[str, str]:
    """Returns the two mechanism names of a hash: with channel binding, and without."""
    return f"SCRAM-{hash_name}{PLUS}", f"SCRAM-{hash_name}"


def hash_of(mechanism: str) -> str | None:
    """Returns the hash of a SCRAM mechanism's name. None for any other mechanism."""
    hash_name = mechanism.removeprefix("SCRAM-").removesuffix(PLUS)
    return hash_name if mechanism in mechanism_names(hash_name) and hash_name in HASHES else None


class Scram:
    """One exchange of a SCRAM mechanism.

    In AMQP the server-final message is a challenge, which the client answers with an empty response (§8.1).
    """

    __slots__ = (
        "_accepted",
        "_binding",
        "_cbind_input",
        "_client_first",
        "_client_first_bare",
        "_hash",
        "_is_plus",
        "_keys",
        "_nonce",
        "_server_first",
        "_user",
        "_was_challenged",
    )

    def __init__(self, name: str, channel: Channel) -> None:
        """Prepares the exchange.

        name  a mechanism that `hash_of` knows
        """
        self._is_plus = name.endswith(PLUS)
        self._binding = channel.binding(BINDING)
        self._hash = hash_of(name) or ""
        self._user: str | None = None
        self._client_first = ""
        self._client_first_bare = ""
        self._cbind_input = b""
        self._nonce = ""
        self._server_first = ""
        self._keys: ScramKeys | None = None
        self._accepted: Accepted | None = None
        self._was_challenged = False

    def respond(self, response: bytes | None) -> Step:
        if self._accepted is not None:
            return self._accepted if not response else _malformed()
        if response is None:
            if self._was_challenged or self._user is not None:
                return _malformed()
            self._was_challenged = True
            return Challenge(data=b"")
        if len(response) > MAX_MESSAGE_BYTES:
            return _malformed()
        try:
            message = response.decode("utf-8")
        except UnicodeDecodeError:
            return _malformed()
        return self._prove(message) if self._user is not None else self._begin(message)

    def conclude(self, result: Answer) -> Step:
        if self._user is None or self._keys is not None:
            return Refused(detail="SASL(-1): generic failure: a verification that was not asked for")
        if isinstance(result, VerifyResult):
            return Refused(detail=result.detail or WRONG_PASSWORD, is_compared=result.is_compared)
        if not isinstance(result, ScramKeys):
            return _malformed()
        self._keys = result
        try:
            self._take_first()
        except _FaultyMessageError as fault:
            return Refused(detail=f"SASL(-5): bad protocol / cancel: {fault}")
        salt = b64encode(result.salt).decode("ascii")
        self._server_first = f"r={self._nonce},s={salt},i={result.iterations}"
        return Challenge(data=self._server_first.encode("ascii"))

    def _begin(self, message: str) -> Step:
        """Reads from the client-first message for which user keys are needed."""
        flag, comma, rest = message.partition(",")
        authzid, another, bare = rest.partition(",")
        if not flag or not comma or not another:
            return _malformed()
        if authzid:  # scramp does not support one, not even the user's own
            return Refused(detail=NOT_OWN_AUTHZID)
        name = _name_in(bare)
        if name is None:
            return Refused(detail="SASL(-13): authentication failure: empty, unprintable or too long a user name")
        self._user = name
        self._client_first = message
        return Ask(request=FetchScramKeys(user=name, hash_name=self._hash))

    def _take_first(self) -> None:
        """Reads the whole client-first message, once the keys are available. Errors: _FaultyMessageError."""
        flag, _, bare = self._client_first.split(",", 2)
        self._cbind_input = f"{flag},,".encode() + self._bound(flag)
        found = _FIRST.fullmatch(bare)
        if found is None:
            raise _FaultyMessageError("extensions-not-supported" if "m=" in bare else "other-error")
        name, nonce, extensions = found.groups()
        if len(nonce) > MAX_NONCE_CHARACTERS or not _are_distinct(extensions):
            raise _FaultyMessageError("other-error")
        if _ESCAPED_NAME.fullmatch(name) is None or not _is_well_formed(self._user or ""):
            raise _FaultyMessageError("invalid-username-encoding")
        self._client_first_bare = bare
        self._nonce = nonce + make_nonce()

    def _bound(self, flag: str) -> bytes:
        """Returns the channel binding data that the client's flag selects. Errors: _FaultyMessageError."""
        if flag == "n" and not self._is_plus:
            return b""
        if flag == "y" and not self._is_plus and self._binding is None:
            return b""
        if flag in ("n", "y"):
            # Attack: a man in the middle removes the -PLUS mechanisms from the offer (RFC 5802 §6).
            raise _FaultyMessageError("server-does-support-channel-binding")
        if not flag.startswith("p="):
            raise _FaultyMessageError("other-error")
        if self._binding is None:
            raise _FaultyMessageError("channel-binding-not-supported")
        if flag != f"p={BINDING}":
            raise _FaultyMessageError("unsupported-channel-binding-type")
        return self._binding

    def _prove(self, message: str) -> Step:
        """Checks the client-final message."""
        user, keys = self._user, self._keys
        if user is None or keys is None or not self._server_first:
            return _malformed()
        signature = self._signature(message, keys)
        self._server_first = ""  # only one proof is accepted, right or wrong
        if signature is None or not keys.is_known:
            # No proof fits made-up keys. `is_known` is checked in addition to the proof, not instead of it.
            return Refused(detail=WRONG_PASSWORD if keys.is_known else UNKNOWN_USER)
        self._accepted = Accepted(user=user, groups=keys.groups, proof=keys.proof)
        return Challenge(data=b"v=" + b64encode(signature))

    def _signature(self, message: str, keys: ScramKeys) -> bytes | None:
        """Returns our proof for the client, if the client's proof is right (RFC 5802 §3). Else None."""
        found = _LAST.fullmatch(message)
        if found is None:
            return None
        bound, nonce, extensions, shown = found.groups()
        try:
            cbind_input, proof = b64decode(bound, validate=True), b64decode(shown, validate=True)
        except ValueError:
            return None
        if nonce != self._nonce or not compare_digest(cbind_input, self._cbind_input) or not _are_distinct(extensions):
            return None
        without_proof = message[: found.start(4) - len(",p=")]
        auth_message = f"{self._client_first_bare},{self._server_first},{without_proof}".encode()
        name = self._hash.replace("-", "").lower()
        expected = digest(keys.stored_key, auth_message, name)
        if len(proof) != len(expected):
            return None
        client_key = (int.from_bytes(expected) ^ int.from_bytes(proof)).to_bytes(len(expected))
        if not compare_digest(hashlib.new(name, client_key).digest(), keys.stored_key):
            return None
        return digest(keys.server_key, auth_message, name)


def claimed_name(client_first: bytes) -> str | None:
    """Returns the user that a client-first message names, if it can be a user name. Else None."""
    try:
        parts = client_first.decode("utf-8").split(",", 2)
    except UnicodeDecodeError:
        return None
    return _name_in(parts[2]) if len(parts) == 3 else None


def _name_in(bare: str) -> str | None:
    user = next((part[2:] for part in bare.split(",") if part.startswith("n=")), "")
    name = user.replace("=2C", ",").replace("=3D", "=")
    return name if name and name.isprintable() and len(name.encode()) <= MAX_USER_BYTES else None


def make_nonce() -> str:
    """Returns our part of the nonce, 256 random bits."""
    return secrets.token_hex(32)


def _are_distinct(extensions: str) -> bool:
    """Returns whether every letter occurs once. Each extension is written `,x=…`."""
    letters = [each[0] for each in extensions.split(",")[1:]]
    return len(set(letters)) == len(letters)


def _is_well_formed(name: str) -> bool:
    """Returns whether SASLprep (RFC 4013) accepts this printable name. SASLprep leaves every ASCII name unchanged."""
    if name.isascii():
        return True
    try:
        return bool(saslprep(name))
    except ScramException:
        return False


def _malformed() -> Refused:
    return Refused(detail="SASL(-5): bad protocol / cancel: a message that is none of SCRAM's")
