"""Small versions of real loads: remote calls, telemetry of many devices, one publisher with a slow subscriber.

The floor has one receiver for all senders. It has no addresses and makes no copies.
"""

from benchmarks import load
from benchmarks.cases.messages import Figures, alternate, pick
from benchmarks.load import Load
from benchmarks.report import Row, row
from benchmarks.subjects import Site

CALLERS = 50
DEVICES = 200
SUBSCRIBERS = 50
# The slow subscriber takes at most 5,000 messages a second.
PAUSE_US = 200


def calls(site: Site, runs: int) -> list[Row]:
    """50 clients, each with one message in flight, as in remote calls: every message needs a read of its own."""
    ours = Load(count=3_000, senders=CALLERS, receivers=CALLERS, inflight=1, is_distinct=True)
    mine, base = alternate(site, runs, ours, Load(count=3_000, senders=CALLERS, inflight=1))
    return [
        row("calls", "rate", "msg/s", router=pick(mine, "rate"), floor=pick(base, "rate"), better="more"),
        row("calls", "CPU per message", "µs", router=pick(mine, "cpu_us"), floor=pick(base, "cpu_us")),
        row("calls", "99 %", "µs", router=pick(mine, "p99_us"), floor=pick(base, "p99_us")),
    ]


def telemetry(site: Site, runs: int) -> list[Row]:
    """200 devices send presettled messages of 200 B to one consumer."""
    what = Load(count=1_500, size=200, senders=DEVICES, is_settled=True)
    mine, base = alternate(site, runs, what, what)
    missing = [what.sent - figures["received"] for figures in mine]
    return [
        row("telemetry", "rate", "msg/s", router=pick(mine, "rate"), floor=pick(base, "rate"), better="more"),
        row("telemetry", "CPU per message", "µs", router=pick(mine, "cpu_us"), floor=pick(base, "cpu_us")),
        row("telemetry", "not received", "messages", router=missing, budget=0),
    ]


def fan_out(site: Site, runs: int) -> list[Row]:
    """One publisher, 50 subscribers, one of which is slow; the floor's column has 50 fast ones."""
    what = Load(count=4_000, address="multicast.bench", receivers=SUBSCRIBERS)
    slow = ("--address", what.address, "--count", str(what.count), "--pause-us", str(PAUSE_US))
    held: list[Figures] = []
    quick: list[Figures] = []
    with site.router() as router:
        for _ in range(runs):
            quick.append(load.run(what, router))
            with load.client("recv", router, *slow) as receiver:
                load.wait_until_ready(receiver)
                held.append(load.run(what, router))
    rates, base_rates = pick(held, "rate"), pick(quick, "rate")
    cpu, base_cpu = pick(held, "cpu_us"), pick(quick, "cpu_us")
    return [
        row("fan-out", "rate beside all quick", "msg/s", router=rates, floor=base_rates, better="more"),
        row("fan-out", "CPU per message beside all quick", "µs", router=cpu, floor=base_cpu),
    ]
