"""The router as its connections see it."""

from collections.abc import Callable
from dataclasses import dataclass

from auth.credentials import VerifyRequest, VerifyResult
from router.core.core import Core
from router.effects import Emit

Verifier = Callable[[VerifyRequest, Callable[[VerifyResult], None]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The parts of the router that every connection uses.

    core        routes messages, and has the monotonic clock
    version     of the router, for its Open
    verify      has credentials verified off the event loop, and calls back on it
    wall_clock  seconds since 1970 UTC, for rules and certificates that hold for a time
    """

    core: Core
    version: str
    emit: Emit
    verify: Verifier
    wall_clock: Callable[[], float]
