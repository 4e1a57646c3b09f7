"""Logins at remote authentication services: their turns, their destinations and their time limits.

They run on the event loop: a login waits most of its time, and a thread for each would cost more than its bytes do.
Source: docs/spec/policy-and-auth.md §9.2, §9.5.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from auth import sasl_frames
from auth.relay import Voucher
from auth.tls import TlsProfileError
from router.connection.service import Asker, ServiceConnection, ServiceTerms
from router.control.server import service_port
from router.faults import fault_text
from router.io.dialing import reach, why_not
from router.io.workers import turn_of

# Maximum number of running logins; more logins wait. This many descriptors are reserved for them. Attack: clients begin
# logins and do not continue them. Each one holds a socket here and one at the service.
MAX_AT_ONCE: Final = 128
# The same maximum for one host, so that no host takes all places.
MAX_OF_HOST: Final = 32

# Seconds that a running login keeps its place when another host's login waits. Attack: a few hosts hold all places with
# logins that they do not continue.
GRACE_S: Final = 2.0

# Seconds from the socket to the service's mechanisms. Then the next service is tried.
REACH_LIMIT_S: Final = 5.0
# Stops a service that takes what the client says and never answers.
ANSWER_LIMIT_S: Final = 15.0
# Stops a client that never answers, and a service that challenges forever. Listeners may allow their peers more or
# less.
LOGIN_LIMIT_S: Final = 60.0
# Seconds for which a service that could not be reached is tried last.
AVOIDED_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One address of a service. port: a number or a service name"""

    host: str
    port: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Service:
    """The addresses of one authServicePlugin. Addresses that could not be reached recently come last.

    terms  (place) → what the connection to it needs
    """

    def __init__(self, places: Sequence[Place], terms: Callable[[Place], ServiceTerms]) -> None:
        self.places = tuple(places)
        self.terms = terms
        self._avoided_until: dict[Place, float] = {}

    def in_order(self, now: float) -> list[Place]:
        return sorted(self.places, key=lambda place: self._avoided_until.get(place, 0.0) > now)

    def avoid(self, place: Place, now: float) -> None:
        self._avoided_until[place] = now + AVOIDED_S


class Relays:
    """The running logins, and the logins that wait for a place. Hosts take turns.

    most  maximum number of running logins
    """

    def __init__(self, most: int = MAX_AT_ONCE) -> None:
        self.most = most
        self._running: dict[object, dict[Login, None]] = {}  # by host, the oldest first
        self._waiting: dict[object, dict[Login, None]] = {}  # by host; the host whose turn is next is first
        self._count = 0
        self._look: asyncio.TimerHandle | None = None

    @property
    def count(self) -> int:
        """The number of running logins."""
        return self._count

    def enter(self, login: "Login") -> None:
        """Begins the login at once, or when there is room for it."""
        self._waiting.setdefault(login.host, {})[login] = None
        self._run_next()

    def leave(self, login: "Login") -> None:
        """Removes a login that is complete or given up. May be called several times."""
        if _take_out(self._running, login):
            self._count -= 1
        else:
            _take_out(self._waiting, login)
        self._run_next()

    def _run_next(self) -> None:
        while self._count < self.most and (host := self._next_host()) is not None:
            of_host = self._waiting.pop(host)
            login = next(iter(of_host))
            del of_host[login]
            if of_host:  # its next turn comes after those of all others
                self._waiting[host] = of_host
            self._running.setdefault(host, {})[login] = None
            self._count += 1
            login.run()
        if self._waiting and self._look is None:
            self._look = asyncio.get_running_loop().call_later(GRACE_S, self._make_room)

    def _next_host(self) -> object | None:
        """Returns the host whose turn is next, among those that may have one more running login."""
        return next((host for host in self._waiting if self._number(host) < MAX_OF_HOST), None)

    def _number(self, host: object) -> int:
        return len(self._running.get(host, ()))

    def _make_room(self) -> None:
        """Ends the oldest logins of the host that has most, after their time, so that another host's login may run."""
        self._look = None
        while self._count >= self.most and (host := self._next_host()) is not None:
            longest = max(self._running.values(), key=len)
            oldest = next(iter(longest))
            if len(longest) <= self._number(host) + 1 or oldest.age_s < GRACE_S:
                break
            oldest.make_way()
        self._run_next()


def _take_out(table: "dict[object, dict[Login, None]]", login: "Login") -> bool:
    of_host = table.get(login.host, {})
    if login not in of_host:
        return False
    del of_host[login]
    if not of_host:
        del table[login.host]
    return True


