"""Management: the cost of a QUERY of ten thousand entities, and how long it delays messages."""

import dataclasses
import json
import multiprocessing
import os
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from auth.secrets import Secret
from benchmarks import load
from benchmarks.crowd import Crowd
from benchmarks.load import Load
from benchmarks.report import Row, row
from benchmarks.subjects import USER, Site, Subject
from router.management.client import PAGE_ROWS, ManagementClient
from router.tools.connection_options import ConnectionOptions
from router.tools.transport import SocketTransport

ENTITIES = 10_000
KINDS = ("router.link", "router.address", "connection")
TYPE_PREFIX = "org.apache.qpid.dispatch."
PAGE_BUDGET_MS = 50.0
HOLD_BUDGET_MS = 5.0
PATIENCE_S = 60.0
ROUND_TRIPS = Load(count=1000, inflight=1)


def paging(site: Site, runs: int) -> list[Row]:
    """10,000 links, addresses and connections in pages of 500: loop time per page, and the longest loop turn.

    The router runs on a watched loop (benchmarks/watched.py). Times are processor time of its thread. The time per page
    includes the cost of 10,000 idle connections. Loop turns are measured while messages of 100 B circulate, one in
    flight.
    """
    accounts = _Accounts(site.folder / "accounts")
    command = [sys.executable, "-m", "benchmarks.watched", str(accounts.path)]
    watched = dataclasses.replace(site, router_command=command)
    rows: list[Row] = []
    with (
        watched.router() as router,
        Crowd.connect(router, ENTITIES, source="crowd.{number}"),
        # A separate process: decoding pages would delay the crowd's heartbeats by the interpreter's lock.
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        alone = load.run(ROUND_TRIPS, router)
        for kind in KINDS:
            cost, held, trips = [], [], []
            for _ in range(runs):
                accounts.begin(router)
                pool.submit(ask_for_pages, router.port, router.password, kind).result(PATIENCE_S)
                cost.append(accounts.take(router)["total_cpu_ms"] / (ENTITIES / PAGE_ROWS))
                accounts.begin(router)
                asking = pool.submit(ask_for_pages, router.port, router.password, kind)
                while not asking.done():
                    trips.append(load.run(ROUND_TRIPS, router)["p99_us"] / 1000)
                asking.result()
                held.append(accounts.take(router)["cpu_ms"])
            rows += [
                row("paging", f"{kind}: loop time per page", "ms", router=cost, budget=PAGE_BUDGET_MS),
                row("paging", f"{kind}: longest hold", "ms", router=held, budget=HOLD_BUDGET_MS),
                row("paging", f"{kind}: 99 % round trip meanwhile", "ms", router=trips),
            ]
        rows.append(row("paging", "99 % round trip without a query", "ms", router=[alone["p99_us"] / 1000]))
    return rows


def ask_for_pages(port: int, password: str, kind: str) -> None:
    """Asks for every entity of a kind, page by page. Errors: those of the client; ValueError for too few."""
    options = ConnectionOptions(
        host="127.0.0.1",
        port=port,
        timeout_s=PATIENCE_S,
        mechanisms=("PLAIN",),
        username=USER,
        password=Secret(password),
    )
    with ManagementClient(SocketTransport(options)) as client:
        count = len(client.query(TYPE_PREFIX + kind, count=ENTITIES).rows)
    if count != ENTITIES:
        raise ValueError(f"{count} entities of {kind} instead of {ENTITIES}")


class _Accounts:
    """The accounts of the watched loop."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def begin(self, subject: Subject) -> None:
        os.kill(subject.process.pid, signal.SIGUSR1)

    def take(self, subject: Subject) -> dict[str, Any]:
        before = len(self.path.read_text().splitlines())
        os.kill(subject.process.pid, signal.SIGUSR2)
        deadline = time.monotonic() + PATIENCE_S
        while len(lines := self.path.read_text().splitlines()) == before:
            if time.monotonic() > deadline:
                raise TimeoutError("the watched loop gives no account")
            time.sleep(0.01)
        found: dict[str, Any] = json.loads(lines[-1])
        return found
