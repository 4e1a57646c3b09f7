"""Watches links over time: how fast they settle, stuck deliveries, and links that wait for credit.

The daemon calls this once a second. It is not part of the path of messages. Sources: docs/spec/routing.md §19.1, §20.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from router.core.in_links import InLink
from router.core.links import Link, Origin
from router.core.out_links import OutLink
from router.core.streams import Leg
from router.effects import Emit, log
from router.values import Handle

if TYPE_CHECKING:
    from router.core.core import Core

RATE_SECONDS: Final = 5
# A slice takes a fraction of a millisecond, or a few milliseconds if each link causes a log line. Ten thousand links at
# once would delay every message for fifteen milliseconds.
LINKS_AT_ONCE: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The interval of scans for stuck deliveries, and the age from which a delivery is stuck, in seconds."""

    scan_interval_s: int = 30
    age_s: int = 10


NORMAL: Final = Thresholds()
TEST_HOOKS: Final = Thresholds(scan_interval_s=5, age_s=3)  # qdrouterd --test-hooks


class Watch:
    """Watches the links of one core."""

    def __init__(self, core: "Core", emit: Emit, thresholds: Thresholds = NORMAL) -> None:
        self._core = core
        self._emit = emit
        self._thresholds = thresholds
        self._next_scan_s = core.work.now_s + thresholds.scan_interval_s
        log(
            emit,
            "ROUTER_CORE",
            "info",
            f"Stuck delivery detection: Scan interval: {thresholds.scan_interval_s} seconds, "
            f"Delivery age threshold: {thresholds.age_s} seconds",
        )

    def on_second(self) -> Iterator[None]:
        """Samples rates and credit, and scans if it is time. Yields wherever messages may be routed in between."""
        now_s = self._core.work.now_s
        links = list(self._core.links.values())
        for at, link in enumerate(links):
            if at % LINKS_AT_ONCE == LINKS_AT_ONCE - 1:
                yield
            if link.is_open:
                _sample_rate(link)
                _sample_credit(link, now_s)
                if not isinstance(link, OutLink) or link.records != len(link.unsettled):
                    link.count_records()
        if now_s >= self._next_scan_s:
            self._next_scan_s = now_s + self._thresholds.scan_interval_s
            yield from self._scan(links, now_s)

    def _scan(self, links: "list[InLink | OutLink]", now_s: int) -> Iterator[None]:
        """Scans in slices. A delivery settled between two slices may stay counted as stuck until the next scan."""
        before_s = now_s - self._thresholds.age_s
        stuck: dict[Link, int] = {}
        counted: set[Handle | None] = set()
        for at, link in enumerate(links):
            if at % LINKS_AT_ONCE == LINKS_AT_ONCE - 1:
                yield
            if isinstance(link, OutLink):
                _count_stuck(link, before_s, stuck, counted)
            if link.is_open:
                self._check_credit(link, now_s)
        self._core.work.stuck_before_s = before_s
        for at, link in enumerate(links):
            if at % LINKS_AT_ONCE == LINKS_AT_ONCE - 1:
                yield
            was, link.stuck = link.stuck, stuck.get(link, 0)
            if not was and link.stuck:
                self._say(
                    link,
                    "Stuck delivery: At least one delivery on this link has been undelivered/unsettled for more than "
                    f"{self._thresholds.age_s} seconds",
                )

    def _check_credit(self, link: InLink | OutLink, now_s: int) -> None:
        since_s = link.zero_credit_since_s
        if since_s is None or now_s - since_s <= self._thresholds.age_s:
            return
        if not link.is_blocked:
            link.is_blocked = True
            self._say(link, f"Link blocked with zero credit for {now_s - since_s} seconds")

    def _say(self, link: InLink | OutLink, text: str) -> None:
        log(self._emit, "ROUTER_CORE", "info", f"[C{link.attachment.connection_id}][L{link.identity}] {text}")


def _count_stuck(link: OutLink, before_s: int, stuck: "dict[Link, int]", counted: set[Handle | None]) -> None:
    """Counts deliveries queued or unsettled since before `before_s`, here and at their senders, without streams.

    counted  senders' deliveries that are already counted: a multicast message has many copies
    """
    waiting: list[tuple[Origin | None, Handle | None, int]] = [*link.unsettled.values()]
    waiting += [(item.origin, item.source, item.since_s) for item in link.queue]
    for origin, source, since_s in waiting:
        if since_s >= before_s or origin is None or isinstance(origin, Leg):
            continue
        stuck[link] = stuck.get(link, 0) + 1
        if source is None or source not in counted:
            counted.add(source)
            sender = origin.sender
            stuck[sender] = stuck.get(sender, 0) + 1


def _sample_rate(link: InLink | OutLink) -> None:
    """Updates the settle rate over the last RATE_SECONDS: presettled, accepted and rejected deliveries per second."""
    settled = link.presettled + link.accepted + link.rejected
    samples = link.rate_samples
    if not samples:
        if settled:  # an idle link costs nothing
            link.rate_samples = (0, settled)
            link.settle_rate = settled // RATE_SECONDS
        return
    link.rate_samples = (*samples[-RATE_SECONDS:], settled)
    link.settle_rate = (settled - link.rate_samples[0]) // RATE_SECONDS


def _sample_credit(link: InLink | OutLink, now_s: int) -> None:
    if link.wire.credit > 0:
        link.zero_credit_since_s = None
        link.is_blocked = False
    elif link.zero_credit_since_s is None:
        link.zero_credit_since_s = now_s
