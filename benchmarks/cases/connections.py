"""Connections: the cost of an idle one, the cost of a login, and the time until the first."""

import asyncio
import dataclasses
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from benchmarks import directory, wire
from benchmarks.crowd import Crowd, unverified_context
from benchmarks.report import Row, row
from benchmarks.subjects import HOSTNAME, SLOW_USER, USER, Site, Subject

IDLE_BUDGET_KB = 60.0
START_BUDGET_S = 1.5
SET_UPS = 500
SLOW_SET_UPS = 60
AT_ONCE = 16
ANSWER_TIMEOUT_S = 20.0

ConnectAll = Callable[[Subject, str, int], Coroutine[Any, Any, None]]


def memory(site: Site, runs: int) -> list[Row]:
    """kB per idle connection: only open, with a session and a link, over TLS.

    The growth from 100 connections to 2,100, so that memory needed only once does not count.
    """
    return [
        _memory("open", site, 100, 2_000),
        _memory("with a link", site, 100, 2_000, source="bench"),
        _memory("over TLS", site, 100, 2_000, is_encrypted=True),
    ]


def memory_10000(site: Site, runs: int) -> list[Row]:
    """kB per idle connection, open only: up to 10,000."""
    return [_memory("open", site, 100, 9_900, name="memory-10000")]


def _memory(
    what: str,
    site: Site,
    base: int,
    more: int,
    *,
    is_encrypted: bool = False,
    source: str | None = None,
    name: str = "memory",
) -> Row:
    growth = []
    for subject_of in (site.router, site.floor):
        with (
            subject_of() as subject,
            Crowd.connect(subject, base, is_encrypted=is_encrypted, source=source),
        ):
            before = subject.process.resident_kb()
            with Crowd.connect(subject, more, is_encrypted=is_encrypted, source=source):
                growth.append((subject.process.resident_kb() - before) / more)
    mine, floor = growth
    # The floor keeps a buffer of 64 kB per connection, so a ratio would look too good.
    figure = row(name, f"idle connection, {what}", "kB", router=[mine], budget=IDLE_BUDGET_KB)
    return dataclasses.replace(figure, floor=floor)


def set_up(site: Site, runs: int) -> list[Row]:
    """TCP, TLS 1.3, SASL PLAIN and an Open that policy decides: 500 connections, 16 at a time.

    The password hash is the cheapest possible, so that our own work is measured. The floor does TLS and accepts any
    password.
    """
    mine: list[tuple[float, float]] = []
    base: list[tuple[float, float]] = []
    with site.router() as router, site.floor() as floor:
        for _ in range(runs):
            mine.append(_set_up(router, USER, SET_UPS))
            base.append(_set_up(floor, USER, SET_UPS))
    rates, base_rates = [rate for rate, _ in mine], [rate for rate, _ in base]
    return [
        row("set-up", "rate", "conn/s", router=rates, floor=base_rates, better="more"),
        row("set-up", "CPU per connection", "µs", router=[cpu for _, cpu in mine], floor=[cpu for _, cpu in base]),
    ]


def set_up_argon2(site: Site, runs: int) -> list[Row]:
    """Logins with a password hashed as by qdpasswd: what an operator gets."""
    with site.router() as router:
        slow = dataclasses.replace(router, tls_port=router.slow_tls_port)
        results = [_set_up(slow, SLOW_USER, SLOW_SET_UPS) for _ in range(runs)]
    return [
        row("set-up-argon2", "rate", "conn/s", router=[rate for rate, _ in results], better="more"),
        row("set-up-argon2", "CPU per connection", "µs", router=[cpu for _, cpu in results]),
    ]


def handshakes(site: Site, runs: int) -> list[Row]:
    """Logins in TLS 1.3 per second of processor time: by SCRAM-SHA-256, and by PLAIN with the cheapest hash.

    The certificate is P-256 and no session is resumed. Each connection is opened, decided by policy and closed too.
    """
    scram: list[float] = []
    plain: list[float] = []
    with site.router() as router:
        for _ in range(runs):
            scram.append(_set_up(router, USER, SET_UPS, _connect_all_by_scram)[1])
            plain.append(_set_up(router, USER, SET_UPS)[1])
    per_core = [[1e6 / cpu for cpu in each] for each in (scram, plain)]
    return [
        row("handshakes", "SCRAM-SHA-256, per core", "conn/s", router=per_core[0], better="more"),
        row("handshakes", "PLAIN, per core", "conn/s", router=per_core[1], better="more"),
    ]


