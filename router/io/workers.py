"""Blocking work outside the event loop: verifies passwords in threads.

The hosts take turns, one login each. Within a host, the first login comes first. The numbers of threads and of waiting
logins are limited, for each host and in all. A login beyond a limit is refused, and may be tried again. A host is an
IPv4 address or an IPv6 /64, as for bans (policy.failures).
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Final

from auth.credentials import Answer, VerifyRequest, unavailable
from policy.failures import counted_as
from router.io.tally import Tally

# Attack: one host fills the queue so that the logins of all others are refused, and fills the memory: each entry
# contains one password.
MAX_OF_HOST: Final = 512
# The same from many hosts. If it is full, the newest login of the host with the most logins is refused.
MAX_IN_ALL: Final = 2048


class Verification:
    """A login that waits for its verification, or is being verified."""

    __slots__ = ("begins", "done", "owner", "request")

    def __init__(
        self,
        owner: "_Host",
        request: VerifyRequest,
        begins: Callable[[], bool],
        done: Callable[[Answer], None],
    ) -> None:
        self.owner = owner
        self.request = request
        self.begins = begins
        self.done = done


class _Host:
    """The logins of one host.

    waiting  in the order of arrival
    running  the number of threads that work for it, including those for logins that were given up meanwhile
    """

    __slots__ = ("key", "running", "waiting")

    def __init__(self, key: object) -> None:
        self.key = key
        self.waiting: dict[Verification, None] = {}
        self.running = 0

    @property
    def count(self) -> int:
        return len(self.waiting) + self.running


class Threads:
    """Threads that start when there is work. The end of the process does not wait for them.

    Threads of concurrent.futures would delay it, for example until a directory answers.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._threads: list[Thread] = []
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def submit(self, task: Callable[[], None], running: int) -> None:
        """Runs a task in a thread.

        running  tasks under way, including this one; at most `most`. A task must not raise
        """
        if running > len(self._threads) < self._most:
            self._threads.append(Thread(target=self._work, name=f"{self._name}_{len(self._threads)}", daemon=True))
            self._threads[-1].start()
        self._tasks.put(task)

    def close(self) -> None:
        """Ends the threads after their current tasks."""
        for _ in self._threads:
            self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()


