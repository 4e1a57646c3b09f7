"""The state of the router for /healthz, and the counters of /metrics. Source: docs/spec/routing.md §2.1."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from router.control.router import Router
from router.effects import AuditEvent
from router.web.exposition import Exposition

# If the core's tick is this late, the core does not work any more.
MOST_LATE_S: Final = 5.0
# Attack: a client requests /metrics again and again; each time the router counts thousands of links. All requests
# within this time get the same text.
FRESH_S: Final = 1.0
_TICK_S: Final = 1.0  # between two ticks of the router


class WebPulse:
    """The state of the router for /healthz and /metrics.

    rows       yields the row of the router entity; None where other work may have its turn
    extra      more numbers, by their names in the metrics
    """

    def __init__(
        self,
        router: Router,
        rows: Callable[[], Iterator[Mapping[str, Any] | None]],
        extra: Callable[[], Mapping[str, int]],
    ) -> None:
        self._router = router
        self._rows = rows
        self._extra = extra
        self.exposition = Exposition()
        self._ticked_at = router.clock()
        self._text = b""
        self._made_at = float("-inf")
        self._waiting: list[Callable[[bytes], None]] = []
        router.on_second.append(self._on_second)
        router.gate.count_login = self.exposition.logged_in

    def _on_second(self, now: float) -> None:
        self.exposition.late(max(now - self._ticked_at - _TICK_S, 0.0))
        self._ticked_at = now

    def on_event(self, event: AuditEvent) -> None:
        """Counts an audit event; an event of a flood counts for all its attempts."""
        match event["decision"]:
            case "deny":
                times = event.get("attempts") or 1
                self.exposition.denied(event.get("vhost"), event["stage"], event["reason"], times)
            case "shadow_deny" | "shadow_allow" | "shadow_error" as decision:
                self.exposition.disagreed(decision, event.get("shadow", {}).get("count") or 1)
            case "allow":
                pass

    # Methods for the site

    def is_well(self) -> bool:
        """Returns True if the core's last tick was recent."""
        return self._router.clock() - self._ticked_at < MOST_LATE_S

    def with_metrics(self, done: Callable[[bytes], None]) -> None:
        if self._router.clock() - self._made_at < FRESH_S:
            done(self._text)
            return
        self._waiting.append(done)
        if len(self._waiting) == 1:
            self._router.turns.later(self._making())

    def _making(self) -> Iterator[None]:
        pieces: list[bytes] = []
        router = self._router
        try:
            found: Mapping[str, Any] = {}
            about = {"version": router.surroundings.version, "router_id": router.router_id}
            for row in self._rows():
                found = row or found
                yield
            ledger = router.gate.ledger
            names = ledger.vhost_names()
            connections = ((name, ledger.vhost_connections(name)) for name in names if ledger.has_vhost(name))
            for piece in self.exposition.text({**found, **self._extra()}, connections, about):
                pieces.append(piece)
                yield
            self._text, self._made_at = b"".join(pieces), self._router.clock()
        finally:
            waiting, self._waiting = self._waiting, []
            for done in waiting:
                done(self._text)
                yield