class Login:
    """One login (router.connection.relay.Relay), and the asker of its connections to services."""

    def __init__(self, relays: Relays, service: Service, asker: Asker, host: str) -> None:
        """host  numeric address of the client"""
        self.host = turn_of(host)
        self._relays = relays
        self._service = service
        self._asker = asker
        self._loop = asyncio.get_running_loop()
        self._began_at = self._loop.time()
        self._deadline = self._loop.call_later(LOGIN_LIMIT_S, self._give_up, "the login took too long")
        self._answer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_over = False
        # About the service that is being tried, or that has been reached.
        self._place: Place | None = None
        self._connection: ServiceConnection | None = None
        self._transport: asyncio.Transport | None = None
        self._reached: asyncio.Future[str | None] | None = None  # None: its mechanisms have come; else the reason

    @property
    def age_s(self) -> float:
        """Seconds since it began to run."""
        return self._loop.time() - self._began_at

    # Relay

    def send(self, frame: sasl_frames.Init | sasl_frames.Response) -> None:
        if self._connection is not None:
            self._connection.send(frame)
            if not self._is_over:
                self._answer = self._loop.call_later(ANSWER_LIMIT_S, self._answer_is_late)

    def close(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._deadline.cancel()
        self._stop_waiting()
        if self._task is not None:
            self._task.cancel()
        self._drop()
        self._relays.leave(self)

    def make_way(self) -> None:
        """Gives up, so that another host's login can take its place."""
        self._give_up("other hosts' logins wait, and this host has the most")

    def _give_up(self, why: str) -> None:
        self._end(lambda: self._asker.failed(why))

    def _answer_is_late(self) -> None:
        self.failed("it did not answer in time")

    def _stop_waiting(self) -> None:
        if self._answer is not None:
            self._answer.cancel()
            self._answer = None

    def _drop(self) -> None:
        """Closes the connection to the service."""
        if self._connection is not None:
            self._connection.stop()
        if self._transport is not None:
            # At once, without a Close: the service has nothing to read first.
            self._transport.abort()
        self._connection = self._transport = None

    # Services

    def run(self) -> None:
        """Begins the login when its turn has come."""
        self._began_at = self._loop.time()
        self._task = self._loop.create_task(self._try_all())

    async def _try_all(self) -> None:
        why = "no service is configured"
        for place in self._service.in_order(self._loop.time()):
            self._place = place
            try:
                async with asyncio.timeout(REACH_LIMIT_S):
                    failure = await self._try(place)
            except TimeoutError as error:
                late = why_not(error) if error.errno is not None else "no mechanisms in time"
                failure = f"proton:io {late} - disconnected {place}"
            except (OSError, OverflowError, ValueError) as error:
                failure = f"proton:io {why_not(error)} - disconnected {place}"
            if failure is None:
                return
            self._drop()
            self._service.avoid(place, self._loop.time())
            why = failure
        self._give_up(why)

    async def _try(self, place: Place) -> str | None:
        """Connects and waits for the mechanisms. Returns None if they have come, else the reason why not."""
        self._reached = self._loop.create_future()
        connection = ServiceConnection(self._service.terms(place), self, self._write)
        await reach(place.host, service_port(place.port), lambda: _Socket(self, connection))
        return await self._reached

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def connected(self, connection: ServiceConnection, transport: asyncio.Transport) -> None:
        if self._is_over:
            transport.abort()
            return
        self._connection, self._transport = connection, transport
        try:
            connection.start()
        except TlsProfileError as error:
            self.failed(f"Cannot initialise SSL: {error}")
        except Exception as error:  # for example a host that cannot be a name in a certificate
            self.failed(f"Cannot initialise SSL: {fault_text(error)}")

    # Asker

    def offered(self, names: tuple[str, ...]) -> None:
        if self._reached is not None and not self._reached.done():
            self._reached.set_result(None)
        if not self._is_over:
            self._asker.offered(names)

    def challenged(self, data: bytes) -> None:
        self._stop_waiting()
        if not self._is_over:
            self._asker.challenged(data)

    def refused(self, code: int) -> None:
        if not self._is_early("it refused before it offered anything"):
            self._end(lambda: self._asker.refused(code))

    def vouched(self, voucher: Voucher) -> None:
        if not self._is_early("it vouched for nobody"):
            self._end(lambda: self._asker.vouched(voucher))

    def failed(self, why: str) -> None:
        why = f"{why} ({self._place})"
        if not self._is_early(why):
            if self._place is not None:
                self._service.avoid(self._place, self._loop.time())
            self._give_up(why)

    def _is_early(self, why: str) -> bool:
        """Returns True if this came instead of the mechanisms. Then the next service is tried."""
        if self._reached is None or self._reached.done():
            return False
        self._reached.set_result(why)
        return True

    def _end(self, tell: Callable[[], None]) -> None:
        if not self._is_over:
            self.close()
            tell()


class _Socket(asyncio.Protocol):
    """The asyncio protocol of a connection to a service."""

    def __init__(self, login: Login, connection: ServiceConnection) -> None:
        self._login = login
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._login.connected(self._connection, cast(asyncio.Transport, transport))  # uvloop has another base class

    def data_received(self, data: bytes) -> None:
        self._connection.receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.lost(why_not(exc) if exc is not None else "it closed the connection")
