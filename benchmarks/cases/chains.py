"""Routers in a chain: the cost of each further hop, compared with one router and with chains of floors."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks import load
from benchmarks.cases.messages import pick
from benchmarks.cases.streams import GROWTH_BUDGET_MIB, STREAM_BYTES, Peak
from benchmarks.load import Load
from benchmarks.report import Row, row
from benchmarks.subjects import Site, Subject

LONGEST = 3
LOADS = {
    "small": Load(count=200_000),
    "settled": Load(count=200_000, is_settled=True),
    "large": Load(count=40_000, size=10_000),
    "round-trip": Load(count=6_000, inflight=1),
}
# (load, figure) -> the limit for two routers as a multiple of one, and of two floors.
OF_ONE = {("small", "cpu_us"): 2.4, ("small", "rate"): 0.55, ("round-trip", "p50_us"): 1.9}
OF_FLOORS = {("small", "cpu_us"): 1.0, ("large", "cpu_us"): 1.1, ("round-trip", "p50_us"): 1.1}
FIGURES = {"cpu_us": ("CPU per message", "µs"), "rate": ("rate", "msg/s"), "p50_us": ("median", "µs")}

Figures = list[dict[str, Any]]


def chain(site: Site, runs: int) -> list[Row]:
    """Two and three routers in a row against one, and against as many floors: total CPU, rate, round trip.

    The floor's column has one router, or that many floors in a row.
    """
    rows: list[Row] = []
    with ExitStack() as stack:
        # The single router has no neighbours, as usual.
        routers: list[tuple[Subject, ...]] = [(stack.enter_context(site.router()),)]
        routers += [stack.enter_context(site.chain(count)) for count in range(2, LONGEST + 1)]
        floors = [stack.enter_context(site.floors(count)) for count in range(1, LONGEST + 1)]
        for name, what in LOADS.items():
            mine, base = _in_turn(what, runs, routers, floors)
            figures = ("p50_us",) if what.inflight else ("rate", "cpu_us")
            for figure in figures:
                for count in range(2, LONGEST + 1):
                    rows += _compare(name, figure, count, mine[count - 1], mine[0], base[count - 1])
            rows += _lost(name, what, mine)
    return rows + _stream(site)


def _in_turn(
    what: Load, runs: int, routers: Sequence[Sequence[Subject]], floors: Sequence[Sequence[Subject]]
) -> tuple[list[Figures], list[Figures]]:
    """Returns the figures of each chain of routers, and of floors, by their runs."""
    mine: list[Figures] = [[] for _ in routers]
    base: list[Figures] = [[] for _ in floors]
    for _ in range(runs):
        for chains, kept in ((routers, mine), (floors, base)):
            for subjects, figures in zip(chains, kept, strict=True):
                figures.append(load.run(what, *subjects))
    return mine, base


def _compare(name: str, figure: str, count: int, mine: Figures, one: Figures, floors: Figures) -> list[Row]:
    text, unit = FIGURES[figure]
    found = []
    for other, base, budgets in (("one", one, OF_ONE), (f"{count} floors", floors, OF_FLOORS)):
        found.append(
            row(
                "chain",
                f"{name}, {text}, {count} / {other}",
                unit,
                router=pick(mine, figure),
                floor=pick(base, figure),
                better="more" if figure == "rate" else "less",
                budget=budgets.get((name, figure)) if count == 2 else None,
            )
        )
    return found


def _lost(name: str, what: Load, mine: Sequence[Figures]) -> list[Row]:
    missing = [what.sent - figures["received"] for runs in mine for figures in runs]
    return [row("chain", f"{name}, not received", "messages", router=missing, budget=0)] if any(missing) else []


def _stream(site: Site) -> list[Row]:
    """Sends one message of 1 GiB over the longest chain, and measures how much each router grows."""
    with site.chain(LONGEST) as subjects, ExitStack() as stack:
        load.run(Load(count=1_000), *subjects)
        before = [subject.process.resident_kb() for subject in subjects]
        peaks = [stack.enter_context(Peak(subject.process)) for subject in subjects]
        seconds = load.run(Load(count=1, size=STREAM_BYTES, is_streamed=True), *subjects)["seconds"]
        growth = [(peak.kb - kb) / 1024 for peak, kb in zip(peaks, before, strict=True)]
    return [
        row("chain", f"largest growth by 1 GiB over {LONGEST}", "MiB", router=[max(growth)], budget=GROWTH_BUDGET_MIB),
        row("chain", f"1 GiB over {LONGEST}", "MiB/s", router=[STREAM_BYTES / 2**20 / seconds], better="more"),
    ]
