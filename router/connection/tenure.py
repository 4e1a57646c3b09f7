"""The lifetime of an open connection. Source: docs/spec/policy-and-auth.md §8.7."""

from collections.abc import Callable
from typing import Final

from auth.credentials import Recheck
from auth.identity import Identity, Proof
from router.amqp.terminus import Condition
from router.effects import RouterReason

_FORCED: Final = "amqp:connection:forced"

# Connections that began together must not end and come back together: each ends up to this part of its age earlier.
_AGE_SPREAD: Final = 0.1
# Seconds between two checks of the wall clock. Certificates and tokens end at a time of day, and the clock may be set.
_CLOCK_LOOK_S: Final = 60.0

Ending = tuple[Condition, RouterReason]


class Tenure:
    """The limits of one connection.

    identity               once it is known
    certificate_ends_at_s  since 1970 UTC
    is_revoked             returns True if a verified proof is no longer valid; set if connections are to end then
    """

    __slots__ = ("_ends_at", "_max_age_s", "certificate_ends_at_s", "identity", "is_revoked")

    def __init__(self, number: int, now: float, max_age_s: float) -> None:
        """number   of the connection
        now        monotonic seconds, as everywhere in this module
        max_age_s  0: no limit
        """
        self._max_age_s = max_age_s
        self._ends_at = now + max_age_s * (1 - _AGE_SPREAD * _spread(number)) if max_age_s else None
        self.identity: Identity | None = None
        self.certificate_ends_at_s: float | None = None
        self.is_revoked: Callable[[Proof], bool] = lambda _proof: False

    @property
    def _credentials_end_at_s(self) -> float | None:
        return self.identity.ends_at_s if self.identity is not None else None

    @property
    def recheck(self) -> Recheck | None:
        """The question to the verifier that accepted the user: is the login still valid? None if there is no verifier
        to ask.
        """
        identity = self.identity
        if identity is None or identity.proof is None:
            return None
        return Recheck(proof=identity.proof, groups=identity.groups)

    def look_at(self, now: float, wall_s: float) -> float | None:
        """Returns the time of the next call of `ending`; None for never.

        wall_s  seconds since 1970 UTC
        """
        ends = (self.certificate_ends_at_s, self._credentials_end_at_s)
        looks = [now + min(max(end_s - wall_s, 0), _CLOCK_LOOK_S) for end_s in ends if end_s is not None]
        return min((*looks, *((self._ends_at,) if self._ends_at is not None else ())), default=None)

    def ending(self, now: float, wall_s: float) -> Ending | None:
        """Returns the reason why the connection must end, else None. With 0 as `now` the age is not checked."""
        proof = self.identity.proof if self.identity is not None else None
        if proof is not None and self.is_revoked(proof):
            return _forced("The user was removed or has another password", "credentials_revoked")
        if self._credentials_end_at_s is not None and self._credentials_end_at_s <= wall_s:
            return _forced("The credentials have expired", "credentials_expired")
        if self.certificate_ends_at_s is not None and self.certificate_ends_at_s <= wall_s:
            return _forced("The client certificate has expired", "certificate_expired")
        if self._ends_at is not None and now >= self._ends_at:
            return _forced(f"The connection is older than {self._max_age_s:g} seconds", "connection_too_old")
        return None


REVOKED: Final[Ending] = (
    Condition(name=_FORCED, description="The authenticator vouches for the user no more"),
    "credentials_revoked",
)
CERTIFICATE_REVOKED: Final[Ending] = (
    Condition(name=_FORCED, description="The client certificate was revoked"),
    "certificate_revoked",
)
SERVER_REVOKED: Final = Condition(name=_FORCED, description="The server's certificate was revoked")


def _forced(description: str, reason: RouterReason) -> Ending:
    return Condition(name=_FORCED, description=description), reason


def _spread(number: int) -> float:
    """Returns a number from 0 to 1: far apart for arguments that are close together."""
    return number * 0.6180339887498949 % 1
