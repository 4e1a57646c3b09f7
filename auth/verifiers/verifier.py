"""What a verifier is. Each has one file in this room."""

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

    name        as configured; of the SASL configuration's database: DEFAULT
    mechanisms  the upper-case names of those whose questions it can answer, strongest first; EXTERNAL where it knows
                groups of users whom TLS has authenticated
    threads     how many calls of `verify` may run at a time
    """

    @property
    def name(self) -> str: ...
    @property
    def mechanisms(self) -> tuple[str, ...]: ...
    @property
    def threads(self) -> int: ...

    def verify(self, request: VerifyRequest) -> Answer:
        """Called from several threads. Bounded in time; a question that it cannot answer now is `unavailable`.

        Whatever it raises is taken as unavailable, and its class logged.
        """
        ...

    def close(self) -> None:
        """Give back connections and caches. `verify` may be under way."""
        ...


@runtime_checkable
class Announcing(Protocol):
    """A verifier that has to say, beside its answers, which of its servers fail and which are back."""

    def announce_by(self, say: Callable[[str], None]) -> None:
        """say  takes a text for the log, from any thread"""
        ...


@runtime_checkable
class Recalling(Protocol):
    """A verifier that has some answers in memory."""

    def recall(self, request: VerifyRequest) -> Answer | None:
        """The answer that `verify` would give, where that takes microseconds; None: `verify` has to be asked.

        Called on the event loop: it waits for no disk, no network and no lock. As `verify`, it takes as long for an
        unknown user as for one that there is.
        """
        ...


@runtime_checkable
class Caching(Protocol):
    """A verifier that remembers answers. hits  how often one was remembered"""

    hits: int


# The name of the verifier that saslConfigDir and saslConfigName configure.
DEFAULT = "saslConfig"

# Password hashing is deliberately slow, and takes up to 256 MiB: a few threads.
HASHING_THREADS = 3


def mechanism_of(request: MechanismRequest) -> str:
    """A mechanism that asks this question: who serves it can answer."""
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
