"""Brokers behind the router: thousands of link routes and auto links, and the cost of a message on a routed link.

The floor is the broker: it accepts any link, and sends messages to its newest receiver.
"""

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from benchmarks import load
from benchmarks.load import Load
from benchmarks.report import Row, row
from benchmarks.subjects import Site, Subject
from policy.addressing.patterns import configured_tokens
from router.connection.auto_links import Place
from router.connection.link_routes import LinkRoute, LinkRoutes

START_BUDGET_S = 3.0
LOOK_UP_BUDGET_US = 20.0
CPU_BUDGET = 0.9
# The number of link routes, and of auto links.
COUNT = 5_000
LOOK_UPS = 200_000
MESSAGES = 200_000

BROKER = """
connector {{
    name: broker
    host: 127.0.0.1
    port: {port}
    role: route-container
    saslMechanisms: ANONYMOUS
}}
"""
ROUTE = "linkRoute {{\n    {kind}: {pattern}\n    direction: in\n    connection: broker\n}}\n"
AUTO_LINK = "autoLink {{\n    address: {address}\n    direction: out\n    connection: broker\n}}\n"
ROUTED, QUEUE = "bench.routed", "bench.queue"


def routes(site: Site, runs: int) -> list[Row]:
    """5,000 link routes and as many auto links: start-up, look-up, and CPU beside message routing."""
    return [
        row("routes", f"{COUNT:,} link routes and auto links, until Operational", "s",
            router=[_start_up_s(site) for _ in range(runs)], budget=START_BUDGET_S),
        row("routes", f"look-up among {COUNT:,} patterns", "µs",
            router=[_look_up_us() for _ in range(runs)], budget=LOOK_UP_BUDGET_US),
        *_cpu(site, runs),
    ]  # fmt: skip


def patterns(count: int) -> Iterator[tuple[str, str]]:
    """Yields (attribute, text): most are prefixes, some have wildcards."""
    for number in range(count):
        if number % 10:
            yield "prefix", f"site{number % 50}.shop{number}.orders"
        else:
            yield "pattern", f"site{number % 50}.*.shop{number}.#"


def _start_up_s(site: Site) -> float:
    text = BROKER.format(port=1)  # no process listens on this port
    text += "".join(ROUTE.format(kind=kind, pattern=pattern) for kind, pattern in patterns(COUNT))
    text += "".join(AUTO_LINK.format(address=f"queue{number}") for number in range(COUNT))
    with site.router(more=text) as router:
        return router.ready_after_s


def _look_up_us() -> float:
    """Looks up an address of a route, a similar one, and one without a route."""
    table = SimpleNamespace(addresses={}, make=lambda _key, _treatment: SimpleNamespace(holders=0))
    core: Any = SimpleNamespace(work=None, table=table)  # the parts that routes without a container need
    link_routes = LinkRoutes(core=core, emit=lambda _effect: None)
    for number, (kind, text) in enumerate(patterns(COUNT)):
        tokens = configured_tokens(*((text, None) if kind == "prefix" else (None, text)))
        link_routes.add(
            LinkRoute(name=str(number), pattern="/".join(tokens), key="", direction="send",
                      place=Place(kind="connection", text="broker"))
        )  # fmt: skip
    names = ("site7.shop4907.orders.new", "site7.shop4907.bills", "site40.any.shop4990.x.y", "elsewhere.orders")
    assert [link_routes.find(name, "send") is not None for name in names] == [True, False, True, False]
    begun = time.perf_counter()
    for _ in range(LOOK_UPS // len(names)):
        for name in names:
            link_routes.find(name, "send")
    return (time.perf_counter() - begun) / LOOK_UPS * 1e6


def _cpu(site: Site, runs: int) -> list[Row]:
    """Measures the router's CPU for messages to the broker: by the link route, and by the auto link.

    The floor's column has the auto link.
    """
    routed: list[float] = []
    queued: list[float] = []
    with site.floor() as broker:
        text = BROKER.format(port=broker.port) + ROUTE.format(kind="prefix", pattern=ROUTED)
        with site.router(more=text + AUTO_LINK.format(address=QUEUE)) as router:
            router.process.wait_for("Link Route Activated")
            router.process.wait_for("Auto Link Activated")
            for _ in range(runs):
                routed.append(_cpu_us(ROUTED, router, broker))
                queued.append(_cpu_us(QUEUE, router, broker))
    return [row("routes", "CPU per message beside an auto link", "µs", router=routed, floor=queued, budget=CPU_BUDGET)]


def _cpu_us(address: str, router: Subject, broker: Subject) -> float:
    figures = load.run(Load(count=MESSAGES, address=address), router, receiving_from=broker)
    assert figures["received"] == MESSAGES
    return float(figures["cpu_us"])
