"""`authenticatorStats`: the results of the logins at each authenticator.

Source: docs/spec/policy-and-auth.md §8.10.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from auth.verifiers.verifier import Caching
from router.control.authenticators import Authenticator
from router.management.owners import Owner
from router.management.query import Rows

_PREFIX: Final = "authenticatorStats/"  # of names and identities


def authenticator_stats_owner(members: Callable[[], Iterable[Authenticator]]) -> Owner:
    return Owner(type="authenticatorStats", rows=Rows(lambda: map(_row, members())))


def _row(member: Authenticator) -> Mapping[str, Any]:
    verifier, workers = member.verifier, member.workers
    identity = f"{_PREFIX}{verifier.name}"
    tally = workers.tally
    return {
        "name": identity,
        "identity": identity,
        "authenticator": verifier.name,
        "asked": tally.asked,
        "valid": tally.valid,
        "invalid": tally.invalid,
        "unavailable": tally.unavailable,
        "continued": tally.continued,
        "answering": tally.is_answering,
        "cacheHits": verifier.hits if isinstance(verifier, Caching) else 0,
        "waiting": workers.waiting,
        "running": workers.running,
        "milliseconds": round(tally.seconds * 1000),
        "longestMilliseconds": round(tally.longest_s * 1000),
    }
