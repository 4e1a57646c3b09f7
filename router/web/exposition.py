"""The text of /metrics: first the names of the C router, then labelled names in the conventions of Prometheus.

Events are counted here. Current values are read when a client asks. No label is a peer's choice: vhosts are those of
the configuration, and only a limited number of them is named. Source: docs/spec/routing.md §2.1; docs/http.md.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

# A router with ten thousand vhosts would have as many series of each kind. Vhosts beyond this number are counted as
# `other`.
MAX_VHOSTS: Final = 200
OTHER: Final = "(other)"
# Peers can name any number of mechanisms. Others than these are counted as "other".
_MECHANISMS: Final = frozenset(
    {"PLAIN", "EXTERNAL", "ANONYMOUS", "XOAUTH2", "OAUTHBEARER", "GSSAPI", "HTTP-BASIC"}
    | {f"SCRAM-SHA-{size}{plus}" for size in (1, 256, 512) for plus in ("", "-PLUS")}
)

# Name, type and attribute of the router entity, in the order of the C router.
OF_ROUTER: Final = (
    ("qdr_connections_total", "gauge", "connectionCount"),
    ("qdr_links_total", "gauge", "linkCount"),
    ("qdr_addresses_total", "gauge", "addrCount"),
    ("qdr_routers_total", "gauge", "nodeCount"),
    ("qdr_link_routes_total", "gauge", "linkRouteCount"),
    ("qdr_auto_links_total", "gauge", "autoLinkCount"),
    ("qdr_presettled_deliveries_total", "counter", "presettledDeliveries"),
    ("qdr_dropped_presettled_deliveries_total", "counter", "droppedPresettledDeliveries"),
    ("qdr_accepted_deliveries_total", "counter", "acceptedDeliveries"),
    ("qdr_released_deliveries_total", "counter", "releasedDeliveries"),
    ("qdr_rejected_deliveries_total", "counter", "rejectedDeliveries"),
    ("qdr_modified_deliveries_total", "counter", "modifiedDeliveries"),
    ("qdr_deliveries_ingress_total", "counter", "deliveriesIngress"),
    ("qdr_deliveries_egress_total", "counter", "deliveriesEgress"),
    ("qdr_deliveries_transit_total", "counter", "deliveriesTransit"),
    ("qdr_deliveries_ingress_route_container_total", "counter", "deliveriesIngressRouteContainer"),
    ("qdr_deliveries_egress_route_container_total", "counter", "deliveriesEgressRouteContainer"),
    ("qdr_deliveries_delayed_1sec_total", "counter", "deliveriesDelayed1Sec"),
    ("qdr_deliveries_delayed_10sec_total", "counter", "deliveriesDelayed10Sec"),
    ("qdr_deliveries_stuck_total", "gauge", "deliveriesStuck"),
    ("qdr_links_blocked_total", "gauge", "linksBlocked"),
    ("qdr_deliveries_redirected_to_fallback_total", "counter", "deliveriesRedirectedToFallback"),
)
_OUTCOMES: Final = {
    "accepted": "acceptedDeliveries",
    "rejected": "rejectedDeliveries",
    "released": "releasedDeliveries",
    "modified": "modifiedDeliveries",
    "presettled": "presettledDeliveries",
    "dropped": "droppedPresettledDeliveries",
}
# Gauges and counters without labels: name, help, attribute of the router entity or of `Exposition.lines`.
_GAUGES: Final = (
    ("palisade_connections_open", "Connections whose Open was admitted", "connectionCount"),
    ("palisade_links", "Links that are attached", "linkCount"),
    ("palisade_addresses", "Addresses that have a sender, a receiver or a subscriber", "addrCount"),
    ("palisade_routers", "Routers of the network, this one included", "nodeCount"),
    ("palisade_links_blocked", "Links whose peer takes no credit or gives none", "linksBlocked"),
    (
        "palisade_deliveries_stuck",
        "Deliveries without an outcome for more than ten seconds",
        "deliveriesStuck",
    ),
    ("palisade_handshakes", "Accepted connections that are not open yet", "handshakeCount"),
    ("palisade_handshake_bytes", "Bytes held for connections that are not open yet", "handshakeBytes"),
    ("palisade_file_descriptors", "File descriptors in use", "fileDescriptorCount"),
    ("palisade_file_descriptors_limit", "File descriptors that the process may have", "fileDescriptorLimit"),
    ("palisade_virtual_memory_bytes", "Virtual memory of the process", "memoryUsage"),
    ("palisade_uptime_seconds", "Seconds since the start", "uptimeSeconds"),
    ("palisade_audit_pending", "Audit events that wait to be written", "auditPending"),
    ("palisade_bans", "Bans in force", "bans"),
    ("palisade_policy_generation", "Rulesets that have been in force since the start", "policyGeneration"),
    ("palisade_policy_age_seconds", "Seconds since the ruleset in force took effect", "policyAge"),
)
_COUNTERS: Final = (
    ("palisade_audit_written", "Audit events written", "auditWritten"),
    ("palisade_audit_lost", "Audit events that could not be written", "auditLost"),
    ("palisade_policy_failures", "Changes of policy that could not be used", "policyFailures"),
)
disable_created_metrics()  # type: ignore[no-untyped-call]  # they double the series, and no query of ours uses them
_LAG_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_LOGIN_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Exposition:
    """The counters, and the text made from them."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._vhosts: dict[str, None] = {}  # vhosts that have their own name
        self._denials = Counter(
            "palisade_denials", "Denials, by vhost, stage and reason", ("vhost", "stage", "reason"), registry=registry
        )
        self._disagreements = Counter(
            "palisade_shadow_disagreements",
            "Decisions in which the candidate policy differs from the policy in force",
            ("decision",),
            registry=registry,
        )
        self._logins = Counter(
            "palisade_authentications", "Logins, by mechanism and result", ("mechanism", "result"), registry=registry
        )
        self._login_times = Histogram(
            "palisade_authentication_seconds",
            "From the credentials of a login to its result",
            ("mechanism",),
            registry=registry,
            buckets=_LOGIN_S,
        )
        self._lag = Histogram(
            "palisade_event_loop_lag_seconds",
            "How late the timer of each second was",
            registry=registry,
            buckets=_LAG_S,
        )

    # What happens

    def denied(self, vhost: str | None, stage: str, reason: str, times: int = 1) -> None:
        self._denials.labels(self._named(vhost), stage, reason).inc(times)

    def disagreed(self, decision: str, times: int = 1) -> None:
        self._disagreements.labels(decision).inc(times)

    def logged_in(self, mechanism: str | None, result: str, seconds: float | None) -> None:
        """Counts a login.

        seconds  None: no credentials came
        """
        known = mechanism if mechanism in _MECHANISMS else "other"
        self._logins.labels(known, result).inc()
        if seconds is not None:
            self._login_times.labels(known).observe(seconds)

    def late(self, seconds: float) -> None:
        self._lag.observe(seconds)

    def _named(self, vhost: str | None) -> str:
        if vhost is None or vhost in self._vhosts:
            return vhost or ""
        if len(self._vhosts) >= MAX_VHOSTS:
            return OTHER
        self._vhosts[vhost] = None
        return vhost

    # The text

    def text(
        self, row: Mapping[str, object], connections: Iterator[tuple[str, int]], about: Mapping[str, str]
    ) -> Iterator[bytes]:
        """Gives the text in pieces, so that other work can run in between.

        row          the attributes of the router entity, and the additional ones that _GAUGES and _COUNTERS name
        connections  vhost → its number of connections
        about        the labels of palisade_info
        """
        yield "".join(
            f"# TYPE {name} {kind}\n{name} {_number(row.get(attribute))}\n" for name, kind, attribute in OF_ROUTER
        ).encode()
        for metric in self._families(row, connections, about):
            yield generate_latest(_One(metric))

    def _families(
        self, row: Mapping[str, object], connections: Iterator[tuple[str, int]], about: Mapping[str, str]
    ) -> Iterator[Metric]:
        info = GaugeMetricFamily("palisade_info", "The router, always 1", labels=tuple(about))
        info.add_metric(tuple(about.values()), 1)
        yield info
        for name, text, attribute in _GAUGES:
            yield GaugeMetricFamily(name, text, value=_number(row.get(attribute)))
        for name, text, attribute in _COUNTERS:
            yield CounterMetricFamily(name, text, value=_number(row.get(attribute)))
        by_outcome = CounterMetricFamily("palisade_deliveries", "Deliveries, by outcome", labels=("outcome",))
        for outcome, attribute in _OUTCOMES.items():
            by_outcome.add_metric((outcome,), _number(row.get(attribute)))
        yield by_outcome
        by_vhost: dict[str, int] = {}
        for vhost, count in connections:
            named = self._named(vhost)
            by_vhost[named] = by_vhost.get(named, 0) + count
        of_vhosts = GaugeMetricFamily("palisade_connections", "Connections that vhosts govern", labels=("vhost",))
        for vhost, count in by_vhost.items():
            of_vhosts.add_metric((vhost,), count)
        yield of_vhosts
        yield from self._registry.collect()


class _One:
    """A registry of one metric."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0
