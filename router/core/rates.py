"""Rates, and the token buckets that enforce them. Source: docs/policy.md, Extensions."""

from dataclasses import dataclass
from math import inf
from typing import Final

# The seconds in which an empty bucket becomes full.
BURST_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The messages and bytes that one connection may send in a second, ≥ 0. None: no limit. 0: nothing at all."""

    messages: int | None = None
    bytes: int | None = None


class Bucket:
    """Tokens that arrive evenly. `level` may be below 0, because a piece's size is known only when it is taken."""

    __slots__ = ("level", "rate")

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.level = rate * BURST_S

    @property
    def wait_s(self) -> float:
        """The seconds until something may be taken: until there is one token."""
        if self.level >= 1:
            return 0.0
        return (1 - self.level) / self.rate if self.rate else inf

    def refill(self, seconds: float) -> None:
        level, most = self.level + self.rate * seconds, self.rate * BURST_S
        self.level = level if level < most else most

    def follow(self, rate: int) -> None:
        """Changes the rate. Tokens that were taken too early must still be paid."""
        self.rate = rate
        self.level = min(self.level, rate * BURST_S)


def followed(bucket: Bucket | None, rate: int | None) -> Bucket | None:
    """Returns the bucket for a rate that may have changed, or None if there is no rate."""
    if rate is None:
        return None
    if bucket is None:
        return Bucket(rate)
    bucket.follow(rate)
    return bucket
