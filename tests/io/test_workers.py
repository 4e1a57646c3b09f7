"""Whose login is verified when. The verifier's threads wait for the test."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from auth.credentials import Answer, CheckPassword, VerifyRequest, VerifyResult
from auth.secrets import Secret
from router.io import workers
from router.io.workers import Workers

THREADS = 3
MAX_RUNNING_OF_HOST = 2

A, B, C = "192.0.2.1", "192.0.2.2", "192.0.2.3"


class Scene:
    """The names of the users stand for the logins."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.answers: dict[str, VerifyResult] = {}
        self.declined: list[str] = []
        self.unwanted: set[str] = set()
        self.errors: list[str] = []
        self._may_end: dict[str, threading.Event] = {}
        self.workers = Workers(self._verify, self.errors.append, threads=THREADS)

    def _verify(self, request: VerifyRequest) -> VerifyResult:
        assert isinstance(request, CheckPassword)
        assert self._may_end[request.user].wait(10)
        if request.user == "broken":
            raise RuntimeError
        return VerifyResult(is_valid=True)

    def login(self, name: str, host: str) -> Callable[[], None]:
        def begins() -> bool:
            if name in self.unwanted:
                self.declined.append(name)
                return False
            self.begun.append(name)
            return True

        def done(result: Answer) -> None:
            assert isinstance(result, VerifyResult)
            self.answers[name] = result

        self._may_end[name] = threading.Event()
        return self.workers.submit(CheckPassword(user=name, password=Secret("p")), host, begins, done)

    async def end(self, name: str) -> None:
        """Let its verification end, and what follows begin."""
        self._may_end[name].set()
        await self.until(lambda: name in self.answers)

    async def until(self, claim: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not claim():
                await asyncio.sleep(0)

    def close(self) -> None:
        for each in self._may_end.values():
            each.set()
        self.workers.close()

    def refused(self) -> list[str]:
        return [name for name, result in self.answers.items() if not result.is_compared]


def on_loop(script: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        scene = Scene()
        try:
            await script(scene)
        finally:
            scene.close()

    asyncio.run(run())


def test_one_host_never_has_all_threads() -> None:
    """Attack: another host's login waits for the slow hashes of one that floods."""

    async def script(scene: Scene) -> None:
        for number in range(10):
            scene.login(f"a{number}", A)
        assert scene.begun == ["a0", "a1"]
        scene.login("b", B)
        assert scene.begun == ["a0", "a1", "b"]

    assert MAX_RUNNING_OF_HOST < THREADS
    on_loop(script)


def test_logins_that_are_given_up_while_the_verifier_hangs_leave_nothing() -> None:
    """Attack: to fill the memory through a directory that does not answer."""

    class Question:
        """A request that can be watched; its members are nobody's business here."""

    async def script(scene: Scene) -> None:
        scene.login("a", A)
        scene.login("b", A)
        waiting = [Question() for _ in range(200)]
        watched = [weakref.ref(each) for each in waiting]
        give_up = [scene.workers.submit(each, A, lambda: True, lambda _answer: None) for each in waiting]  # type: ignore[arg-type]
        assert scene.workers._waiting == 200
        waiting.clear()
        for each in give_up:
            each()
        give_up.clear()
        del each
        gc.collect()
        assert scene.workers._waiting == 0
        assert [each for each in watched if each() is not None] == []

    on_loop(script)


def test_hosts_have_turns_and_within_a_host_the_first_comes_first() -> None:
    async def script(scene: Scene) -> None:
        for number in range(5):
            scene.login(f"a{number}", A)
        for number in range(3):
            scene.login(f"b{number}", B)
        scene.login("c0", C)
        assert scene.begun == ["a0", "a1", "b0"]
        for name in ("b0", "a0", "a1", "b1", "c0", "a2"):
            await scene.end(name)
        assert scene.begun == ["a0", "a1", "b0", "b1", "a2", "c0", "b2", "a3", "a4"]

    on_loop(script)


def test_one_network_of_ipv6_is_one_host() -> None:
    """Attack: each login from another address of a /64, which belongs to one site."""

    async def script(scene: Scene) -> None:
        for number in range(5):
            scene.login(f"a{number}", f"2001:db8::{number}")
        assert len(scene.begun) == MAX_RUNNING_OF_HOST
        scene.login("b", "2001:db8:0:1::1")
        scene.login("c", "no address")
        assert scene.begun[MAX_RUNNING_OF_HOST:] == ["b"]

    on_loop(script)


def test_what_is_given_up_while_it_waits_is_never_begun() -> None:
    """Attack: thousands of logins whose peers have gone are verified before those of others."""

    async def script(scene: Scene) -> None:
        give_up = [scene.login(f"a{number}", A) for number in range(500)]
        for each in give_up:
            each()
            each()
        scene.login("late", A)
        await scene.end("a0")
        await scene.end("a1")
        await scene.end("late")
        assert scene.begun == ["a0", "a1", "late"]
        assert list(scene.answers) == ["a0", "a1", "late"]

    on_loop(script)


def test_threads_that_work_for_peers_that_have_gone_count_for_their_host() -> None:
    async def script(scene: Scene) -> None:
        for number in range(10):
            scene.login(f"a{number}", A)()
        assert scene.begun == ["a0", "a1"]

    on_loop(script)


def test_what_is_not_wanted_any_more_makes_way_one_in_each_pass() -> None:
    """A host was banned while its logins waited."""

    async def script(scene: Scene) -> None:
        for number in range(6):
            scene.login(f"a{number}", A)
        scene.unwanted = {f"a{number}" for number in range(2, 6)}
        await scene.end("a0")
        assert scene.declined == ["a2"]
        scene.login("b", B)
        assert scene.begun == ["a0", "a1"]
        assert scene.declined == ["a2", "a3"]
        await scene.until(lambda: len(scene.declined) == 4)
        assert scene.begun == ["a0", "a1", "b"]
        assert set(scene.answers) == {"a0"}

    on_loop(script)


def test_a_host_has_so_many_logins_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: one host fills the queue. Those it has count, waiting or running."""
    monkeypatch.setattr(workers, "MAX_OF_HOST", 4)

    async def script(scene: Scene) -> None:
        for number in range(6):
            scene.login(f"a{number}", A)
        scene.login("b", B)
        assert scene.answers == {}  # whoever asks is answered later
        await asyncio.sleep(0)
        assert scene.refused() == ["a4", "a5"]
        assert "4 logins of this host wait already" in scene.answers["a4"].detail
        await scene.end("a0")
        scene.login("again", A)
        await asyncio.sleep(0)
        assert scene.refused() == ["a4", "a5"]

    on_loop(script)


def test_where_the_queue_is_full_the_host_with_the_most_logins_makes_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a few hosts fill the queue, to have everybody else refused."""
    monkeypatch.setattr(workers, "MAX_IN_ALL", 8)

    async def script(scene: Scene) -> None:
        for number in range(6):
            scene.login(f"a{number}", A)
        for number in range(2):
            scene.login(f"b{number}", B)
        assert scene.begun == ["a0", "a1", "b0"]
        scene.login("c0", C)
        scene.login("c1", C)
        await asyncio.sleep(0)
        assert scene.refused() == ["a5", "a4"]
        scene.login("a6", A)
        scene.login("c2", C)
        await asyncio.sleep(0)
        assert scene.refused() == ["a5", "a4", "a6", "c2"]
        for name in ("b0", "a0", "a1"):
            await scene.end(name)
        assert scene.begun == ["a0", "a1", "b0", "b1", "a2", "c0"]

    on_loop(script)


def test_a_verifier_that_raises_refuses_and_goes_on() -> None:
    async def script(scene: Scene) -> None:
        scene.login("broken", A)
        await scene.end("broken")
        assert scene.refused() == ["broken"]
        assert scene.errors == ["the verifier failed with RuntimeError"]
        scene.login("a", A)
        await scene.end("a")
        assert scene.answers["a"].is_valid

    on_loop(script)


def test_answers_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever became of a login, also of one that is refused unasked; not one that is given up."""
    monkeypatch.setattr(workers, "MAX_OF_HOST", 2)

    async def script(scene: Scene) -> None:
        scene.login("good", A)
        scene.login("broken", A)
        scene.login("too-many", A)
        await scene.until(lambda: "too-many" in scene.answers)
        assert (scene.workers.running, scene.workers.waiting) == (2, 0)
        await scene.end("good")
        await scene.end("broken")
        tally = scene.workers.tally
        assert (tally.asked, tally.valid, tally.invalid, tally.unavailable, tally.continued) == (3, 1, 0, 2, 0)
        assert 0 < tally.longest_s <= tally.seconds

    on_loop(script)


def test_after_the_end_nothing_is_begun_and_giving_up_is_no_fault() -> None:
    async def script(scene: Scene) -> None:
        give_up = [scene.login(f"a{number}", A) for number in range(4)]
        scene.close()
        for each in give_up:
            each()
        await scene.end("a0")
        await scene.end("a1")
        assert scene.begun == ["a0", "a1"]

    on_loop(script)


# Answers that need no thread


class Memory(Scene):
    """A verifier that knows `known` by heart, and is surprised by `odd`."""

    def __init__(self) -> None:
        super().__init__()
        self.workers = Workers(self._verify, self.errors.append, threads=THREADS, recall=self._recall)

    def _recall(self, request: VerifyRequest) -> Answer | None:
        assert isinstance(request, CheckPassword)
        if request.user == "odd":
            raise RuntimeError
        return VerifyResult(is_valid=True, detail="by heart") if request.user == "known" else None


def by_heart(script: Callable[[Memory], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        scene = Memory()
        try:
            await script(scene)
        finally:
            scene.close()

    asyncio.run(run())


def test_what_is_known_by_heart_takes_no_thread_and_comes_after_submit_has_returned() -> None:
    async def script(scene: Memory) -> None:
        scene.login("known", A)
        assert scene.begun == ["known"]
        assert scene.answers == {}
        await scene.until(lambda: "known" in scene.answers)
        assert scene.answers["known"].detail == "by heart"
        assert (scene.workers.running, scene.workers.waiting) == (0, 0)
        assert (scene.workers.tally.asked, scene.workers.tally.valid) == (1, 1)

    by_heart(script)


def test_what_is_known_by_heart_is_not_told_where_it_is_not_wanted_any_more() -> None:
    """A host that is banned by now, and a peer that has left."""

    async def script(scene: Memory) -> None:
        scene.unwanted.add("known")
        scene.login("known", A)
        assert scene.declined == ["known"]
        scene.unwanted.clear()
        give_up = scene.login("known", A)
        give_up()
        for _ in range(5):
            await asyncio.sleep(0)
        assert scene.answers == {}
        assert scene.workers.tally.asked == 1
        give_up()

    by_heart(script)


def test_a_memory_that_fails_has_the_verifier_asked() -> None:
    async def script(scene: Memory) -> None:
        scene.login("odd", A)
        assert scene.workers.running == 1
        await scene.end("odd")
        assert scene.answers["odd"].detail == ""

    by_heart(script)
