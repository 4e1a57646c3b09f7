"""Blocking work off the event loop: verifying passwords, in threads.

The hosts that ask have turns, one login each; within a host the first comes first. Bounded in threads and in waiting
logins, for each host and in all; beyond that a login is refused, and may come again. A host is an IPv4 address or an
IPv6 /64, as for bans (policy.failures).
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

# Attack: one host fills the queue, to have everybody else refused, and the memory: each entry holds one password.
MAX_OF_HOST: Final = 512
# The same from many hosts. When it is full, the host with the most logins in it makes way.
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

    waiting  in the order they came
    running  how many threads work for it, also for logins that were given up meanwhile
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
    """Threads that come with the work, and that the end of the process does not wait for.

    Those of concurrent.futures would hold it up until a directory answers that does not.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._threads: list[Thread] = []
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def submit(self, task: Callable[[], None], running: int) -> None:
        """running  tasks under way, with this one; at most `most`. A task must not raise"""
        if running > len(self._threads) < self._most:
            self._threads.append(Thread(target=self._work, name=f"{self._name}_{len(self._threads)}", daemon=True))
            self._threads[-1].start()
        self._tasks.put(task)

    def close(self) -> None:
        """The threads end when they have done what is under way."""
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
        """threads  of the pool, 2 at least
        recall   an answer that is to be had in microseconds, without waiting for anything; None: ask `verify`
        """
        self._verify = verify
        self._recall = recall
        self._on_error = on_error
        self._threads = threads
        # Attack: one host logs in without end. It never has all threads, so that another host's login begins at once.
        self._threads_of_host = threads - 1
        self._pool = Threads(threads, "verifier")
        self.tally = Tally()
        self._hosts: dict[object, _Host] = {}  # those with anything that waits or runs
        self._turns: dict[_Host, None] = {}  # those with something that waits, whose turn is next first
        self._running = 0
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """Logins whose turn has not come."""
        return self._waiting

    @property
    def running(self) -> int:
        return self._running

    def submit(
        self, request: VerifyRequest, host: str, begins: Callable[[], bool], done: Callable[[Answer], None]
    ) -> Callable[[], None]:
        """Have a request verified in its host's turn.

        host     numeric address of the peer
        begins   called when the turn has come: is the answer still wanted? If not, `done` is not called. Must not raise
        done     gets the answer
        Returns  what gives the request up: it leaves the queue at once and `done` is not called. One that is being
                 verified is finished, and `done` called, all the same.
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
        """Nothing that waits is verified any more."""
        self._turns.clear()
        self._pool.close()

    def _recalled(self, request: VerifyRequest) -> Answer | None:
        """A hand-over to a thread and back takes longer than all else that SCRAM costs."""
        try:
            return self._recall(request)
        except Exception:  # `verify` says what is wrong
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
        """Out of the queue."""
        del owner.waiting[verification]
        self._waiting -= 1
        if not owner.waiting:
            self._turns.pop(owner, None)

    def _forget_idle(self, owner: _Host) -> None:
        if not owner.count:
            self._hosts.pop(owner.key, None)

    def _begin_next(self) -> None:
        """Give the free threads work."""
        while self._running < self._threads:
            owner = next((each for each in self._turns if each.running < self._threads_of_host), None)
            if owner is None:
                return
            verification = next(iter(owner.waiting))
            self._take(owner, verification)
            if owner.waiting:  # its turn comes again after those of all others
                del self._turns[owner]
                self._turns[owner] = None
            if not verification.begins():
                self._forget_idle(owner)
                # A banned host may have hundreds to be declined: one in each pass of the loop, lest all others wait.
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
                # The text may hold what the user typed; the class says enough to look further.
                fault = f"the verifier failed with {type(error).__name__}"
            with suppress(RuntimeError):  # the loop is closed: the router has ended
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
    """Whose turn a login of this numeric address takes: logins of one IPv4 address or IPv6 /64 share one."""
    try:
        return counted_as(host)
    except ValueError:  # no numeric address: by itself
        return host
