"""Messages: rate, CPU and round trips, between one sender and one receiver, and between many."""

from contextlib import ExitStack
from typing import Any

from benchmarks import load
from benchmarks.crowd import Crowd
from benchmarks.load import Load
from benchmarks.report import Row, row
from benchmarks.subjects import Site, Subject

Figures = dict[str, Any]

PAIRS = 100
FAN_OUT = 10


def alternate(site: Site, runs: int, ours: Load, base: Load) -> tuple[list[Figures], list[Figures]]:
    """Runs `ours` on the router and `base` on the floor alternately, so that both have the same noise."""
    mine: list[Figures] = []
    floors: list[Figures] = []
    with site.router() as router, site.floor() as floor:
        for _ in range(runs):
            mine.append(load.run(ours, router))
            floors.append(load.run(base, floor))
    return mine, floors


def pick(runs: list[Figures], key: str, *, divisor: float = 1) -> list[float]:
    return [figures[key] / divisor for figures in runs]


def throughput(
    name: str, site: Site, runs: int, what: Load, *, cpu_budget: float | None, rate_budget: float | None
) -> list[Row]:
    mine, base = alternate(site, runs, what, what)
    rates, base_rates = pick(mine, "rate"), pick(base, "rate")
    rows = [
        row(name, "rate", "msg/s", router=rates, floor=base_rates, better="more", budget=rate_budget),
        row(name, "CPU per message", "µs", router=pick(mine, "cpu_us"), floor=pick(base, "cpu_us"), budget=cpu_budget),
    ]
    missing = [what.sent - figures["received"] for figures in mine]
    if what.is_settled or any(missing):
        rows.append(row(name, "not received", "messages", router=missing, budget=0))
    return rows


def small(site: Site, runs: int) -> list[Row]:
    """100 B, unsettled: every message gets an outcome."""
    return throughput("small", site, runs, Load(count=300_000), cpu_budget=2.0, rate_budget=0.5)


def settled(site: Site, runs: int) -> list[Row]:
    """100 B, presettled: no outcomes; counts the messages that did not arrive."""
    what = Load(count=300_000, is_settled=True)
    return throughput("settled", site, runs, what, cpu_budget=None, rate_budget=None)


def large(site: Site, runs: int) -> list[Row]:
    """10 kB, unsettled."""
    return throughput("large", site, runs, Load(count=60_000, size=10_000), cpu_budget=1.6, rate_budget=None)


def round_trip(site: Site, runs: int) -> list[Row]:
    """100 B, one in flight: from sending a message to its outcome."""
    what = Load(count=10_000, inflight=1)
    mine, base = alternate(site, runs, what, what)
    return [
        row("round-trip", "median", "µs", router=pick(mine, "p50_us"), floor=pick(base, "p50_us"), budget=1.4),
        row("round-trip", "99 %", "µs", router=pick(mine, "p99_us"), floor=pick(base, "p99_us")),
    ]


def multicast(site: Site, runs: int) -> list[Row]:
    """One sender and ten receivers of every message, by the copy; compared with the floor's one receiver."""
    ours = Load(count=30_000, address="multicast.bench", receivers=FAN_OUT)
    mine, base = alternate(site, runs, ours, Load(count=300_000))
    rates, cpu = pick(mine, "rate", divisor=1 / FAN_OUT), pick(mine, "cpu_us", divisor=FAN_OUT)
    return [
        row("multicast", "rate of copies", "msg/s", router=rates, floor=pick(base, "rate"), better="more"),
        row("multicast", "CPU per copy", "µs", router=cpu, floor=pick(base, "cpu_us")),
    ]


def pairs(site: Site, runs: int) -> list[Row]:
    """100 senders to 100 receivers on 100 addresses; compared with the floor's one pair."""
    ours = Load(count=3_000, senders=PAIRS, receivers=PAIRS, is_distinct=True)
    mine, base = alternate(site, runs, ours, Load(count=300_000))
    return [
        row("pairs", "rate", "msg/s", router=pick(mine, "rate"), floor=pick(base, "rate"), better="more"),
        row("pairs", "CPU per message", "µs", router=pick(mine, "cpu_us"), floor=pick(base, "cpu_us")),
    ]


def idle_1000(site: Site, runs: int) -> list[Row]:
    """The round trip beside 1,000 idle connections, compared with a router without them."""
    return _beside_idle("idle-1000", 1_000, site, runs)


def idle_10000(site: Site, runs: int) -> list[Row]:
    """The round trip beside 10,000 idle connections, compared with a router without them."""
    return _beside_idle("idle-10000", 10_000, site, runs)


def _beside_idle(name: str, count: int, site: Site, runs: int) -> list[Row]:
    """Measures beside idle connections, which send heartbeats. The floor's column has another router without them."""
    what = Load(count=10_000, inflight=1)
    busy: list[Figures] = []
    alone: list[Figures] = []
    with ExitStack() as stack:
        crowded: Subject = stack.enter_context(site.router())
        empty: Subject = stack.enter_context(site.router())
        stack.enter_context(Crowd.connect(crowded, count))
        for _ in range(runs):
            busy.append(load.run(what, crowded))
            alone.append(load.run(what, empty))
    return [
        row(name, "median round trip beside none", "µs", router=pick(busy, "p50_us"), floor=pick(alone, "p50_us")),
        row(name, "99 % round trip beside none", "µs", router=pick(busy, "p99_us"), floor=pick(alone, "p99_us")),
    ]