class Workers:
    """Runs a verifier in threads and calls back on the loop, always after `submit` has returned."""

    def __init__(
        self,
        verify: Callable[[VerifyRequest], Answer],
        on_error: Callable[[str], None],
        *,
        threads: int,
        recall: Callable[[VerifyRequest], Answer | None] = lambda _request: None,
    ) -> None:
        """Sets up the threads.

        threads  of the pool, at least 2
        recall   returns an answer that is available in microseconds, without waiting; None: call `verify`
        """
        self._verify = verify
        self._recall = recall
        self._on_error = on_error
        self._threads = threads
        # Attack: one host logs in without end. It never has all threads, so another host's login begins at once.
        self._threads_of_host = threads - 1
        self._pool = Threads(threads, "verifier")
        self.tally = Tally()
        self._hosts: dict[object, _Host] = {}  # hosts with logins that wait or run
        self._turns: dict[_Host, None] = {}  # hosts with waiting logins, the next turn first
        self._running = 0
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """The number of logins that wait for their turn."""
        return self._waiting

    @property
    def running(self) -> int:
        return self._running

    def submit(
        self, request: VerifyRequest, host: str, begins: Callable[[], bool], done: Callable[[Answer], None]
    ) -> Callable[[], None]:
        """Verifies a request in its host's turn.

        host     numeric address of the peer
        begins   called when the turn has come. Returns True if the answer is still wanted. If not, `done` is not
                 called. Must not raise
        done     gets the answer
        Returns  a function that gives the request up: it leaves the queue at once and `done` is not called. A request
                 that is being verified is finished, and `done` called, all the same.
        """
        if (answer := self._recalled(request)) is not None:
            if not begins():
                return lambda: None
            self.tally.take(answer, 0.0)
            return asyncio.get_running_loop().call_soon(done, answer).cancel
        key = turn_of(host)
        owner = self._hosts.get(key) or _Host(key)
        verification = Verification(owner, request, begins, done)
        if owner.count >= MAX_OF_HOST:
            self._refuse(verification, f"{MAX_OF_HOST} logins of this host wait already")
            return lambda: None
        if self._waiting + self._running >= MAX_IN_ALL:
            longest = max(self._turns, key=lambda each: len(each.waiting))
            if len(longest.waiting) <= len(owner.waiting) + 1:
                self._refuse(verification, f"{MAX_IN_ALL} logins wait already")
                return lambda: None
            newest = next(reversed(longest.waiting))
            self._give_up(newest)
            self._refuse(newest, f"{MAX_IN_ALL} logins wait, the most of this host")
        self._hosts[key] = owner
        owner.waiting[verification] = None
        self._turns.setdefault(owner)
        self._waiting += 1
        self._begin_next()
        return lambda: self._give_up(verification)

    def close(self) -> None:
        """Drops all waiting logins, and ends the threads."""
        self._turns.clear()
        self._pool.close()

    def _recalled(self, request: VerifyRequest) -> Answer | None:
        """Returns an answer that is available at once.

        Passing a request to a thread and back takes longer than everything else for SCRAM.
        """
        try:
            return self._recall(request)
        except Exception:  # `verify` reports the error
            return None

    def _refuse(self, verification: Verification, why: str) -> None:
        answer = unavailable(why)
        self.tally.take(answer, 0.0)
        asyncio.get_running_loop().call_soon(verification.done, answer)

    def _give_up(self, verification: Verification) -> None:
        owner = verification.owner
        if verification in owner.waiting:
            self._take(owner, verification)
            self._forget_idle(owner)

    def _take(self, owner: _Host, verification: Verification) -> None:
        """Removes a login from the queue."""
        del owner.waiting[verification]
        self._waiting -= 1
        if not owner.waiting:
            self._turns.pop(owner, None)

    def _forget_idle(self, owner: _Host) -> None:
        if not owner.count:
            self._hosts.pop(owner.key, None)

    def _begin_next(self) -> None:
        """Gives work to free threads."""
        while self._running < self._threads:
            owner = next((each for each in self._turns if each.running < self._threads_of_host), None)
            if owner is None:
                return
            verification = next(iter(owner.waiting))
            self._take(owner, verification)
            if owner.waiting:  # its next turn comes after those of all other hosts
                del self._turns[owner]
                self._turns[owner] = None
            if not verification.begins():
                self._forget_idle(owner)
                # A banned host may have hundreds of logins to decline: one in each pass of the loop, so that others do
                # not wait.
                asyncio.get_running_loop().call_soon(self._begin_next)
                return
            self._run(owner, verification)

    def _run(self, owner: _Host, verification: Verification) -> None:
        loop = asyncio.get_running_loop()
        self._running += 1
        owner.running += 1

        def verify() -> None:
            answer: Answer = unavailable("it failed")
            fault = ""
            began_at = time.monotonic()
            try:
                answer = self._verify(verification.request)
            except BaseException as error:
                # The text may contain the user's input. The class is enough to investigate further.
                fault = f"the verifier failed with {type(error).__name__}"
            with suppress(RuntimeError):  # the loop is closed, because the router has ended
                loop.call_soon_threadsafe(conclude, answer, fault, time.monotonic() - began_at)

        def conclude(answer: Answer, fault: str, seconds: float) -> None:
            self.tally.take(answer, seconds)
            self._running -= 1
            owner.running -= 1
            self._forget_idle(owner)
            try:
                if fault:
                    self._on_error(fault)
                verification.done(answer)
            finally:
                self._begin_next()

        self._pool.submit(verify, self._running)


def turn_of(host: str) -> object:
    """Returns the key of this numeric address's turns: logins of one IPv4 address or IPv6 /64 share their turns."""
    try:
        return counted_as(host)
    except ValueError:  # no numeric address: it has its own turns
        return host
