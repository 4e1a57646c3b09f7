"""The interface of verifiers. Each verifier has one file in this folder."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from auth.credentials import (
    Answer,
    CheckPassword,
    CheckTicket,
    CheckToken,
    FetchGroups,
    FetchScramKeys,
    MechanismRequest,
    VerifyRequest,
)


class Verifier(Protocol):
    """Answers the questions of mechanisms from a user database, a directory or keys. Blocking.

    name        as configured; DEFAULT for the database of the SASL configuration
    mechanisms  the upper-case names of the mechanisms that it can serve, strongest first; EXTERNAL if it knows groups
                of users whom TLS has authenticated
    threads     how many calls of `verify` may run at a time
    """

    @property
    def name(self) -> str: ...
    @property
    def mechanisms(self) -> tuple[str, ...]: ...
    @property
    def threads(self) -> int: ...

    def verify(self, request: VerifyRequest) -> Answer:
        """Answers a question.

        Called from several threads. Its time is limited; if it cannot answer, it returns `unavailable`.

        Any exception counts as unavailable, and its class is logged.
        """
        ...

    def close(self) -> None:
        """Closes connections and caches. `verify` may be running."""
        ...


@runtime_checkable
class Announcing(Protocol):
    """A verifier that reports which of its servers fail and which work again."""

    def announce_by(self, say: Callable[[str], None]) -> None:
        """Sets the function for reports.

        say  takes a text for the log, from any thread
        """
        ...


@runtime_checkable
class Recalling(Protocol):
    """A verifier that has some answers in memory."""

    def recall(self, request: VerifyRequest) -> Answer | None:
        """Returns the answer that `verify` would give, if that takes microseconds. None if `verify` has to be called.

        Called on the event loop: never waits for a disk, a network or a lock. Like `verify`, it takes as long for an
        unknown user as for an existing one.
        """
        ...


@runtime_checkable
class Caching(Protocol):
    """A verifier that remembers answers.

    hits  how often it used a remembered one
    """

    hits: int


# The name of the verifier that saslConfigDir and saslConfigName configure.
DEFAULT = "saslConfig"

# Password hashing is slow by design, and takes up to 256 MiB: only a few threads.
HASHING_THREADS = 3


def mechanism_of(request: MechanismRequest) -> str:
    """Returns a mechanism that asks this question: a verifier that serves it can answer."""
    match request:
        case CheckPassword():
            return "PLAIN"
        case FetchScramKeys(hash_name=hash_name):
            return f"SCRAM-{hash_name}"
        case CheckToken():
            return "OAUTHBEARER"
        case CheckTicket():
            return "GSSAPI"
        case FetchGroups():
            return "EXTERNAL"
