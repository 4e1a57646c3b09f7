"""Checks that memory does not grow: a message larger than its permitted memory, and a receiver that does not read."""

import threading

from benchmarks import load
from benchmarks.load import Load
from benchmarks.processes import Process
from benchmarks.report import Row, row
from benchmarks.subjects import Site

STREAM_BYTES = 1 << 30
GROWTH_BUDGET_MIB = 32.0
SLOWED_BUDGET = 1.1
SAMPLE_S = 0.05


class Peak:
    """The largest resident memory while the body ran."""

    def __init__(self, process: Process) -> None:
        self.kb = process.resident_kb()
        self._process = process
        self._is_over = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while not self._is_over.wait(SAMPLE_S):
            self.kb = max(self.kb, self._process.resident_kb())

    def __enter__(self) -> "Peak":
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._sampler.join()


def stream(site: Site, runs: int) -> list[Row]:
    """One message of 1 GiB: how much the router grows while it passes."""
    with site.router() as router:
        load.run(Load(count=1_000), router)
        before = router.process.resident_kb()
        with Peak(router.process) as peak:
            figures = load.run(Load(count=1, size=STREAM_BYTES, is_streamed=True), router)
    growth_mib = (peak.kb - before) / 1024
    return [
        row("stream", "growth by 1 GiB", "MiB", router=[growth_mib], budget=GROWTH_BUDGET_MIB),
        row("stream", "rate", "MiB/s", router=[STREAM_BYTES / 2**20 / figures["seconds"]], better="more"),
    ]


def stalled_receiver(site: Site, runs: int) -> list[Row]:
    """One address, while a receiver of another address, which is sent 10 kB messages, does not read.

    The floor's column has a router without that receiver.
    """
    what = Load(count=200_000)
    other = ["--address", "bench.stalled", "--size", "10000"]
    with site.router() as router, site.router() as undisturbed, Peak(router.process) as peak:
        before = peak.kb
        with (
            load.client("recv", router, *other, "--credit", "100000", "--stall") as stalled,
            load.client("send", router, *other, "--count", "200000") as blocked,
        ):
            load.wait_until_ready(stalled)
            load.wait_until_ready(blocked)
            beside, alone = [], []
            for _ in range(runs):
                beside.append(load.run(what, router))
                alone.append(load.run(what, undisturbed))
            # It still runs, so it ran all the time.
            is_blocked = blocked.poll() is None
    if not is_blocked:
        raise load.LoadError("the sender to the stalled receiver ended: nothing was held up")
    slowed = row(
        "stalled-receiver",
        "time per message elsewhere",
        "µs",
        router=[1e6 / figures["rate"] for figures in beside],
        floor=[1e6 / figures["rate"] for figures in alone],
        budget=SLOWED_BUDGET,
    )
    growth = row("stalled-receiver", "growth", "MiB", router=[(peak.kb - before) / 1024])
    return [slowed, growth]
