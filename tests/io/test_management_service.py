"""How the management service takes its turns with everything else on the loop. Management §7.2, §8.10; issue 4."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from policy.rights import UNRESTRICTED
from router.amqp.codec import Message, decode_message, encode_message
from router.control.management_service import MAX_WAITING, ManagementService
from router.io.host_names import KnownNames
from router.management.agent import QueryRows, Request, Response
from router.management.requests import Requester


class Scene:
    """A service between a core that collects replies and an agent that does what `begin` says."""

    def __init__(self, begin: Callable[[Request], Response]) -> None:
        self.replies: list[Message] = []
        self.credit_returned = 0
        self.names = KnownNames()
        core = SimpleNamespace(subscribe=lambda address, consumer: None, send=self._send)
        agent = SimpleNamespace(
            begin=begin, failed=lambda error: Response(status=500, description=type(error).__name__, body={})
        )
        made: Any = ManagementService

        def requester(connection: int, *, is_direct: bool) -> Requester:
            return Requester(connection_id=connection, rights=UNRESTRICTED, is_direct=is_direct)

        self.service = made(
            core, agent, requester, lambda link, to: True, lambda effect: None, lambda: None, self.names
        )  # fmt: skip

    def _send(self, to: object, payload: bytes, *, asker: Any) -> None:
        self.replies.append(decode_message(payload))
        asker.owe()

    def _owe(self) -> None:
        self.credit_returned += 1

    def ask(self, number: int, connection_id: int = 1) -> None:
        payload = encode_message(reply_to="r", correlation_id=str(number), application_properties={}, body=None)
        attachment = SimpleNamespace(connection_id=connection_id, is_trunk=False, is_edge=False, is_neighbour=False)
        link: Any = SimpleNamespace(attachment=attachment, holds=0, owe=self._owe)
        assert self.service.on_message(payload, link)  # its credit returns with the answer

    async def replied(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.replies) < count:
                await asyncio.sleep(0)

    @property
    def answered(self) -> list[object]:
        return [reply.correlation_id for reply in self.replies]


def ok(body: object = None) -> Response:
    return Response(status=200, description="OK", body=body)


def long_query(rows: int) -> Response:
    def make() -> Iterator[list[object] | None]:
        for number in range(rows):
            yield None if number % 2 else [number, "x" * 50]

    return ok(QueryRows(["a", "b"], make()))


def test_a_short_answer_comes_at_once() -> None:
    scene = Scene(lambda request: long_query(4))
    scene.ask(1)
    assert scene.replies[0].body == {"attributeNames": ["a", "b"], "results": [[0, "x" * 50], [2, "x" * 50]]}


def test_a_long_answer_lets_the_loop_turn() -> None:
    async def run() -> None:
        scene = Scene(lambda request: long_query(100_000))
        scene.ask(1)
        assert scene.replies == []
        turns = 0
        async with asyncio.timeout(30):
            while not scene.replies:
                turns += 1
                await asyncio.sleep(0)
        assert turns > 10
        assert len(scene.replies[0].body["results"]) == 50_000

    asyncio.run(run())


def test_requests_wait_their_turn_and_too_many_are_refused() -> None:
    async def run() -> None:
        answers = iter([long_query(50_000)])
        scene = Scene(lambda request: next(answers, ok()))
        for number in range(MAX_WAITING + 3):
            scene.ask(number)
        busy = [reply.correlation_id for reply in scene.replies]
        assert busy == [str(MAX_WAITING + 1), str(MAX_WAITING + 2)]
        assert {int(reply.application_properties["statusCode"]) for reply in scene.replies} == {500}
        await scene.replied(MAX_WAITING + 3)
        assert scene.answered[2:] == [str(number) for number in range(MAX_WAITING + 1)]

    asyncio.run(run())


def test_a_row_that_fails_is_an_answer() -> None:
    def broken() -> Iterator[list[object] | None]:
        yield [1]
        raise KeyError("what only the router knows")

    scene = Scene(lambda request: ok(QueryRows(["a"], broken())))
    scene.ask(1)
    assert scene.replies[0].application_properties == {"statusCode": 500, "statusDescription": "KeyError"}


def test_a_fault_while_one_is_answered_leaves_the_others_their_turn() -> None:
    """Whatever it is: it is logged without what it says, and those that wait are not forgotten."""
    texts: list[str] = []

    def begin(request: Request) -> Response:
        if request.requester.connection_id == 2:
            raise RuntimeError("secret")
        return long_query(20_000)

    async def run() -> None:
        scene = Scene(begin)
        scene.service._emit = lambda effect: texts.append(effect.text)
        for number in (1, 2, 3):
            scene.ask(number, connection_id=number)
        await scene.replied(2)
        assert scene.answered == ["1", "3"]
        assert scene.credit_returned == 3

    asyncio.run(run())
    assert len(texts) == 1
    assert texts[0].startswith("A request was not answered: RuntimeError at ")
    assert "secret" not in texts[0]


def test_a_slow_name_server_holds_up_one_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    release, looked_up = threading.Event(), []

    def slow(name: str, *_: Any, **__: Any) -> list[Any]:
        looked_up.append(name)
        assert release.wait(10)
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("10.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", slow)

    async def run() -> None:
        scene = Scene(lambda request: ok([*scene.names("one"), *scene.names("two")]))
        scene.ask(1)
        for _ in range(50):
            await asyncio.sleep(0)
        assert scene.replies == []  # and the loop turned all the while
        release.set()
        await scene.replied(1)
        assert scene.replies[0].body == ["10.0.0.1", "10.0.0.1"]
        assert looked_up == ["one", "two"]
        # The next request sees the addresses of its own time.
        scene.ask(2)
        await scene.replied(2)
        assert looked_up == ["one", "two"] * 2

    asyncio.run(run())


def test_a_name_that_is_not_known_is_the_callers_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> list[Any]:
        raise OSError("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)

    def begin(request: Request) -> Response:
        try:
            return ok(list(scene.names("unknown")))
        except OSError as error:
            return Response(status=500, description=str(error), body={})

    scene = Scene(begin)

    async def run() -> None:
        scene.ask(1)
        await scene.replied(1)

    asyncio.run(run())
    assert scene.replies[0].application_properties["statusDescription"] == "no such name"
