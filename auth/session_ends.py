"""The end of a connection about whose user nobody can be asked again. Source: docs/spec/policy-and-auth.md §8.7."""

import random
import time
from collections.abc import Callable
from typing import Final

MAX_SECONDS: Final = 2**31 - 1

# Users who came together do not all come back together: each ends up to this part of the time earlier.
_SPREAD: Final = 0.1


def session_end(
    seconds: int,
    ends_at_s: float | None = None,
    *,
    wall_clock: Callable[[], float] = time.time,
    chance: Callable[[], float] = random.random,
) -> float | None:
    """The end of a session that begins now, seconds since 1970 UTC; None: never.

    seconds    that it may last; 0: as long as its credentials
    ends_at_s  when these end; None: never
    chance     0 to 1
    """
    if not seconds:
        return ends_at_s
    end_s = wall_clock() + seconds * (1 - _SPREAD * chance())
    return end_s if ends_at_s is None else min(end_s, ends_at_s)
