"""Rates, and the buckets of tokens by which they are kept. Source: docs/policy.md, Extensions."""

from dataclasses import dataclass
from math import inf
from typing import Final

# How long a bucket takes to fill.
BURST_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The messages and bytes that one connection may send in a second, ≥ 0. None: no limit. 0: nothing at all."""

    messages: int | None = None
    bytes: int | None = None


class Bucket:
    """Tokens that flow in evenly. `level` may be below 0: how large a piece is, is known when it is taken."""

    __slots__ = ("level", "rate")

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.level = rate * BURST_S

    @property
    def wait_s(self) -> float:
        """Until something may be taken: until there is a token."""
        if self.level >= 1:
            return 0.0
        return (1 - self.level) / self.rate if self.rate else inf

    def refill(self, seconds: float) -> None:
        level, most = self.level + self.rate * seconds, self.rate * BURST_S
        self.level = level if level < most else most

    def follow(self, rate: int) -> None:
        """From now on another rate; what was taken too early stays to be paid."""
        self.rate = rate
        self.level = min(self.level, rate * BURST_S)


def followed(bucket: Bucket | None, rate: int | None) -> Bucket | None:
    """The bucket of a rate that may have changed; None where there is no rate."""
    if rate is None:
        return None
    if bucket is None:
        return Bucket(rate)
    bucket.follow(rate)
    return bucket
