"""Asks verifiers again about the credentials of open connections, and ends connections whose credentials are invalid.

It runs with `onPolicyChange: enforce`, every `revalidateInterval`. Source: docs/spec/policy-and-auth.md §8.7.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from auth.credentials import Answer, Recheck, VerifyResult
from router.connection.accepted import Connection
from router.connection.stack import Stack
from router.connection.terms import Done
from router.effects import Emit, log
from router.faults import fault_text
from router.io.turns import turn

# Number of simultaneous questions, so that logins, which use the same threads, do not wait for thousands of questions.
AT_ONCE: Final = 2

# (question, done) → asks the verifier that gave the proof, and passes its answer to `done` on the loop
Ask = Callable[[Recheck, Done], None]


class Revalidation:
    """Runs one round at a time. A round asks about each proof once, however many connections have shown it."""

    def __init__(
        self,
        ask: Ask,
        connections: Mapping[int, Stack],
        finish: Callable[[], None],
        emit: Emit,
        *,
        interval_s: float,
    ) -> None:
        """finish  sends messages that were made outside a pass of the loop"""
        self._ask = ask
        self._connections = connections
        self._finish = finish
        self._emit = emit
        self._interval_s = interval_s
        self._next_at: float | None = None
        self._round: asyncio.Task[None] | None = None

    def on_second(self, now: float) -> None:
        """Begins a round when it is due.

        now  monotonic seconds
        """
        if self._next_at is None:
            self._next_at = now + self._interval_s
        if now >= self._next_at and self._round is None:
            self._next_at = now + self._interval_s
            self._round = asyncio.get_running_loop().create_task(self._go_round())

    def stop(self) -> None:
        if self._round is not None:
            self._round.cancel()

    async def _go_round(self) -> None:
        try:
            questions = await self._questions()
            await asyncio.gather(*(self._work_off(questions) for _ in range(AT_ONCE)))
        except Exception as error:
            log(self._emit, "ERROR", "error", f"Revalidation: {fault_text(error)}")
        finally:
            self._round = None

    async def _questions(self) -> Iterator[Recheck]:
        found: dict[Recheck, None] = {}
        has_time = turn()
        for connection in list(self._connections.values()):
            if isinstance(connection, Connection) and connection.is_open and (question := connection.tenure.recheck):
                found[question] = None
            if not has_time():
                await asyncio.sleep(0)
                has_time = turn()
        return iter(found)

    async def _work_off(self, questions: Iterator[Recheck]) -> None:
        loop = asyncio.get_running_loop()
        for question in questions:
            answered: asyncio.Future[Answer] = loop.create_future()
            self._ask(question, partial(_set, answered))
            answer = await answered
            # A verifier that does not answer ends no connection: an outage of the directory is no reason to stop the
            # traffic.
            if isinstance(answer, VerifyResult) and answer.is_compared and not answer.is_valid:
                await self._end(question)

    async def _end(self, question: Recheck) -> None:
        ended, has_time = 0, turn()
        for connection in list(self._connections.values()):
            if isinstance(connection, Connection) and connection.is_open and connection.tenure.recheck == question:
                connection.revoke()
                ended += 1
            if not has_time():
                self._finish()
                await asyncio.sleep(0)
                has_time = turn()
        self._finish()
        proof = question.proof
        what = f"the credentials of '{proof.user}' hold no more: {ended} connections closed"
        log(self._emit, "POLICY", "info", f"Authenticator {proof.verifier}: {what}")


def _set(answered: asyncio.Future[Answer], answer: Answer) -> None:
    if not answered.done():  # the router has stopped in the meantime
        answered.set_result(answer)