def cached_ldap(site: Site, runs: int) -> list[Row]:
    """PLAIN logins in TLS 1.3 of a user whose LDAP directory has answered before: its answer is remembered.

    Skipped if slapd is not installed.
    """
    if directory.program() is None:
        print("cached-ldap: skipped, slapd is not installed", file=sys.stderr)
        return []
    with (
        directory.running(site.folder / "directory", user=USER, password=site.password) as url,
        site.router(url) as router,
    ):
        asking = dataclasses.replace(router, tls_port=router.directory_tls_port)
        _set_up(asking, USER, AT_ONCE)  # the directory is asked now, and not later
        results = [_set_up(asking, USER, SET_UPS) for _ in range(runs)]
    return [
        row("cached-ldap", "per core", "conn/s", router=[1e6 / cpu for _, cpu in results], better="more"),
        row("cached-ldap", "CPU per login", "µs", router=[cpu for _, cpu in results]),
    ]


def _set_up(subject: Subject, user: str, count: int, connect_all: ConnectAll | None = None) -> tuple[float, float]:
    """Returns (connections/s, CPU µs of the subject per connection).

    Each connection is closed as soon as it is open.
    """
    before, started = subject.process.cpu_seconds(), time.monotonic()
    asyncio.run((connect_all or _connect_all)(subject, user, count))
    seconds = time.monotonic() - started
    return count / seconds, (subject.process.cpu_seconds() - before) / count * 1e6


async def _connect_all_by_scram(subject: Subject, user: str, count: int) -> None:
    context = unverified_context()
    login = wire.ScramLogin(user=user, password=subject.password, hostname=HOSTNAME)
    waiting = iter(range(count))

    async def read(reader: asyncio.StreamReader) -> bytes:
        if not (data := await reader.read(4096)):
            raise wire.RefusedError("the peer closed the connection")
        return data

    async def worker() -> None:
        for _ in waiting:
            reader, writer = await asyncio.open_connection("127.0.0.1", subject.tls_port, ssl=context)
            init, first = login.begin()
            writer.write(init)
            received = b""
            while (challenge := wire.challenge_in(received)) is None:
                received += await read(reader)
            writer.write(login.answer(first, challenge))
            received = b""
            while wire.challenge_in(received) is None:
                received += await read(reader)
            writer.write(login.confirm())
            received = b""
            while not wire.is_accepted(received):
                received += await read(reader)
            writer.write(login.end())
            admission = wire.Admission(has_link=False)
            while not admission.receive(await reader.read(4096)):
                pass
            writer.write(wire.close())
            writer.transport.abort()

    await asyncio.wait_for(asyncio.gather(*(worker() for _ in range(AT_ONCE))), ANSWER_TIMEOUT_S * 3)


async def _connect_all(subject: Subject, user: str, count: int) -> None:
    context = unverified_context()
    login = wire.login(user=user, password=subject.password, hostname=HOSTNAME)
    waiting = iter(range(count))

    async def worker() -> None:
        for _ in waiting:
            reader, writer = await asyncio.open_connection("127.0.0.1", subject.tls_port, ssl=context)
            writer.write(login)
            admission = wire.Admission(has_link=False)
            while not admission.receive(await reader.read(4096)):
                pass
            writer.write(wire.close())
            writer.transport.abort()

    await asyncio.wait_for(asyncio.gather(*(worker() for _ in range(AT_ONCE))), ANSWER_TIMEOUT_S * 3)


def start_up(site: Site, runs: int) -> list[Row]:
    """Time until `Operational`, with policy and users loaded; the floor: until it listens."""
    mine: list[float] = []
    base: list[float] = []
    for _ in range(runs):
        with site.router() as router:
            mine.append(router.ready_after_s)
        with site.floor() as floor:
            base.append(floor.ready_after_s)
    return [
        row("start-up", "until Operational", "s", router=mine, budget=START_BUDGET_S),
        row("start-up", "of the floor", "s", router=base),
    ]
