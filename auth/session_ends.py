"""Limits the time of a connection whose user cannot be checked again later.

Source: docs/spec/policy-and-auth.md §8.7.
"""

import random
import time
from collections.abc import Callable
from typing import Final

MAX_SECONDS: Final = 2**31 - 1

# Users who logged in together must not all come back together: each session ends earlier, by up to this fraction.
_SPREAD: Final = 0.1


def session_end(
    seconds: int,
    ends_at_s: float | None = None,
    *,
    wall_clock: Callable[[], float] = time.time,
    chance: Callable[[], float] = random.random,
) -> float | None:
    """Returns the end of a session that begins now, in seconds since 1970 UTC. None if it never ends.

    seconds    limit of the session; 0: as long as its credentials
    ends_at_s  end of the credentials; None: never
    chance     0 to 1
    """
    if not seconds:
        return ends_at_s
    end_s = wall_clock() + seconds * (1 - _SPREAD * chance())
    return end_s if ends_at_s is None else min(end_s, ends_at_s)
