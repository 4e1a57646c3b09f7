"""SCRAM, the server's side: SCRAM-SHA-1, -SHA-256, -SHA-512 and their -PLUS forms. scramp carries the exchange.

The name is taken as the client wrote it, as in PLAIN: scramp's SASLprep of it decides only whether it is well formed.
Sources: RFC 5802, 7677, 5929; docs/spec/policy-and-auth.md §8.1.
"""

from typing import Final

from scramp import ScramException, ScramMechanism
from scramp.core import ScramServer

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

# A message has a name, a nonce and a proof. Attack: to have us hold and parse more of a client that nobody knows.
MAX_MESSAGE_BYTES: Final = MAX_USER_BYTES + 1024

# The one channel binding that both TLSv1.2 and 1.3 have here: Python's ssl knows no tls-exporter.
BINDING: Final = "tls-server-end-point"


def mechanism_names(hash_name: str) -> tuple[str, str]:
    """Those of a hash: with channel binding, and without."""
    return f"SCRAM-{hash_name}{PLUS}", f"SCRAM-{hash_name}"


def hash_of(mechanism: str) -> str | None:
    """The hash of a SCRAM mechanism's name; None for any other mechanism."""
    hash_name = mechanism.removeprefix("SCRAM-").removesuffix(PLUS)
    return hash_name if mechanism in mechanism_names(hash_name) and hash_name in HASHES else None


class Scram:
    """One exchange.

    In AMQP the server-final message is a challenge, which the client answers with an empty response (§8.1).
    """

    def __init__(self, name: str, channel: Channel) -> None:
        """name  of a mechanism that `hash_of` knows"""
        self._name = name
        self._binding = channel.binding(BINDING)
        self._hash = hash_of(name) or ""
        self._user: str | None = None
        self._client_first = ""
        self._keys: ScramKeys | None = None
        self._server: ScramServer | None = None
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
        if self._user is None or self._server is not None:
            return Refused(detail="SASL(-1): generic failure: a verification that was not asked for")
        if isinstance(result, VerifyResult):
            return Refused(detail=result.detail or WRONG_PASSWORD, is_compared=result.is_compared)
        if not isinstance(result, ScramKeys):
            return _malformed()
        self._keys = result
        keys = (result.salt, result.stored_key, result.server_key, result.iterations)
        binding = (BINDING, self._binding) if self._binding is not None else None
        try:
            self._server = ScramMechanism(self._name).make_server(lambda _user: keys, channel_binding=binding)
            self._server.set_client_first(self._client_first)
            return Challenge(data=self._server.get_server_first().encode())
        except ScramException as fault:
            return _faulty(fault)

    def _begin(self, message: str) -> Step:
        """The client-first message: whose keys are wanted?"""
        flag, comma, rest = message.partition(",")
        authzid, another, bare = rest.partition(",")
        if not flag or not comma or not another:
            return _malformed()
        if authzid:  # scramp does not carry one, not even the user's own
            return Refused(detail=NOT_OWN_AUTHZID)
        user = next((part[2:] for part in bare.split(",") if part.startswith("n=")), "")
        name = user.replace("=2C", ",").replace("=3D", "=")
        if not name or not name.isprintable() or len(name.encode()) > MAX_USER_BYTES:
            return Refused(detail="SASL(-13): authentication failure: empty, unprintable or too long a user name")
        self._user = name
        self._client_first = message
        return Ask(request=FetchScramKeys(user=name, hash_name=self._hash))

    def _prove(self, message: str) -> Step:
        """The client-final message."""
        user, server, keys = self._user, self._server, self._keys
        if user is None or server is None or keys is None:
            return _malformed()
        try:
            server.set_client_final(message)
            final = server.get_server_final()
        except ScramException:
            return Refused(detail=WRONG_PASSWORD if keys.is_known else UNKNOWN_USER)
        if not keys.is_known:  # made-up keys fit nobody; this is beside the proof, not instead of it
            return Refused(detail=UNKNOWN_USER)
        self._accepted = Accepted(user=user, groups=keys.groups, proof=keys.proof)
        return Challenge(data=final.encode())


def _malformed() -> Refused:
    return Refused(detail="SASL(-5): bad protocol / cancel: a message that is none of SCRAM's")


def _faulty(fault: ScramException) -> Refused:
    """The error's name is one of RFC 5802's; scramp's own text may quote the peer."""
    error = fault.server_error
    return Refused(detail=f"SASL(-5): bad protocol / cancel: {error.value if error is not None else 'other-error'}")
